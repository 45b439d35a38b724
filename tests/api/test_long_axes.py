"""Axes longer than 2^31 - 1: indices are 64 bits wide where an axis needs them.

Arrays are sparse: pages of a private mapping that nobody touches take no memory.
"""

from __future__ import annotations

import mmap

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.trace.array import Concrete

LENGTH = 2**31 + 16
BEYOND = 2**31 + 3  # no int32
END = {LENGTH - 1: 7, LENGTH - 2: 6, BEYOND: 5}
LAZY = pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])


@pytest.fixture
def sparse() -> np.ndarray:
    array = np.frombuffer(mmap.mmap(-1, LENGTH), np.int8)
    for place, value in {**END, 3: 1, 0: 9}.items():
        array[place] = value
    return array


def wide(*values: int) -> fxad.Array:
    return jnp.asarray(np.array(values), dtype=jnp.int64)


READS = {
    "one": (lambda x, i: x[i], np.int32(-1), 7),
    "several": (lambda x, i: x[i], np.array([-1, 3, -13], np.int32), [7, 1, 5]),
    "int8": (lambda x, i: x[i], np.array([-1, 3], np.int8), [7, 1]),
    "uint32": (lambda x, i: x[i], np.array([3, BEYOND], np.uint32), [1, 5]),
    "int64": (lambda x, i: x[i], wide(-1, 3, BEYOND), [7, 1, 5]),
    "literal": (lambda x, i: x[BEYOND] + x[i], np.int32(3), 6),
    "take": (jnp.take, np.array([-1, 3, -13], np.int32), [7, 1, 5]),
    "wrap": (lambda x, i: jnp.take(x, i, mode="wrap"), np.array([-1, -13], np.int32), [7, 5]),
    "clip": (lambda x, i: jnp.take(x, i, mode="clip"), wide(LENGTH + 5, -3), [7, 9]),
    "along": (lambda x, i: jnp.take_along_axis(x, i, 0), np.array([-2, 3], np.int32), [6, 1]),
    "get": (lambda x, i: x.at[i].get(mode="fill", fill_value=2), wide(LENGTH, -1), [2, 7]),
    "slice": (lambda x, i: lax.dynamic_slice(x, (i,), (2,)), np.int32(-2), [6, 7]),
    "slice up": (lambda x, i: lax.dynamic_slice(x, (i,), (2,)), wide(BEYOND)[0], [5, 0]),
    "slice at": (lambda x, i: lax.dynamic_slice(x, (BEYOND,), (2,)), np.int32(0), [5, 0]),
    "index": (lambda x, i: lax.dynamic_index_in_dim(x, i, 0, False), np.int32(-13), 5),
}


@LAZY
@pytest.mark.parametrize("case", READS.values(), ids=READS)
def test_reads(case, wrap, sparse) -> None:
    function, index, want = case
    np.testing.assert_array_equal(wrap(function)(Concrete(sparse), index), want)


WRITES = {
    "update": lambda x, i: lax.dynamic_update_slice(x, np.ones(2, np.int8), (i,)),
    "at": lambda x, i: x.at[i + np.arange(2, dtype=np.int32)].set(1, mode="drop"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_land_at_the_end(write) -> None:
    """In memory that is given away, so that nothing is copied."""
    step, start = fxad.jit(write, donate_argnums=0), np.int32(-2)
    assert step.lower(fxad.ShapeDtypeStruct((LENGTH,), np.int8), start).plan.donated
    written = np.asarray(step(Concrete(np.zeros(LENGTH, np.int8)), start))
    assert written[[-3, -2, -1, 0, 1, 2]].tolist() == [0, 1, 1, 0, 0, 0]


def test_positions_are_wide_enough() -> None:
    long = fxad.ShapeDtypeStruct((LENGTH,), np.int8)
    for function, count in (
        (jnp.argmax, 1),
        (lambda x: lax.argmin(x, 0), 1),
        (jnp.argsort, 1),
        (lambda x: lax.top_k(x, 2)[1], 1),
        (lambda x: jnp.nonzero(x, size=3), 1),
        (lambda x: jnp.searchsorted(x, np.int8(3)), 1),
    ):
        found = fxad.tree.leaves(fxad.eval_shape(function, long))
        assert [v.dtype for v in found] == [np.int64] * count
    columns = fxad.eval_shape(lambda x: jnp.nonzero(x.reshape(2, -1), size=3), long)
    assert [c.dtype for c in columns] == [np.int32] * 2  # each axis is short enough
    assert dt.index_dtype(2**31 - 1) == np.int32 and dt.index_dtype(2**31) == np.int64


def test_positions_that_are_known() -> None:
    many = np.broadcast_to(np.int8(0), LENGTH)  # one byte, read LENGTH times
    assert int(fxad.jit(lambda i: jnp.ravel_multi_index((i, i), (2**20, 2**20)))(2**19)) == (
        2**19 * (2**20 + 1)
    )
    with pytest.raises(ShapeError, match="iota: int32 cannot count to the end"):
        fxad.eval_shape(lambda: OPS["iota"](dtype=dt.int32, shape=many.shape, axis=0))
