"""einsum: diagonals, orders of contraction, and paths."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument

RNG = np.random.default_rng(3)


def randn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("text", ["aab->ab", "baa->ba", "aaa->a", "abab->ba", "aabb->b", "aabc->c"])
def test_diagonals(text):
    x = randn(*[{"a": 3, "b": 2, "c": 4}[c] for c in text.partition("->")[0]])
    expected = np.einsum(text, x)
    np.testing.assert_allclose(jnp.einsum(text, x), expected, rtol=1e-6)
    np.testing.assert_allclose(fxad.jit(lambda x: jnp.einsum(text, x))(x), expected, rtol=1e-6)
    fxad.check_grads(lambda x: jnp.einsum(text, x), (x,), order=1)


@pytest.mark.parametrize("text", ["ik,ki->i", "ik,ik->i", "ki,ki->i", "ki,ik->i"])
def test_matrices_contracted_row_by_row(text):
    x, y = (randn(*[{"i": 3, "k": 2}[c] for c in term]) for term in text[:-3].split(","))
    expected = np.einsum(text, x, y)
    np.testing.assert_allclose(jnp.einsum(text, x, y), expected, rtol=1e-5)
    compiled = fxad.jit(lambda x, y: jnp.einsum(text, x, y))
    np.testing.assert_allclose(compiled(x, y), expected, rtol=1e-5)


def test_a_diagonal_does_not_touch_what_is_beside_it():
    x = np.array([[[np.inf, np.nan], [np.inf, 1.0]]], np.float32)
    assert jnp.einsum("baa->ba", x).tolist() == [[np.inf, 1.0]]


OPERANDS = randn(3, 4), randn(4, 2), randn(2, 5), randn(5, 3)
TEXT = "ij,jk,kl,lm->im"


@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal", "auto"])
def test_orders_agree(optimize):
    expected = np.linalg.multi_dot(OPERANDS)
    got = jnp.einsum(TEXT, *OPERANDS, optimize=optimize)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    path, text = jnp.einsum_path(TEXT, *OPERANDS, optimize=optimize)
    assert all(len(step) == 2 for step in path)
    assert len(path) == 3
    assert TEXT in text
    along = fxad.jit(lambda *xs: jnp.einsum(TEXT, *xs, optimize=path))(*OPERANDS)
    np.testing.assert_allclose(along, expected, rtol=1e-5)


def test_a_path_says_what_is_contracted():
    path = [(2, 3), (1, 2), (0, 1)]  # from the right
    shown = str(fxad.make_ir(lambda *xs: jnp.einsum(TEXT, *xs, optimize=path))(*OPERANDS))
    shapes = [
        line.split(":")[1].split("=")[0].strip() for line in shown.splitlines() if "dot(" in line
    ]
    assert [sorted(s) for s in shapes] == [sorted(s) for s in ["f32[2,3]", "f32[4,3]", "f32[3,3]"]]


def test_one_operand_needs_no_path():
    for optimize in (False, "greedy"):
        path, _ = jnp.einsum_path("ii->i", np.eye(3), optimize=optimize)
        assert jnp.einsum("ii->i", np.eye(3), optimize=path).tolist() == [1.0, 1.0, 1.0]


def test_what_a_path_cannot_be():
    with pytest.raises(NotImplementedError, match=r"3 or more operands.*\(0, 1, 2\)"):
        jnp.einsum("i,i,i->i", *[np.ones(2)] * 3, optimize=[(0, 1, 2)])
    with pytest.raises(BadArgument, match="'greedy', 'optimal' or False, not 'best'"):
        jnp.einsum_path("i->i", np.ones(2), optimize="best")
