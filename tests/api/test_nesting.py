"""Programs nested more deeply than Python's stack: told, and done where the limit is raised."""

import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import DepthError


def nested(depth):
    """x * 1.01**depth for x > 0, by branches in branches."""

    def inside(x, left=depth):
        if not left:
            return x
        return lax.cond(x > 0, lambda v: inside(v * 1.01, left - 1), lambda v: v * 2, x)

    return inside


@pytest.mark.parametrize("depth", [60, 90, 300])
@pytest.mark.parametrize(
    "wrap",
    [
        fxad.jit,
        fxad.grad,
        lambda f: lambda x: fxad.vmap(f)(x[None]),
        lambda f: lambda x: fxad.jvp(f, (x,), (x,)),
        lambda f: fxad.jit(fxad.grad(fxad.grad(f))),
    ],
)
def test_too_deep_is_told(wrap, depth):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        with pytest.raises(DepthError, match=r"400 nested calls .*setrecursionlimit.*test_nesting"):
            wrap(nested(depth))(jnp.float32(2))
    finally:
        sys.setrecursionlimit(before)
    assert fxad.grad(jnp.sin)(0.0) == 1  # no trace is left open


def test_a_function_that_calls_itself_without_end():
    def endless(x):
        return fxad.checkpoint(endless)(x) + 1

    with pytest.raises(DepthError, match="Unbounded recursion ends in this error too"):
        fxad.jit(endless)(1.0)


def test_deep_programs_work_where_the_limit_is_raised():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        found = fxad.jit(fxad.grad(nested(60)))(jnp.float32(2))
    finally:
        sys.setrecursionlimit(before)
    np.testing.assert_allclose(found, 1.01**60, rtol=1e-5)
