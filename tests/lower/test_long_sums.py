"""Products of long sums with small results: taken in parts, which threads share, then added."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.executable import Executable
from fxad.compiler import simplified
from fxad.core.types import ArrayType
from fxad.ir import loops
from fxad.ir.kernel import Contract, Reduce
from fxad.lower.reduction import contraction_parts
from fxad.trace.tracer import stage

RNG = np.random.default_rng(3)


def drawn(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


CASES = {
    "a.T b": (lambda a, b: a.T @ b, (drawn(20000, 64), drawn(20000, 64))),
    "a b": (lambda a, b: a @ b, (drawn(5, 9000), drawn(9000, 300))),
    "a b.T": (lambda a, b: a @ b.T, (drawn(100, 4200), drawn(29, 4200))),
    "epilogue": (lambda a, b: 0.5 * (a.T @ b) + 1, (drawn(9000, 40), drawn(9000, 33))),
    "sums over two axes": (
        lambda a, b: jnp.einsum("ijm,ijn->nm", a, b),
        (drawn(90, 100, 31), drawn(90, 100, 50)),
    ),
    "batch": (
        lambda a, b: jnp.einsum("bkm,bkn->bmn", a, b),
        (drawn(3, 4500, 31), drawn(3, 4500, 32)),
    ),
    "lanes of one operand": (
        lambda a, b: fxad.vmap(lambda lane: lane.T @ b)(a),
        (drawn(3, 9000, 20), drawn(9000, 33)),
    ),
    "axes in another order": (
        lambda a, b: jnp.einsum("xijm,jxin->xmn", a, b),
        (drawn(2, 100, 64, 30), drawn(64, 2, 100, 40)),
    ),
    "one number": (lambda a, b: jnp.vdot(a, b), (drawn(600_000), drawn(600_000))),
    "an operand that is one number": (
        lambda a, b: a.T @ jnp.broadcast_to(b, (20000, 32)),
        (drawn(20000, 32), drawn()),
    ),
    "halves": (lambda a, b: a.T @ b, (drawn(9000, 64, dtype="f2"), drawn(9000, 64, dtype="f2"))),
}


def in_parts(lowered) -> bool:
    stages = [type(stage) for kernel in lowered.kernels for stage in kernel.body]
    return Contract in stages and Reduce in stages


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up(name: str) -> None:
    function, args = CASES[name]
    compiled = fxad.jit(function)
    assert in_parts(compiled.lower(*args))
    found = np.asarray(compiled(*args), np.float64)
    with fxad.enable_x64():
        wide = [np.asarray(x, np.float64) for x in args]
        exact = np.asarray(function(*map(jnp.asarray, wide)))
        # The error of a sum in any order is at most about K roundings of the sum of magnitudes.
        whole = np.asarray(function(*(jnp.asarray(np.abs(x)) for x in wide)))
    assert exact.dtype == np.float64
    eps = float(np.finfo(args[0].dtype).eps)
    assert np.all(np.abs(found - exact) <= 4 * eps * np.abs(whole).max())


@pytest.mark.parametrize("name", ["a.T b", "epilogue", "batch", "halves"])
def test_bits_do_not_depend_on_fusion_or_threads(name: str) -> None:
    function, args = CASES[name]
    types = [ArrayType(a.dtype, a.shape) for a in args]
    traced, _ = stage(lambda *xs: [function(*xs)], types)
    program = simplified(traced.closed())
    before = fxad.get_num_threads()
    try:
        found = []
        for fusion in (True, False):
            executable = Executable(plan(program, fusion=fusion))
            for threads in (1, 2, 3):
                fxad.set_num_threads(threads)
                found.append(executable.run(args)[0].tobytes())
    finally:
        fxad.set_num_threads(before)
    assert len(set(found)) == 1


def test_gradient_of_a_weight_that_many_rows_read() -> None:
    x, w = drawn(8192, 48), drawn(48, 32)
    compiled = fxad.jit(fxad.grad(lambda w, x: jnp.sum(jnp.square(x @ w))))
    assert in_parts(compiled.lower(w, x))
    exact = 2 * x.astype(np.float64).T @ (x.astype(np.float64) @ w.astype(np.float64))
    np.testing.assert_allclose(np.asarray(compiled(w, x)), exact, rtol=0, atol=2e-5 * 8192)


@pytest.mark.parametrize(
    ("a", "b", "parts"),
    [
        ((64, 20000), (20000, 64), 16),
        ((64, 20001), (20001, 64), 1),  # in no 4 to 16 equal parts
        ((64, 4095), (4095, 64), 1),  # too short
        ((256, 20000), (20000, 256), 1),  # result large enough to be cut
        ((4, 4096), (4096, 4), 1),  # too little work
    ],
)
def test_when(a: tuple[int, int], b: tuple[int, int], parts: int) -> None:
    types = [ArrayType(np.dtype("float32"), s) for s in (a, b, (a[0], b[1]))]
    record = loops.Contract(((1,), (0,)), ((), ()))
    assert contraction_parts(*types, record) == parts
