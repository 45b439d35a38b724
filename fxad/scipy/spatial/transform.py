"""`fxad.scipy.spatial.transform`: rotations in three dimensions, one or many at once.

turn = Rotation.from_euler("z", 90, degrees=True)
turn.apply(jnp.array([1.0, 0.0, 0.0]))            # [0, 1, 0]

A rotation is a quaternion of length 1, (x, y, z, w) with w = cos(angle / 2). Formulas: Shuster, "A
Survey of Attitude Representations" (1993).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from fxad import random
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.node_types import register_node
from fxad.numpy import (
    abs,
    arctan2,
    argmax,
    asarray,
    atleast_1d,
    atleast_2d,
    broadcast_to,
    clip,
    concatenate,
    cos,
    cross,
    diff,
    einsum,
    hypot,
    ones,
    searchsorted,
    select,
    sin,
    stack,
    sum,
    take_along_axis,
    where,
)
from fxad.numpy import linalg as la
from fxad.numpy.core import promoted
from fxad.trace.array import Array

__all__ = ["Rotation", "Slerp"]

_SMALL = 1e-3  # angles of which series are as exact
_DEGENERATE = 1e-7  # middle angles so near an end leave the other two undetermined


class Rotation:
    """A rotation, or an array of them. quat: [4] or [n, 4], of length 1. A pytree of it.

    >>> from fxad.scipy.spatial.transform import Rotation
    >>> turn = Rotation.from_rotvec(jnp.array([0.0, 0.0, jnp.pi / 2]))
    >>> turn.apply(jnp.array([1.0, 0.0, 2.0])).round(3)
    Array([0., 1., 2.], dtype=float32)
    >>> (turn * turn).magnitude().round(3)
    Array(3.142, dtype=float32)
    """

    __slots__ = ("quat",)

    def __init__(self, quat: Any) -> None:
        self.quat: Array = quat

    # ------------------------------------------------------------ how they are made

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Of quaternions (x, y, z, w) of any length but 0, [..., 4]."""
        return cls(_unit(_floats("from_quat", quat, 4)))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Of rotation matrices, [..., 3, 3]."""
        m = _floats("from_matrix", matrix, 3)
        if m.shape[-2:] != (3, 3):
            raise ShapeError(f"Rotation.from_matrix: expected [..., 3, 3], got shape {m.shape}")
        diagonal = [m[..., i, i] for i in range(3)]
        trace = diagonal[0] + diagonal[1] + diagonal[2]
        # Four ways to write one quaternion, times its own largest element: that divides best.
        ways = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = {
                i: 1 - trace + 2 * m[..., i, i],
                j: m[..., j, i] + m[..., i, j],
                k: m[..., k, i] + m[..., i, k],
                3: m[..., k, j] - m[..., j, k],
            }
            ways.append(stack([parts[n] for n in range(4)], -1))
        last = [
            m[..., (i + 2) % 3, (i + 1) % 3] - m[..., (i + 1) % 3, (i + 2) % 3] for i in range(3)
        ]
        ways.append(stack([*last, 1 + trace], -1))
        largest = argmax(stack([*diagonal, trace], -1), axis=-1)
        index = broadcast_to(largest[..., None, None], (*largest.shape, 1, 4))
        return cls(_unit(take_along_axis(stack(ways, -2), index, axis=-2)[..., 0, :]))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Of axes times angles, [..., 3]."""
        v = _floats("from_rotvec", rotvec, 3)
        if degrees:
            v = v * (math.pi / 180)
        square = sum(v * v, axis=-1, keepdims=True)
        small = square <= _SMALL**2
        angle = where(small, 1.0, square) ** 0.5
        series = 0.5 - square / 48 + square**2 / 3840
        w = where(small, 1 - square / 8 + square**2 / 384, cos(angle / 2))
        return cls(concatenate([v * where(small, series, sin(angle / 2) / angle), w], -1))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Of modified Rodrigues parameters, axes times tan(angle / 4), [..., 3]."""
        v = _floats("from_mrp", mrp, 3)
        square = sum(v * v, axis=-1, keepdims=True)
        return cls(concatenate([2 * v, 1 - square], -1) / (1 + square))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Of angles round up to three axes, [..., axes] (of one axis also a number): "xyz" are
        fixed axes, "XYZ" those of the body as it turns."""
        axes, moving = _axes(seq, (1, 2, 3))
        given = _floats("from_euler", atleast_1d(asarray(angles)), None)
        if given.shape[-1] != len(axes):
            if len(axes) > 1:
                raise ShapeError(
                    f"Rotation.from_euler: {seq!r} takes angles of shape [..., {len(axes)}], got "
                    f"shape {given.shape}"
                )
            given = given[..., None]
        if degrees:
            given = given * (math.pi / 180)
        found: Any = None
        for n, axis in enumerate(axes):
            half = given[..., n] / 2
            parts = [0 * half] * 3 + [cos(half)]
            parts[axis] = sin(half)
            turn = stack(parts, -1)
            if found is None:
                found = turn
            else:
                found = _product(found, turn) if moving else _product(turn, found)
        return cls(found)

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """No rotation, or `num` of them."""
        whole = asarray([0.0, 0.0, 0.0, 1.0], dtype)
        return cls(whole if num is None else broadcast_to(whole, (num, 4)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Uniformly distributed ones: one, or `num`."""
        return cls(_unit(random.normal(random_key, (4,) if num is None else (num, 4))))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """All of several in one."""
        return cls(concatenate([atleast_2d(one.quat) for one in rotations]))

    # ------------------------------------------------------------ what they are

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """(x, y, z, w), [..., 4]; with w first; and of the two that are the same rotation the one
        whose w, or first element that is not 0, is positive."""
        q = _canonical(self.quat) if canonical else self.quat
        return concatenate([q[..., 3:], q[..., :3]], -1) if scalar_first else q

    def as_matrix(self) -> Array:
        """[..., 3, 3]"""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        return stack([stack(row, -1) for row in rows], -2)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes times angles up to pi, [..., 3]."""
        q = where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        v, w = q[..., :3], q[..., 3:]
        square = sum(v * v, axis=-1, keepdims=True)
        small = square <= (_SMALL / 2) ** 2
        length = where(small, 1.0, square) ** 0.5
        found = v * where(small, 2 + square / 3, 2 * arctan2(length, w) / length)
        return found * (180 / math.pi) if degrees else found

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters, [..., 3]."""
        q = where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return q[..., :3] / (1 + q[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles round three axes (see `from_euler`), [..., 3] (Bernardes and Viollet, 2022).

        The first and the third lie in [-pi, pi], the second in [0, pi] where they are of one
        axis, else in [-pi/2, pi/2]. At an end of that the third is 0.
        """
        (i, j, k), moving = _axes(seq, (3,))
        if moving:
            i, k = k, i
        proper = i == k
        if proper:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        q = [self.quat[..., n] for n in range(4)]
        a, b, c, d = q[3], q[i], q[j], q[k] * sign
        if not proper:
            a, b, c, d = a - c, b + d, c + a, d - b
        middle = 2 * arctan2(hypot(c, d), hypot(a, b))
        half_sum, half_difference = arctan2(b, a), arctan2(d, c)
        low, high = abs(middle) <= _DEGENERATE, abs(middle - math.pi) <= _DEGENERATE
        first, third = half_sum - half_difference, half_sum + half_difference
        if moving:
            first, third = third, first
        alone = where(low, 2 * half_sum, 2 * half_difference * (1 if moving else -1))
        first = where(low | high, alone, first)
        third = where(low | high, 0.0, third)
        if not proper:
            first, third = (first * sign, third) if moving else (first, third * sign)
            middle = middle - math.pi / 2
        turns = [
            where(abs(x) > math.pi, x - 2 * math.pi * where(x > 0, 1.0, -1.0), x)
            for x in (first, middle, third)
        ]
        found = stack(turns, -1)
        return found * (180 / math.pi) if degrees else found

    def magnitude(self) -> Array:
        """Angles in [0, pi]."""
        v, w = self.quat[..., :3], self.quat[..., 3]
        return 2 * arctan2(la.norm(v, axis=-1), abs(w))

    @property
    def single(self) -> bool:
        """Whether this is one rotation, not an array of them."""
        return self.quat.ndim == 1

    # ------------------------------------------------------------ what is done with them

    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """Vectors [3] or [n, 3], turned by the rotation, or each by its own; or turned back."""
        given = _floats("apply", vectors, 3)
        letters = "...ji,...j->...i" if inverse else "...ij,...j->...i"
        return einsum(letters, self.as_matrix(), given)

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(concatenate([-self.quat[..., :3], self.quat[..., 3:]], -1))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation nearest to all of them, in the mean of squared chordal distances, which may
        have weights [n] (Markley, Cheng, Crassidis and Oshman, 2007)."""
        quats = atleast_2d(self.quat)
        shares = ones(len(quats), quats.dtype) if weights is None else asarray(weights)
        if shares.shape != quats.shape[:1]:
            raise ShapeError(
                f"Rotation.mean: there must be a weight for each of the {len(quats)} rotations, "
                f"got shape {shares.shape}"
            )
        _, vectors = la.eigh(einsum("ni,n,nj->ij", quats, shares, quats))
        return Rotation(vectors[:, -1])

    def __mul__(self, other: Rotation) -> Rotation:
        """This rotation after the other."""
        if not isinstance(other, Rotation):
            return NotImplemented
        return Rotation(_unit(_product(self.quat, other.quat)))

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeMismatch("a single Rotation has no elements")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeMismatch("a single Rotation has no length")
        return int(self.quat.shape[0])

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Rotation(quat={self.quat!r})"


class Slerp:
    """Rotations between given ones: at a constant rate round one axis from each to the next.

    >>> from fxad.scipy.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", jnp.array([0.0, 90.0]), degrees=True)
    >>> Slerp.init(jnp.array([0.0, 2.0]), ends)(0.5).as_rotvec(degrees=True).round(2)
    Array([ 0. ,  0. , 22.5], dtype=float32)
    """

    __slots__ = ("rotations", "rotvecs", "timedelta", "times")

    def __init__(self, times: Any, timedelta: Any, rotations: Rotation, rotvecs: Any) -> None:
        self.times, self.timedelta = times, timedelta
        self.rotations, self.rotvecs = rotations, rotvecs

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """times: increasing, [n]; rotations: as many, at least two."""
        (when,) = promoted("Slerp", asarray(times), inexact=True)
        if not isinstance(rotations, Rotation) or rotations.single or len(rotations) < 2:
            raise BadArgument("Slerp.init: rotations must be a Rotation of at least two")
        if when.shape != (len(rotations),):
            raise ShapeError(
                f"Slerp.init: there must be a time for each of the {len(rotations)} rotations, got "
                f"shape {when.shape}"
            )
        steps = rotations[:-1].inv() * rotations[1:]
        return cls(when, diff(when), rotations[:-1], steps.as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at some times, a number or [m]. Before the first and after the last time
        the nearest rate goes on."""
        when = asarray(times)
        at = clip(searchsorted(self.times, when, side="right") - 1, 0, len(self.timedelta) - 1)
        share = (when - self.times[at]) / self.timedelta[at]
        return self.rotations[at] * Rotation.from_rotvec(self.rotvecs[at] * share[..., None])


def _floats(method: str, given: Any, last: int | None) -> Array:
    value = asarray(given)
    if last is not None and value.shape[-1:] != (last,):
        raise ShapeError(
            f"Rotation.{method}: expected [..., {last}], got an array of shape {value.shape}"
        )
    (value,) = promoted(f"Rotation.{method}", value, inexact=True)
    return value


def _unit(q: Array) -> Array:
    return q / la.norm(q, axis=-1, keepdims=True)


def _product(p: Array, q: Array) -> Array:
    """The quaternion of the rotation p after q (Hamilton's product)."""
    v, a = p[..., :3], p[..., 3:]
    u, b = q[..., :3], q[..., 3:]
    vector = a * u + b * v + cross(v, u)
    scalar = a * b - sum(v * u, axis=-1, keepdims=True)
    return concatenate([vector, scalar], -1)


def _canonical(q: Array) -> Array:
    x, y, z, w = (q[..., i] for i in range(4))
    negative = select([w != 0, x != 0, y != 0], [w < 0, x < 0, y < 0], z < 0)
    return where(negative[..., None], -q, q)


def _axes(seq: str, counts: Sequence[int]) -> tuple[list[int], bool]:
    """Numbers of the axes, and whether they turn with the body."""
    valid = isinstance(seq, str) and re.fullmatch("[xyz]*|[XYZ]*", seq) and len(seq) in counts
    if not valid or any(a == b for a, b in itertools.pairwise(seq)):
        some = "three" if tuple(counts) == (3,) else "one to three"
        raise BadArgument(
            f"Rotation: seq must be {some} of the axes xyz (fixed) or XYZ (of the body), no two of "
            f"them the same in a row; got {seq!r}"
        )
    return ["xyz".index(letter) for letter in seq.lower()], seq.isupper()


register_node(Rotation, lambda r: ([r.quat], None), lambda _, children: Rotation(*children))
register_node(
    Slerp,
    lambda s: ([s.times, s.timedelta, s.rotations, s.rotvecs], None),
    lambda _, children: Slerp(*children),
)
