"""Branches under vmap: lanes that take their own branch, or a select; and what reverse keeps."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.types import ArrayType
from fxad.ops.programs.host import call_host

P, X = np.array([True, False, True]), np.array([0.5, 1.5, 2.5], np.float32)


def printed(f) -> str:
    return str(fxad.make_ir(f)(P, X))


@pytest.mark.parametrize("effects", [(), ("host",)], ids=["pure", "effect"])
def test_the_host_call_of_a_branch_not_taken_never_fires(effects) -> None:
    seen: list[float] = []

    def doubled(x):
        def run(x):
            seen.append(float(x))
            return (np.asarray(2 * x),)

        return call_host(run, "doubled", [x], (ArrayType(np.dtype("f4"), ()),), effects)[0]

    f = fxad.vmap(lambda p, x: lax.cond(p, doubled, lambda x: x + 1, x))
    for run in (f, fxad.jit(f)):
        seen.clear()
        np.testing.assert_array_equal(run(P, X), np.where(P, 2 * X, X + 1))
        assert seen == [0.5, 2.5]
    assert "cond_lane_by_lane" in printed(f)


def test_a_loop_that_would_never_end_does_not_run_for_other_lanes() -> None:
    def halve(x):  # endless for x <= 0
        return lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, x)

    f = fxad.vmap(lambda p, x: lax.cond(p, halve, lambda x: x, x))
    x = np.array([0.5, -1.0, 2.5], np.float32)
    for g in (f, fxad.grad(lambda p, x: f(p, x).sum(), 1), fxad.vmap(fxad.grad(f_one, 1))):
        for run in (g, fxad.jit(g)):
            assert np.isfinite(run(P, x)).all()
    np.testing.assert_array_equal(fxad.jit(fxad.vmap(fxad.grad(f_one, 1)))(P, x), [256, 1, 64])
    assert "cond_lane_by_lane" in printed(f)


def f_one(p, x):
    double = lambda x: lax.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, x)  # noqa: E731
    return lax.cond(p, double, lambda x: x, x)


def test_cheap_branches_become_a_select_and_the_program_says_so() -> None:
    f = fxad.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x))
    assert "cond_by_select" in printed(f)
    assert "cond_lane_by_lane" not in printed(f)
    np.testing.assert_allclose(fxad.jit(f)(P, X), np.where(P, np.sin(X), np.cos(X)), rtol=1e-6)
    unmapped = fxad.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), (None, 0))
    assert "cond(" in str(fxad.make_ir(unmapped)(True, X))


def test_residuals_of_branches_share_their_places() -> None:
    """Three branches keep one, one and two arrays of a type: two are kept, not four."""

    def f(i, x):
        branches = [jnp.sin, jnp.exp, lambda x: jnp.sin(x) * jnp.exp(x)]
        return lax.switch(i, branches, x).sum()

    text = str(fxad.make_ir(lambda i, x: fxad.grad(f, 1)(i, x))(1, X))
    first = next(line for line in text.splitlines() if "cond(" in line)
    kept = first.split(" = cond(")[0].count("f32[3]")
    assert kept == 3  # the result, and two residuals
    for i, wanted in enumerate([np.cos(X), np.exp(X), (np.cos(X) + np.sin(X)) * np.exp(X)]):
        np.testing.assert_allclose(fxad.jit(fxad.grad(f, 1))(i, X), wanted, rtol=1e-5)


def test_only_the_taken_branch_runs() -> None:
    seen: list[str] = []

    def said(word, x):
        fxad.debug.callback(lambda: seen.append(word))
        return x * x

    def f(p, x):
        return lax.cond(p, lambda x: said("yes", x), lambda x: said("no", x), x)

    fxad.jit(fxad.grad(f, 1))(True, 2.0)
    fxad.jit(f)(False, 2.0)
    assert seen == ["yes", "no"]
