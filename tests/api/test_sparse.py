"""Sparse Jacobians and Hessians: values, patterns, numbers of passes."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.analysis.colouring import colour
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

X = np.random.default_rng(2).uniform(0.5, 2.0, 12)


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def check(f, x, passes=None, entries=None, mode=None):
    found = fxad.sparse_jacobian(f)(x)
    leaves = fxad.tree.leaves(fxad.jacfwd(f)(x))
    dense = np.concatenate([np.asarray(v).reshape(-1, np.size(x)) for v in leaves])
    np.testing.assert_allclose(found.todense(), dense, rtol=1e-12, atol=1e-13)
    assert found.shape == dense.shape
    if passes is not None:
        assert found.pattern.passes == passes, found
    if entries is not None:
        assert len(found.rows) == entries, found
    if mode is not None:
        assert found.pattern.mode == mode
    return found


def heat(u):
    padded = jnp.pad(u, 1)
    return u + 0.1 * (padded[2:] - 2 * u**2 + padded[:-2])


def grid(u):
    v = u.reshape(3, 4)
    return (v * jnp.roll(v, 1, axis=0) + jnp.roll(v, -1, axis=1)).ravel()


def test_stencils_need_as_many_passes_as_points() -> None:
    found = check(heat, X, passes=3, entries=34)
    assert "3 forward passes" in repr(found)
    check(grid, X)
    check(lambda u: heat(heat(u)), X, passes=5)
    check(lambda u: {"a": heat(u), "b": u[::3] * u[0]}, X)


def test_one_dense_row_goes_backward_and_one_dense_column_forward() -> None:
    check(lambda x: jnp.sum(jnp.sin(x)), X, passes=1, entries=12, mode="reverse")
    check(lambda x: x[3] * jnp.arange(1.0, 6.0), X, passes=1, entries=5, mode="forward")


def test_known_matrices_and_indices_are_looked_into() -> None:
    band = np.diag(np.arange(1.0, 13)) + np.diag(np.ones(11), 1)
    check(lambda x: jnp.tanh(band @ x), X, passes=2, entries=23)
    check(lambda x: x[np.array([3, 3, 0])] * 2, X, passes=1, entries=3)
    check(lambda x: jnp.zeros(20).at[np.array([4, 2, 4])].add(x[:3]), X, passes=1, entries=3)
    check(lambda x: jnp.where(np.arange(12) < 4, x, x[::-1]), X, entries=12)
    check(lambda x: x * np.array([1.0, 0, 0] * 4), X, entries=4)


def test_what_depends_on_the_point_is_not_taken_for_zero() -> None:
    def f(x):
        return jnp.sort(x) + x[jnp.argmax(x)] + jnp.where(x > 1, x**2, 0.0)

    found = fxad.sparse_jacobian(f)
    pattern = found.pattern(X)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(-1, 2, 12)
        dense = np.asarray(fxad.jacfwd(f)(x))
        np.testing.assert_allclose(found(x).todense(), dense, atol=1e-13)
        places = set(zip(pattern.rows.tolist(), pattern.cols.tolist(), strict=True))
        assert {tuple(p) for p in np.argwhere(dense).tolist()} <= places


def test_loops_branches_and_rules() -> None:
    def scanned(x):
        return lax.scan(lambda c, v: (c * 0.5 + v, c * v), 0.0, x)[1]

    def halves(x):
        return lax.cond(x[0] > 1, lambda x: x[:6] ** 2, lambda x: x[6:] * 3, x)

    check(scanned, X, entries=77)  # the first carry is 0
    check(halves, X)
    check(lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sin(v), x), X, entries=12, passes=1)
    check(lambda x: lax.while_loop(lambda v: v[0] < 9, lambda v: v * 2, x), X)
    check(fxad.jit(fxad.checkpoint(heat)), X, passes=3)
    check(fxad.vmap(lambda v: v**2 * 3), X, passes=1)

    @fxad.custom_jvp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defjvp(lambda p, t: (jnp.round(p[0]), t[0]))
    check(straight_through, X, passes=1, entries=12)

    @fxad.custom_vjp
    def doubled(x):
        return x * 2

    doubled.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    check(doubled, X, passes=1, mode="forward")


def test_hessians_of_chains_are_banded() -> None:
    def rosenbrock(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    found = fxad.sparse_hessian(rosenbrock)(X)
    np.testing.assert_allclose(found.todense(), fxad.hessian(rosenbrock)(X), rtol=1e-12)
    assert found.pattern.passes == 3
    assert len(found.rows) == 12 + 2 * 11


def test_arguments_may_be_trees_and_patterns_given() -> None:
    def f(p, scale):
        return jnp.concatenate([p["a"] * scale, p["b"].ravel()[:3] * p["a"][:3]])

    p = {"a": X[:5], "b": X[:6].reshape(2, 3)}
    found = fxad.sparse_jacobian(f)(p, 2.0)
    dense = fxad.jacfwd(f)(p, 2.0)
    wanted = np.concatenate([dense["a"], np.asarray(dense["b"]).reshape(8, 6)], axis=1)
    np.testing.assert_allclose(found.todense(), wanted, rtol=1e-12)
    again = fxad.sparse_jacobian(f, sparsity=found.pattern)(p, 2.0)
    np.testing.assert_array_equal(again.data, found.data)
    with pytest.raises(ShapeError, match="sparsity"):
        fxad.sparse_jacobian(heat, sparsity=found.pattern)(X)


def test_under_jit_and_vmap() -> None:
    @fxad.jit
    def data(x):
        return fxad.sparse_jacobian(heat)(x).data

    np.testing.assert_allclose(data(X), fxad.sparse_jacobian(heat)(X).data, rtol=1e-13)
    rows = fxad.vmap(data)(np.stack([X, X * 2]))
    np.testing.assert_allclose(rows[1], data(X * 2), rtol=1e-13)


def test_nothing_to_differentiate_and_bad_requests() -> None:
    found = fxad.sparse_jacobian(lambda x: jnp.ones(3))(X)
    assert (found.pattern.passes, found.shape) == (0, (3, 12))
    assert not np.asarray(found.todense()).any()
    with pytest.raises(TypeMismatch, match="only floats"):
        fxad.sparse_jacobian(lambda x: x)(np.arange(3))
    with pytest.raises(BadArgument, match="argnums"):
        fxad.sparse_jacobian(heat, argnums=2)(X)


def random_quadratic(seed: int):
    """A function whose Hessian has a random symmetric pattern, and that Hessian at X."""
    draws = np.random.default_rng(seed)
    i, j = np.nonzero(np.triu(draws.uniform(size=(12, 12)) < 0.12))

    def f(x):
        return jnp.sum(jnp.sin(x[i] * x[j]) + x[i] ** 2 * x[j])

    return f


@pytest.mark.parametrize("seed", range(8))
def test_hessians_of_random_patterns_use_their_symmetry(seed: int) -> None:
    f = random_quadratic(seed)
    found = fxad.sparse_hessian(f)(X)
    np.testing.assert_allclose(found.todense(), fxad.hessian(f)(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        fxad.jit(lambda x: fxad.sparse_hessian(f)(x).data)(X), found.data, rtol=1e-10, atol=1e-12
    )
    assert found.pattern.passes <= fxad.sparse_jacobian(fxad.grad(f)).pattern(X).passes


def test_arrows_take_two_passes_forward_and_mirrored() -> None:
    def arrow(x):
        return x[0] ** 2 * jnp.sum(x[1:] ** 3)

    found = fxad.sparse_hessian(arrow)(X)
    np.testing.assert_allclose(found.todense(), fxad.hessian(arrow)(X), rtol=1e-12)
    assert (found.pattern.passes, found.pattern.mode) == (2, "symmetric")
    assert len(found.rows) == 12 + 2 * 11


@pytest.mark.parametrize("density", [0.0, 0.02, 0.2, 1.0])
def test_colours_are_the_first_that_no_row_has_yet(density: float) -> None:
    random = np.random.default_rng(int(100 * density))
    rows, cols = np.nonzero(random.random((40, 70)) < density)
    found = colour(rows, cols, 70)
    members = [set(rows[cols == c].tolist()) for c in range(70)]
    want: dict[int, int] = {}
    for column in sorted(range(70), key=lambda c: -len(members[c])):
        met = {want[other] for other in want if members[other] & members[column]}
        want[column] = next(n for n in range(71) if n not in met)
    assert found.tolist() == [want[c] for c in range(70)]


# ---------------------------------------------------------------- products, SciPy


def difference(x):
    return x[1:] * x[:-1] ** 2


def test_products_and_transposes_are_those_of_the_dense_matrix() -> None:
    m = fxad.sparse_jacobian(difference)(X)
    dense = np.asarray(m.toarray())
    assert dense.shape == (11, 12) and m.nnz == 22
    u, v = np.arange(11.0), np.arange(12.0)
    np.testing.assert_allclose(m @ v, dense @ v, rtol=1e-13)
    np.testing.assert_allclose(u @ m, u @ dense, rtol=1e-13)
    np.testing.assert_allclose(jnp.asarray(u) @ m, u @ dense, rtol=1e-13)
    np.testing.assert_allclose(m.T @ u, dense.T @ u, rtol=1e-13)
    np.testing.assert_array_equal(m.T.toarray(), dense.T)
    assert (np.lexsort((m.T.cols, m.T.rows)) == np.arange(22)).all(), "sorted by row"
    wide = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(m @ wide, dense @ wide, rtol=1e-12)
    np.testing.assert_allclose(wide.T @ m.T, wide.T @ dense.T, rtol=1e-12)
    assert repr(m.T) == "SparseMatrix(f64[22], 22 of 12 x 11)"
    with pytest.raises(ShapeError, match=r"11 x 12, x is f64\[11\]"):
        m @ u
    with pytest.raises(ShapeError, match="x @ SparseMatrix"):
        v @ m
    with pytest.raises(fxad.errors.TypeMismatch, match="two sparse"):
        m @ m.T


def test_products_are_compiled_and_differentiated() -> None:
    def f(x, v):
        return jnp.sum((fxad.sparse_jacobian(difference)(x) @ v) ** 2)

    def g(x, v):
        return jnp.sum((fxad.jacfwd(difference)(x) @ v) ** 2)

    v = np.linspace(0, 1, 12)
    for one, other in zip(fxad.jit(fxad.grad(f, (0, 1)))(X, v), fxad.grad(g, (0, 1))(X, v),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_scipy_in_and_out() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    m = fxad.sparse_jacobian(difference)(X)
    there = m.to_scipy()
    np.testing.assert_array_equal(there.toarray(), m.toarray())
    for form in ("csr", "csc", "coo", "lil", "dia"):
        back = fxad.SparseMatrix.from_scipy(there.asformat(form))
        np.testing.assert_array_equal(back.toarray(), m.toarray())
        assert (back.rows == m.rows).all() and (back.cols == m.cols).all()
    twice = sparse.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), (2, 2))
    found = fxad.SparseMatrix.from_scipy(twice)
    np.testing.assert_array_equal(found.toarray(), [[0, 3], [3, 0]])
    assert twice.nnz == 3, "the argument is left alone"
    assert found.pattern.passes == 1
    with pytest.raises(fxad.errors.TypeMismatch, match="ndarray is no matrix of scipy"):
        fxad.SparseMatrix.from_scipy(np.eye(2))
    with pytest.raises(fxad.errors.TypeMismatch, match="traced"):
        fxad.jit(lambda x: fxad.sparse_jacobian(difference)(x).to_scipy())(X)
