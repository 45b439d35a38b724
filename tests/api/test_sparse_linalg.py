"""fxad.scipy.sparse.linalg: solutions and their derivatives against dense solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy.sparse import linalg

R = np.random.default_rng(21)
N = 12
A = R.standard_normal((N, N)) + 6 * np.eye(N)
S = A @ A.T / N + np.eye(N)
B = R.standard_normal(N)
TIGHT = {"tol": 1e-12}


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_solutions_and_derivatives(name: str) -> None:
    matrix = S if name == "cg" else A
    solve = getattr(linalg, name)
    wanted = np.linalg.solve(matrix, B)
    np.testing.assert_allclose(solve(matrix, B, **TIGHT)[0], wanted, rtol=1e-8)
    product = lambda v: matrix @ v  # noqa: E731
    np.testing.assert_allclose(solve(product, B, x0=B, **TIGHT)[0], wanted, rtol=1e-8)
    inverse = lambda v: v / np.diag(matrix)  # noqa: E731
    np.testing.assert_allclose(solve(product, B, M=inverse, **TIGHT)[0], wanted, rtol=1e-8)
    weights = R.standard_normal(N)

    def loss(m: Any, b: Any) -> Any:
        return (
            weights @ solve(lambda v: (m + m.T) / 2 @ v if name == "cg" else m @ v, b, **TIGHT)[0]
        )

    dm, db = fxad.jit(fxad.grad(loss, argnums=(0, 1)))(matrix, B)
    exact = np.linalg.solve(matrix.T, weights)
    np.testing.assert_allclose(db, exact, rtol=1e-7)
    slope = -np.outer(exact, wanted)
    np.testing.assert_allclose(
        dm, (slope + slope.T) / 2 if name == "cg" else slope, rtol=1e-6, atol=1e-9
    )
    way = R.standard_normal(N)
    _, forward = fxad.jvp(lambda b: solve(matrix, b, **TIGHT)[0], (B,), (way,))
    np.testing.assert_allclose(forward, np.linalg.solve(matrix, way), rtol=1e-7)
    rows = fxad.vmap(lambda b: solve(matrix, b, **TIGHT)[0])(np.stack([B, way]))
    np.testing.assert_allclose(rows, np.linalg.solve(matrix, np.stack([B, way]).T).T, rtol=1e-7)


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_complex_systems_and_trees(name: str) -> None:
    z = A + 1j * R.standard_normal((N, N))
    z = z @ z.conj().T / N + np.eye(N) if name == "cg" else z
    b = B + 1j * B[::-1]
    np.testing.assert_allclose(
        getattr(linalg, name)(z, b, **TIGHT)[0], np.linalg.solve(z, b), rtol=1e-8
    )
    tree = {"x": B[:3], "y": B[3:4]}
    twice = lambda t: {"x": 2 * t["x"], "y": 4 * t["y"]}  # noqa: E731
    out, info = getattr(linalg, name)(twice, tree, **TIGHT)
    np.testing.assert_allclose(out["x"], B[:3] / 2)
    np.testing.assert_allclose(out["y"], B[3:4] / 4)
    assert info == (0 if name == "gmres" else None)


def test_limits_and_wrong_arguments() -> None:
    rough = linalg.cg(S, B, tol=0.0, maxiter=1)[0]
    assert np.linalg.norm(S @ np.asarray(rough) - B) > 1e-3
    np.testing.assert_array_equal(linalg.cg(S, B, atol=1e9)[0], np.zeros(N))
    short, failed = linalg.gmres(A, B, restart=3, tol=1e-10)
    np.testing.assert_allclose(short, np.linalg.solve(A, B), rtol=1e-7)
    assert (failed, linalg.gmres(A, B, np.full(N, np.nan))[1]) == (0, -1)
    for solve in (linalg.cg, linalg.bicgstab, linalg.gmres):
        np.testing.assert_array_equal(solve(A, np.zeros(N))[0], np.zeros(N))
    with pytest.raises(BadArgument, match="cg: the operator"):
        linalg.cg(B, B)
    with pytest.raises(ShapeError, match="x0 has 3 numbers"):
        linalg.cg(S, B, np.ones(3))
    with pytest.raises(BadArgument, match="restart"):
        linalg.gmres(A, B, restart=0)
