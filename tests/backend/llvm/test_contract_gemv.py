"""Products of few rows: the bits of any other product, whatever the layout, dtype and cut."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from contracts import Sketch, random

from fxad.backend.llvm.contract import kernel as contract
from fxad.backend.llvm.contract.gemv import uses_gemv
from fxad.backend.llvm.contract.gemv_plan import batch_parts, turns_of
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.native.engine import host_target
from fxad.core.record import replace
from fxad.ir.kernel import Cast, Get, Load, Prim, Store, at

F32, F64 = np.dtype("float32"), np.dtype("float64")
# (columns, k): K in blocks that no square divides; columns and K left over.
SIZES = [(64, 2048), (333, 770)]


def near(target):
    """A small B counts as a large one."""
    return target.tuned(gemv={"far_bytes": 1 << 16})


def cases():
    """Every size for this machine, the last for other instruction sets."""
    here = host_target()
    names = ["generic"] if here.isa in ("generic", "neon") else ["avx2", "generic"]
    others = [near(host_target(name)) for name in names if name != here.isa]
    here = near(here)
    return [(here, size) for size in SIZES] + [(target, SIZES[-1]) for target in others]


def product(a, b, accumulator, target, cuts=()):
    out = np.full((*a.shape[:-1], b.shape[-1]), np.nan, accumulator)
    whole = b if b.flags.c_contiguous else b.swapaxes(-1, -2)
    sketch = Sketch(a, (b, whole), out)
    sketch.run(target=target, cuts=cuts)
    return out, uses_gemv(Problem.of(sketch.kernel()), target)


NAMES = ["float32", "float64", "float16", "bfloat16"]
# Other instruction sets have one layout of each width: wide elements lie along n and those of 16
# bits along k, but on the last one, which has the others.
LAST = cases()[-1][0]
FEW_ROWS = [
    (name, turned, target, size)
    for target, size in cases()
    for name in NAMES
    for turned in (False, True)
    if target == near(host_target()) or turned == (("16" in name) != (target == LAST))
]


@pytest.mark.parametrize(
    ("name", "turned", "target", "size"), FEW_ROWS, ids=lambda x: getattr(x, "isa", str(x))
)
def test_few_rows_are_those_of_many(name, turned, target, size, monkeypatch):
    columns, k = size
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    accumulator = F64 if name == "float64" else F32
    b = random(columns, k, dtype=dtype).T if turned else random(k, columns, dtype=dtype)
    a = random(8, k, dtype=dtype, seed=1)
    monkeypatch.setattr(contract, "uses_amx", lambda *_: False)  # they sum in another order
    with monkeypatch.context() as patch:
        patch.setattr(contract, "uses_gemv", lambda *_: False)
        expected, _ = product(a, b, accumulator, target)
    exact = a.astype(F64) @ b.astype(F64)
    bound = (k + 2) * np.finfo(accumulator).eps * (abs(a.astype(F64)) @ abs(b.astype(F64)))
    assert (abs(expected - exact) <= bound).all()
    for rows in (1, 5):
        found, taken = product(np.ascontiguousarray(a[:rows]), b, accumulator, target, range(99))
        assert taken
        np.testing.assert_array_equal(found, expected[:rows])


def few_lanes(chains):
    """The target whose sums of 16-bit elements wait for each other: so many go in turns."""
    isa = "generic" if host_target().isa in ("generic", "neon") else "avx2"
    return host_target(isa).tuned(gemv={"far_bytes": 1 << 16, "chains": chains})


@pytest.mark.parametrize(
    ("name", "k", "rows"),
    [
        *(("float16", 2048, 1), ("bfloat16", 1536, 1), ("float16", 3491, 1)),
        *(("bfloat16", 1571, 2), ("float16", 390, 1), ("bfloat16", 390, 1)),
    ],
)
def test_sums_in_turns_are_those_of_one(name, k, rows):
    """Three, two and five blocks of K, and the last one shorter; two rows; one block, of which
    squares of columns take turns."""
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    a, b = random(rows, k, dtype=dtype, seed=1), random(101, k, dtype=dtype).T
    expected, _ = product(a, b, F32, few_lanes(1))
    for chains in (2, 3):
        found, taken = product(a, b, F32, few_lanes(chains), range(99))
        assert taken
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("outer", "k", "parts", "expected"),
    [
        (2048, 2048, 1, (3, 1)),
        (3072, 3072, 1, (2, 1)),  # four blocks
        (768, 768, 1, (1, 3)),  # one: columns take turns
        (2048, 768, 1, (1, 1)),  # which are in one set of a cache
        (8192, 512, 16, (2, 1)),
        (1 << 15, 2048, 16, (1, 1)),  # so are parts
        (2064, 2048, 3, (3, 1)),  # where columns are spread over sets
    ],
)
def test_as_many_sums_in_turns_as_a_cache_holds_lines_of(outer, k, parts, expected):
    b = np.empty((parts, 64, k), ml_dtypes.bfloat16)
    sketch = Sketch(np.empty((1, k), b.dtype), (b[0].T, b[0]), np.empty((1, 64), F32))
    problem = Problem.of(sketch.kernel())
    problem = replace(problem, b=replace(problem.b, outer=outer))
    assert turns_of(problem, 8, parts, few_lanes(3).tuning.gemv) == expected


@pytest.mark.parametrize("ahead", [0, 256], ids=["by tiles", "along rows"])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3])
def test_parts_of_a_long_k_go_by_in_whole_rows(rows, name, ahead, monkeypatch):
    """Batch elements that are parts of B's rows: one unit takes all of them, each with its bits."""
    parts, k, columns = 5, 208, 333
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    whole = random(columns, parts, k, dtype=dtype)
    a, b = random(parts, rows, k, dtype=dtype, seed=1), whole.transpose(1, 2, 0)
    monkeypatch.setattr(contract, "uses_amx", lambda *_: False)
    isa = few_lanes(3) if rows == 1 else near(host_target())
    target = isa.tuned(gemv={"k_prefetch_bytes": ahead})
    found = np.full((parts, rows, columns), np.nan, F32)
    sketch = Sketch(a, (b, whole), found)
    sketch.run(target=target, cuts=range(99))
    assert batch_parts(Problem.of(sketch.kernel()), 1 << 16) == parts
    monkeypatch.setattr(contract, "uses_gemv", lambda *_: False)
    expected = np.full_like(found, np.nan)
    Sketch(a, (b, whole), expected).run(target=target)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("turned", [False, True], ids=["k by n", "n by k"])
