"""What follows a product in its kernel: over tiles, over a unit's rows, in narrower types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from contracts import F32, Sketch, pair, random, targets

from fxad.backend.llvm.native.engine import host_target
from fxad.ir.kernel import (
    Cast,
    Const,
    Get,
    IndexValue,
    Load,
    Param,
    Prim,
    Store,
    at,
)


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_epilogue(target):
    """Several stores, a bias, a residual read across the lanes, a scalar, a guard, two K blocks."""
    for m, n, k in [(13, 50, 20), (21, 101, 900)]:
        a, b, bias, rest = random(m, k), random(k, n), random(n), random(n, m)
        out, half = np.full((m, n), np.nan, F32), np.zeros((m, n), np.float16)
        column = np.zeros(m, F32)
        s = Sketch(a, b, out)
        sum_ = Get(s.cell)
        biased = Prim("add", (sum_, Load(s.buffer(bias), at(s.n))), F32)
        scaled = Prim("mul", (biased, Param(s.scalar(0.25))), F32)
        across = Load(s.buffer(rest), at(s.n) * m + at(s.m))
        total = Prim("add", (scaled, across), F32)
        to_half = Store(s.buffer(half, "out"), s.out_index, Cast(total, half.dtype))
        first = Prim("eq", (Prim("mul", (sum_, Const(1.0, F32)), F32), sum_), np.dtype(bool))
        guarded = Store(s.buffer(column, "out"), at(s.m), total, _only_column(s, first))
        s.run([s.store(total), to_half, guarded], target)
        wanted = (a.astype(np.float64) @ b + bias) * 0.25 + rest.T
        # Rounded after the sum: half an ulp each of products' sum, add, mul and add.
        np.testing.assert_allclose(out, wanted, rtol=0, atol=(k + 8) * 1.2e-7 * 30)
        np.testing.assert_array_equal(half, out.astype(np.float16))
        np.testing.assert_array_equal(column, out[:, 0])


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize(
    "size", [(70, 401, 37), (131, 1603, 64), (200, 96, 900), (250, 800, 300)], ids=str
)
def test_an_epilogue_over_the_rows_of_a_unit(target, size):
    """It gives the bits of the epilogue tile by tile, over rows of any length and in place."""
    m, n, k = size
    a, b, moment, bias = random(k, m), random(k, n), random(m, n), random(n)

    def run(epilogue_bytes: int) -> tuple[np.ndarray, np.ndarray, int]:
        sizes = {"unit_epilogue_rows": 1, "unit_epilogue_columns": 1}
        least = {"unit_epilogue_bytes": epilogue_bytes, **sizes}
        tuned = target.tuned(gemm=least)
        out, kept = np.full((m, n), np.nan, F32), moment.copy()
        s = Sketch((a.T, a), b, out)
        inout = s.buffer(kept, "inout")
        square = Prim("mul", (Get(s.cell), Get(s.cell)), F32)
        grown = Prim("add", (Load(inout, s.out_index), square), F32)
        root = Prim("add", (Prim("sqrt", (grown,), F32), Load(s.buffer(bias), at(s.n))), F32)
        divided = Prim("div", (Get(s.cell), root), F32)
        emitted = s.run([s.store(divided), Store(inout, s.out_index, grown)], tuned, cuts=(1, 2, 5))
        return out, kept, emitted.scratch_bytes

    *tiles, tile_bytes = run(1 << 60)
    *rows, row_bytes = run(0)
    assert row_bytes != tile_bytes  # so the two are different code
    for one, other in zip(rows, tiles, strict=True):
        np.testing.assert_array_equal(one, other)
    exact = a.T.astype(np.float64) @ b
    np.testing.assert_allclose(rows[1], moment + exact**2, rtol=1e-4, atol=1e-3)


def test_an_update_of_three_arrays_goes_over_rows_early():
    """From fewer bytes on than what else an epilogue reads; the bits are those of tiles."""
    m, n, k = 130, 170, 300
    a, b, arrays = random(m, k), random(k, n), [random(m, n) for _ in range(3)]

    def run(least: int) -> tuple[list[np.ndarray], int]:
        target = host_target().tuned(gemm={"update_bytes": least})
        held = [x.copy() for x in arrays]
        s = Sketch(pair(a), pair(b), held[0])
        buffers = [s.buffer(x, "inout") for x in held]
        olds = [Load(buffer, s.out_index) for buffer in buffers]
        news = [Prim("add", (Prim("mul", (x, x), F32), Get(s.cell)), F32) for x in olds]
        pairs = zip(buffers, news, strict=True)
        emitted = s.run(
            [Store(buffer, s.out_index, new) for buffer, new in pairs], target, cuts=(1, 2)
        )
        return held, emitted.scratch_bytes

    (rows, more), (tiles, less) = run(1 << 18), run(1 << 30)
    assert more > less  # the sums of a unit
    for one, other, old in zip(rows, tiles, arrays, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, old**2 + a.astype(np.float64) @ b, rtol=0, atol=1e-3)


def _only_column(s: Sketch, also) -> Prim:
    """True in column 0 (and where `also` holds, which is everywhere)."""
    i32 = np.dtype("int32")
    here = Prim("eq", (IndexValue(at(s.n), i32), Const(0, i32)), np.dtype(bool))
    return Prim("and", (here, also), np.dtype(bool))


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize(
    ("dtype", "result"), [("float32", ml_dtypes.bfloat16), ("int32", "int8"), ("int64", "int32")]
)
@pytest.mark.parametrize("columns", [9, 17, 65])
def test_a_last_column_of_a_narrower_type_ends_where_it_does(columns, dtype, result, target):
    """One lane of a vector that was truncated: nothing beside it is written."""
    a, b = (np.rint(3 * random(*shape)).astype(dtype) for shape in ((7, 20), (20, columns)))
    base = np.full((7, columns + 5), 77, result)
    sketch = Sketch(a, b, (base[:, :columns], base), accumulator=np.dtype(dtype))
    sketch.run([sketch.store(Cast(Get(sketch.cell), np.dtype(result)))], target=target)
    np.testing.assert_array_equal(base[:, :columns], (a @ b).astype(result))
    assert np.all(base[:, columns:] == np.array(77, result))
