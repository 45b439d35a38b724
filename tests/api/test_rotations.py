"""fxad.scipy.spatial.transform: matrices and their products; SciPy and JAX (peers)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.scipy.spatial.transform import Rotation, Slerp

R = np.random.default_rng(2)
MANY = R.standard_normal((12, 4))
VECTORS = R.standard_normal((12, 3))
ORDERS = ["".join(p) for p in itertools.product("xyz", repeat=3) if p[0] != p[1] != p[2]]


def turn(axis, angle):
    """The matrix of a rotation round one axis."""
    i, j = [n for n in range(3) if n != axis]
    m = np.eye(3)
    sign = -1 if axis == 1 else 1
    m[i, i] = m[j, j] = math.cos(angle)
    m[i, j], m[j, i] = -sign * math.sin(angle), sign * math.sin(angle)
    return m


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def test_every_form_leads_back():
    one = Rotation.from_quat(MANY)
    matrix = np.asarray(one.as_matrix())
    np.testing.assert_allclose(
        matrix @ matrix.transpose(0, 2, 1), np.eye(3) + 0 * matrix, atol=1e-12
    )
    assert (np.linalg.det(matrix) > 0).all() and len(one) == 12 and not one.single
    for again in (
        Rotation.from_matrix(matrix),
        Rotation.from_rotvec(one.as_rotvec()),
        Rotation.from_rotvec(one.as_rotvec(degrees=True), degrees=True),
        Rotation.from_mrp(one.as_mrp()),
        Rotation.from_quat(one.as_quat(canonical=True) * 3),
        one.inv().inv(),
        one * Rotation.identity(),
    ):
        np.testing.assert_allclose(again.as_matrix(), matrix, atol=1e-12)
        np.testing.assert_allclose(again.magnitude(), one.magnitude(), atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(one.as_rotvec(), axis=1), one.magnitude())
    half_turns = np.stack([2 * np.outer(v, v) - np.eye(3) for v in np.eye(3)])
    np.testing.assert_allclose(Rotation.from_matrix(half_turns).as_matrix(), half_turns, atol=1e-12)
    first = one.as_quat(scalar_first=True)
    np.testing.assert_array_equal(first, np.roll(np.asarray(one.quat), 1, axis=1))
    tiny = Rotation.from_rotvec(jnp.array([1e-9, 0, -2e-5]))
    np.testing.assert_allclose(tiny.as_rotvec(), [1e-9, 0, -2e-5], rtol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_euler_angles(order):
    angles = R.uniform(-1.5, 1.5, (5, 3))
    if order[0] == order[2]:
        angles[:, 1] = abs(angles[:, 1]) + 0.01
    turns = [[turn("xyz".index(a), x) for a, x in zip(order, row, strict=True)] for row in angles]
    fixed = np.stack([c @ b @ a for a, b, c in turns])
    moving = np.stack([a @ b @ c for a, b, c in turns])
    for seq, matrix in ((order, fixed), (order.upper(), moving)):
        one = fxad.jit(lambda x, seq=seq: Rotation.from_euler(seq, x))(angles)
        np.testing.assert_allclose(one.as_matrix(), matrix, atol=1e-12)
        np.testing.assert_allclose(one.as_euler(seq), angles, atol=1e-9)
        for end in (0.0, math.pi) if order[0] == order[2] else (-math.pi / 2, math.pi / 2):
            edge = Rotation.from_euler(seq, [0.4, end, -0.7])
            found = edge.as_euler(seq)
            assert float(found[2]) == 0
            again = Rotation.from_euler(seq, found).as_matrix()
            np.testing.assert_allclose(again, edge.as_matrix(), atol=1e-7)


def test_rotations_turn_vectors():
    one = Rotation.from_quat(MANY)
    expected = np.einsum("nij,nj->ni", one.as_matrix(), VECTORS)
    np.testing.assert_allclose(one.apply(VECTORS), expected)
    np.testing.assert_allclose(one.apply(expected, inverse=True), VECTORS)
    np.testing.assert_allclose(one[3].apply(VECTORS)[3], expected[3])
    np.testing.assert_allclose(one.apply(VECTORS[3])[3], expected[3])
    both = (one[0] * one[1:3]).as_matrix()
    np.testing.assert_allclose(both, one[0].as_matrix() @ one[1:3].as_matrix(), atol=1e-12)
    joined = Rotation.concatenate([one[0], one[1:]])
    np.testing.assert_array_equal(joined.quat, one.quat)
    lanes = fxad.vmap(lambda r, v: r.apply(v))(one, VECTORS)
    np.testing.assert_allclose(lanes, expected)
    assert Rotation.identity(2).quat.shape == (2, 4)
    drawn = Rotation.random(fxad.random.key(0), 5)
    np.testing.assert_allclose(np.linalg.norm(drawn.quat, axis=1), 1, rtol=1e-6)


def test_rotations_have_derivatives_at_rest_too():
    def moved(v, x):
        return Rotation.from_rotvec(v).apply(x)

    for v in (jnp.array([0.3, -0.2, 0.5]), jnp.array([1e-5, 0, 0])):
        fxad.check_grads(moved, (v, jnp.array([1.0, 2, 3])), order=1)
    at_rest = fxad.jacobian(moved)(jnp.zeros(3), jnp.array([1.0, 2, 3]))
    np.testing.assert_allclose(at_rest, [[0, 3, -2], [-3, 0, 1], [2, -1, 0]], atol=1e-12)
    back = fxad.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(jnp.zeros(3))
    np.testing.assert_allclose(back, np.eye(3), atol=1e-12)


def test_means_and_ways_between():
    axis = np.array([1.0, 2, 2]) / 3
    ends = Rotation.from_rotvec(np.outer([0.2, 1.0, 1.4], axis))
    assert float(
        abs(ends[:2].mean().quat @ Rotation.from_rotvec(0.6 * axis).quat)
    ) == pytest.approx(1)
    heavy = ends.mean([1.0, 0, 0])
    assert float(abs(heavy.quat @ ends[0].quat)) == pytest.approx(1)
    way = Slerp.init(jnp.array([0.0, 2.0, 3.0]), ends)
    found = fxad.jit(lambda way, t: way(t).as_rotvec())(way, jnp.array([0.0, 0.5, 2.0, 2.5, 3.0]))
    np.testing.assert_allclose(found, np.outer([0.2, 0.4, 1.0, 1.2, 1.4], axis), atol=1e-12)
    assert way(1.0).single


def test_rotations_of_bad_input():
    one = Rotation.identity()
    for make, error, said in [
        (lambda: Rotation.from_quat([1.0, 2, 3]), ShapeError, r"\[..., 4\]"),
        (lambda: Rotation.from_matrix(np.ones((4, 3))), ShapeError, r"\[..., 3, 3\]"),
        (lambda: Rotation.from_euler("xxz", [1, 2, 3]), BadArgument, "in a row"),
        (lambda: Rotation.from_euler("xYz", [1, 2, 3]), BadArgument, "fixed"),
        (lambda: Rotation.from_euler("xyz", [1, 2]), ShapeError, r"\[..., 3\]"),
        (lambda: one.as_euler("xy"), BadArgument, "three"),
        (lambda: len(one), TypeMismatch, "single"),
        (lambda: one[0], TypeMismatch, "single"),
        (lambda: one.mean([1.0, 2]), ShapeError, "weight"),
        (lambda: Slerp.init([0.0], one), BadArgument, "at least two"),
        (lambda: Slerp.init([0.0], Rotation.identity(2)), ShapeError, "a time"),
        (lambda: one * 2, TypeError, "unsupported"),
    ]:
        with pytest.raises(error, match=said):
            make()


@pytest.mark.peers
def test_like_scipy():
    peer = pytest.importorskip("scipy.spatial.transform")
    ours, theirs = Rotation.from_quat(MANY), peer.Rotation.from_quat(MANY)
    for name in ("as_matrix", "as_rotvec", "as_mrp", "magnitude"):
        found, wanted = getattr(ours, name)(), getattr(theirs, name)()
        np.testing.assert_allclose(found, wanted, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(ours.as_quat(canonical=True), theirs.as_quat(canonical=True))
    for order in [*ORDERS, *(o.upper() for o in ORDERS)]:
        wanted = theirs.as_euler(order)
        np.testing.assert_allclose(ours.as_euler(order), wanted, atol=1e-9, err_msg=order)
    weights = R.uniform(0.1, 1, 12)
    mean = theirs.mean(weights).as_matrix()
    np.testing.assert_allclose(ours.mean(weights).as_matrix(), mean, atol=1e-9)
    one = Rotation.from_euler("zx", [30.0, -70.0], degrees=True).as_matrix()
    np.testing.assert_allclose(
        one, peer.Rotation.from_euler("zx", [30, -70], degrees=True).as_matrix()
    )
    times, at = np.arange(12.0), R.uniform(0, 11, 20)
    wanted = peer.Slerp(times, theirs)(at).as_matrix()
    np.testing.assert_allclose(Slerp.init(times, ours)(at).as_matrix(), wanted, atol=1e-9)
