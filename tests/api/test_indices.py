"""`debug.indices`: indices out of range are found where they are used, under every transform."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import debug, lax
from fxad.core.errors import NumericsError

X = np.arange(10, dtype=np.float32)
M = np.ones((4, 3), np.float32)
NUMBERS = lax.GatherDimensionNumbers((), (0,), (0,))
UPDATES = lax.ScatterDimensionNumbers((), (0,), (0,))


def at(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


USES = {
    "x[i]": (lambda i: jnp.asarray(X)[i], at(3, 10, -11), 10),
    "below": (lambda i: jnp.asarray(X)[i], at(-11), -11),
    "rows": (lambda i: jnp.asarray(M)[:, i], at(0, 3), 3),
    "an embedding": (lambda i: jnp.asarray(M)[i], at(0, 50257), 50257),
    "take": (lambda i: jnp.take(M, i, axis=1), at(-4), -4),
    "take_along_axis": (lambda i: jnp.take_along_axis(X, i, 0), at(11), 11),
    "put_along_axis": (
        lambda i: jnp.put_along_axis(X, i, np.float32(1), 0, inplace=False),
        at(11),
        11,
    ),
    "set": (lambda i: jnp.asarray(X).at[i].set(1.0), at(3, 77), 77),
    "add": (lambda i: jnp.asarray(X).at[i].add(1.0), at(77), 77),
    "get": (lambda i: jnp.asarray(X).at[i].get(), at(77), 77),
    "dynamic_slice": (lambda i: lax.dynamic_slice(X, (i,), (3,)), np.int32(8), 8),
    "from the end": (lambda i: lax.dynamic_slice(X, (i,), (3,)), np.int32(-2), -2),
    "dynamic_update": (lambda i: lax.dynamic_update_slice(X, X[:2], (i,)), np.int32(9), 9),
    "lax.gather": (lambda i: lax.gather(X, i[:, None], NUMBERS, (1,)), at(1, 10), 10),
    "lax.scatter": (lambda i: lax.scatter(X, i[:, None], X[:2], UPDATES), at(1, 10), 10),
    "loss": (lambda i: fxad.nn.linear_cross_entropy(M, M, i), at(1, -1, 2, 4), 4),
}
WRAPS = {
    "eager": lambda f: f,
    "jit": fxad.jit,
    "vmap": lambda f: lambda i: fxad.vmap(f)(jnp.stack([i * 0, i])),
    "scan": lambda f: lambda i: lax.scan(lambda c, j: (c, f(j)), 0.0, jnp.asarray(i)[None])[1],
    "grad": lambda f: lambda i: fxad.grad(lambda x: jnp.sum(f(i) * x))(1.0),
    "jit of grad": lambda f: fxad.jit(lambda i: fxad.grad(lambda x: jnp.sum(f(i) * x))(1.0)),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_out_of_range_is_found(use, wrap) -> None:
    function, index, wrong = use
    run = wrap(function)
    run(index)  # safe, and silent
    with debug.indices():
        with pytest.raises(NumericsError, match=rf"index {wrong} .*axis .*\(test_indices.py:\d+\)"):
            run(index)
        run(index * 0)
    run(index)


def test_the_line_the_axis_and_the_first_of_them_are_named() -> None:
    def lookup(table, ids):
        shifted = ids + 1
        return table[shifted]

    line = lookup.__code__.co_firstlineno + 2
    said = rf"index 10 .* axis 0 of length 10, at \[0, 1\] of 2 such \(test_indices.py:{line}\)"
    with debug.indices(), pytest.raises(NumericsError, match=said):
        fxad.jit(lookup)(X, np.array([[0, 9], [10, 4]]))


def test_what_was_chosen_is_no_fault() -> None:
    i = at(-20, 3, 20)
    with debug.indices():
        for mode in ("clip", "wrap", "fill"):
            jnp.take(X, i, mode=mode)
        jnp.asarray(X).at[i].get(mode="fill", fill_value=0)
        jnp.asarray(X).at[i].set(1.0, mode="drop")
        jnp.nonzero(X > 7, size=3)
        jnp.searchsorted(X, np.float32([-1, 30]))
        jnp.bincount(at(1, 9), length=4)
        jnp.unique(at(1, 1, 9), size=5)
        lax.top_k(X, 3)
        fxad.nn.linear_cross_entropy(M, M, at(1, -1, 2, -1))


def test_with_nans_both_are_found() -> None:
    with debug.nans(), debug.indices():
        with pytest.raises(NumericsError, match="log made"):
            jnp.log(X - 1)
        with pytest.raises(NumericsError, match="index 10"):
            jnp.asarray(X)[at(10)]
    with debug.indices(), debug.nans(), pytest.raises(NumericsError, match="index 10"):
        jnp.asarray(X)[at(10)]
    assert float(jnp.asarray(X)[at(10)][0]) == 9.0  # clamped again


def test_a_compiled_lookup_of_one_scalar() -> None:
    """A known scalar is an error anyway; to compiled code it is an array like any other."""
    lookup = fxad.jit(lambda x, i: x[i])
    assert float(lookup(X, np.int32(12))) == 9.0
    with debug.indices(), pytest.raises((NumericsError, IndexError), match="index 12"):
        lookup(X, np.int32(12))
