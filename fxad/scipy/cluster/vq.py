"""`fxad.scipy.cluster.vq`: vector quantisation."""

from __future__ import annotations

from typing import Any

from fxad.core.errors import ShapeError
from fxad.numpy import argmin, asarray, int32, take_along_axis
from fxad.numpy.core import promoted
from fxad.numpy.linalg import norm
from fxad.trace.array import Array

__all__ = ["vq"]


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """(the number of the nearest code, the distance to it) of every observation.

    obs: [n, features], or [n] numbers; code_book: [codes, features], or [codes]. Distances are
    Euclidean, and have derivatives in both. `check_finite` is SciPy's and changes nothing.

    >>> from fxad.scipy.cluster.vq import vq
    >>> vq(jnp.array([[0.0, 1.0], [5.0, 5.0]]), jnp.array([[0.0, 0.0], [4.0, 5.0]]))
    (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    points, codes = asarray(obs), asarray(code_book)
    if points.ndim != codes.ndim or points.ndim not in (1, 2):
        raise ShapeError(
            f"vq: observations and codes must both be vectors or both be matrices, got shapes "
            f"{points.shape} and {codes.shape}"
        )
    if points.ndim == 1:
        points, codes = points[:, None], codes[:, None]
    if points.shape[1] != codes.shape[1] or not codes.shape[0]:
        raise ShapeError(
            f"vq: observations of {points.shape[1]} features need codes of as many, and at least "
            f"one code; got shape {codes.shape}"
        )
    points, codes = promoted("vq", points, codes, inexact=True, numbers=False, broadcast=False)
    apart = norm(points[:, None, :] - codes[None], axis=-1)
    nearest = argmin(apart, axis=1)
    return nearest.astype(int32), take_along_axis(apart, nearest[:, None], axis=1)[:, 0]
