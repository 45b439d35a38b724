"""The numba backend: the same source as plain Python, compiled, and as (simulated) CUDA."""

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba_cases import all_cases, fewer_cases, product
from numba_kernels import F32, check, maps, prim, softmax
from numba_plans import binary, control_sketch, loop_sketch, sketches

import fxad
from fxad import compiler
from fxad.backend.numba.compile import compile_kernel, stored
from fxad.backend.numba.emit import cuda_style, emit
from fxad.backend.numba.execute import execute_plan
from fxad.backend.numba.ptx import compile_to_ptx, toolkit_problem
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Prim
from fxad.ir.plan import Host, Plan, Slot

HERE = Path(__file__).parent


@pytest.mark.parametrize("case", all_cases(), ids=lambda c: c.kernel.name)
def test_python_source_means_what_the_reference_says(case):
    check(case, "python")


def compiled_cases():
    """`fewer_cases` but for arithmetic of bfloat16: that of float32, rounded as casts and sums."""
    return [case for case in fewer_cases() if case.kernel.name != "bfloat16 arithmetic"]


@pytest.fixture
def no_collections():
    """Numba makes millions of small objects, which collections go through in vain."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("no_collections")
def test_compiled_source_means_the_same():
    for case in compiled_cases():
        check(case, "cpu")


def test_sums_of_products_have_the_same_bits_interpreted_and_compiled():
    """Fused steps in the specified order of K: emulated in Python, one instruction in numba."""
    rng = np.random.default_rng(1)
    for case in (product(rng, (1, 3, 2, 1000)), product(rng, (1, 2, 3, 40), np.dtype("float64"))):
        bits = []
        for target in ("python", "cpu"):
            memory = [stored(a) for a in case.arrays]
            compile_kernel(case.kernel, target)(memory)
            bits.append(memory[-1].tobytes())
        assert bits[0] == bits[1]


def test_blocks_of_k_are_summed_apart():
    """K of 1000 is 512 and 488: what vanishes beside a large sum survives in its own block."""
    case = product(np.random.default_rng(0), (1, 1, 1, 1000))
    a, b, bias, out = (np.zeros_like(x) for x in case.arrays)
    a[:] = 1
    b[0], b[1:512], b[512:] = 2.0**24, 0, 1
    for target in ("python", "cpu"):
        memory = [stored(x) for x in (a, b, bias, out)]
        compile_kernel(case.kernel, target)(memory)
        assert memory[-1][0] == 2.0**24 + 488  # one by one, each 1 would be rounded away


def test_equal_kernels_are_compiled_once():
    first, second = (compile_kernel(binary("mul", F32, 6), "cpu") for _ in range(2))
    other = compile_kernel(binary("mul", F32, 7), "cpu")
    assert first.function is second.function
    assert first.function is not other.function


def test_wrong_numbers_of_arguments_are_refused():
    compiled = compile_kernel(binary("mul", F32, 6), "python")
    with pytest.raises(ValueError, match="takes 3 arrays and 0 scalars, got 2 and 1"):
        compiled([np.zeros(6, F32)] * 2, [1.0])
    with pytest.raises(ValueError, match="unknown numba target 'gpu'"):
        compile_kernel(binary("mul", F32, 6), "gpu")


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize("target", ["python", "cpu"])
def test_plans(target):
    for sketch in sketches():
        before = [a.copy() for a in sketch.arguments]
        found = execute_plan(sketch.plan, sketch.arguments, target)
        for got, want in zip(found, sketch.wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        for given, kept in zip(sketch.arguments, before, strict=True):
            np.testing.assert_array_equal(given, kept)


def test_wrong_arrays_are_refused():
    sketch = loop_sketch(False)
    x, start = sketch.arguments
    with pytest.raises(ValueError, match=r"argument 1 is float64\[3\], the plan was made for f32"):
        execute_plan(sketch.plan, [x, start.astype("float64")], "python")
    with pytest.raises(ValueError, match="reads argument 1, got 1"):
        execute_plan(sketch.plan, [x], "python")


def test_an_argument_may_be_seen_under_several_shapes():
    """The loop of rejections reads the flat shapes that the function was given as [3, 4]."""
    key, alpha = fxad.random.key(0), np.full((3, 4), 1.5, F32)
    drawn = fxad.jit(fxad.random.gamma)
    np.testing.assert_allclose(drawn.on("python")(key, alpha), drawn(key, alpha), rtol=1e-6)


def test_a_program_is_made_once(monkeypatch):
    double = fxad.jit(lambda x: x * 2).on("python")
    assert double(F32.type(3)) == 6
    monkeypatch.setattr(compiler, "planned", None)
    assert double(F32.type(4)) == 8


def test_a_host_function_must_return_what_was_declared():
    out = Slot(0, ArrayType(F32, (2,)), "result", 0)
    cases = (([np.zeros(3, F32)], r"output 0 must be f32\[2\]"), ([], "returned 0 arrays"))
    for returned, message in cases:
        step = Host(lambda r=returned: r, (), (out,), "broken")
        with pytest.raises(TypeMismatch, match=message):
            execute_plan(Plan((out,), (step,), (), (out,), 0, {}), [], "python")


def test_memory_beyond_the_arena_is_refused():
    slot = Slot(0, ArrayType(F32, (20,)), "arena", offset=64)
    with pytest.raises(ValueError, match="ends beyond the arena's 128 bytes"):
        execute_plan(Plan((slot,), (), (), (slot,), 128, {}), [], "python")


def test_memory_that_nothing_wrote_reads_as_nan():
    slot = Slot(0, ArrayType(F32, (2,)), "arena")
    (found,) = execute_plan(Plan((slot,), (), (), (slot,), 64, {}), [], "python")
    assert np.isnan(found).all()


# ---------------------------------------------------------------- CUDA


def test_styles():
    rng = np.random.default_rng(0)
    assert cuda_style(softmax(rng).kernel) == "block"
    assert cuda_style(product(rng, (1, 2, 2, 2)).kernel) == "tile"
    assert cuda_style(binary("add", F32, 5)) == "thread"


def test_shared_arrays_have_a_line_each():
    """The simulator tells them apart by line: two on one line would be the same memory."""
    rng = np.random.default_rng(0)
    for case in (softmax(rng), product(rng, (1, 2, 2, 2))):
        lines = emit(case.kernel, "cuda").source.splitlines()
        counts = [line.count("cuda.shared.array") for line in lines]
        assert sum(counts) == 2
        assert max(counts) == 1


@pytest.mark.parametrize(
    ("script", "saying"),
    [
        pytest.param("numba_on_cuda.py", "plans agree", marks=pytest.mark.slow),
        ("tiers_on_cuda.py", "tiers agree"),
    ],
)
def test_simulated_cuda(script, saying):
    """In a process of its own: numba reads the switch when it is imported."""
    pytest.importorskip("numba_cuda" if script == "numba_on_cuda.py" else "numba.cuda")
    root = HERE.parents[2]
    # The simulator watches its threads in a loop, which holds Python for 5 ms of every turn.
    code = "import runpy, sys; sys.setswitchinterval(1e-4); runpy.run_path({!r}, None, '__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code.format(str(HERE / script))],
        env={
            **os.environ,
            "NUMBA_ENABLE_CUDASIM": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (HERE, root))),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert saying in done.stdout


def ptxas() -> str:
    """The assembler of the toolkit's wheels (extra `cuda`), or of an installed toolkit."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else None
    wheels = [p for folder in folders or () for p in Path(folder).glob("cu*/bin/ptxas")]
    path = shutil.which("ptxas") if not wheels else str(wheels[0])
    assert path, "there is a CUDA toolkit without ptxas: pip install 'fxad[cuda]'"
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("no_collections")
def test_ptx(tmp_path):
    """Without a GPU; a product and a sum of two functions stay apart, a matrix product fuses."""
    problem = toolkit_problem()
    if problem:
        pytest.skip(f"no CUDA toolkit: {problem.splitlines()[0]}")
    x = np.random.default_rng(0).standard_normal(8).astype(F32)
    apart = maps("apart", [lambda a, b: Prim("add", (prim("mul", 2)(a, b), b), F32)], [x, x])
    text = compile_to_ptx(apart.kernel)
    assert ".target sm_90" in text
    assert "mul.rn.f32" in text
    assert "fma" not in text
    written, seen = tmp_path / "kernel.ptx", {}
    for case in compiled_cases():
        name = case.kernel.name
        cc = (8, 0) if name == "softmax" else (9, 0)
        written.write_text(compile_to_ptx(case.kernel, cc))
        seen[name] = written.read_text()
        gpu = f"sm_{cc[0]}{cc[1]}"
        assert f".target {gpu}" in seen[name]
        command = [ptxas(), f"--gpu-name={gpu}", str(written), f"--output-file={tmp_path}/kernel"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        assert ".entry" in seen[name]
    assert "fma.rn.f32" in seen["product (2, 5, 7, 33) float32"]
    assert "bar.sync" in seen["softmax"]


def test_branch_index_is_clamped():
    low, high = (
        execute_plan(s.plan, s.arguments, "python")[1]
        for s in (control_sketch(-3), control_sketch(9))
    )
    np.testing.assert_array_equal(high - low, np.full(4, 10, F32))