def test_batches_strides_and_an_epilogue(turned):
    """A's rows apart and its k apart, columns of a wider B, a bias and a second result."""
    a_base, b_base = random(3, 200, 4), random(3, 300, 400, seed=2)
    a = a_base.swapaxes(1, 2)[:, :3]
    b = b_base.swapaxes(1, 2)[:, 5:205, 7:300] if turned else b_base[:, 5:205, 7:300]
    bias, out = random(293), np.full((3, 3, 293), np.nan, F32)
    half = np.zeros((3, 3, 293), np.float16)

    sketch = Sketch((a, a_base), (b, b_base), out)
    value = Prim("add", (Get(sketch.cell), Load(sketch.buffer(bias), at(sketch.n))), F32)
    other = Store(sketch.buffer(half, "out"), sketch.out_index, Cast(value, half.dtype))
    sketch.run([sketch.store(value), other], near(host_target()))
    expected = a.astype(F64) @ b + bias
    np.testing.assert_allclose(out, expected, atol=1e-4)
    np.testing.assert_array_equal(half, out.astype(np.float16))


def test_what_is_not_for_few_rows():
    def taken(a, b):
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)
        return uses_gemv(Problem.of(Sketch(a, b, out).kernel()), host_target())

    assert taken(random(8, 600), random(600, 600))
    assert not taken(random(9, 600), random(600, 600))
    assert not taken(random(1, 300), random(300, 300))
    widened = random(300, 300, dtype=ml_dtypes.bfloat16)
    assert taken(random(4, 300), widened)
    assert not taken(random(5, 300), widened)
    whole = np.zeros((600, 600), np.int32)
    assert not taken(whole[:1].copy(), whole)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("turned", [False, True], ids=["k by n", "n by k"])
@pytest.mark.parametrize("heads", [12, 1])
def test_keys_and_values_of_a_cache_are_not_packed(name, turned, heads, monkeypatch):
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    b = random(heads, 130, 64, dtype=dtype, seed=2)
    b = b.swapaxes(1, 2) if turned else b
    a = random(heads, 4, b.shape[1], dtype=dtype)
    monkeypatch.setattr(contract, "uses_amx", lambda *_: False)
    found, taken = product(a, b, F32, host_target(), range(99))
    assert taken == (heads > 1)
    with monkeypatch.context() as patch:
        patch.setattr(contract, "uses_gemv", lambda *_: False)
        expected, _ = product(a, b, F32, host_target())
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, a.astype(F64) @ b.astype(F64), atol=1e-4)
