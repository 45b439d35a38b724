"""A tree of arrays as one vector, under the name of `jax.flatten_util`.

vector, unravel = ravel_pytree(params)      # unravel(vector) has the structure of params
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.flat import flatten_args
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.promotion import promote
from fxad.ir.program import OPS
from fxad.numpy.core import cast, value_of
from fxad.numpy.creation import zeros
from fxad.numpy.shaping import slice_axis
from fxad.trace.array import Array


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """(all elements of the leaves in one vector of their common dtype, the way back).

    The way back takes a vector of that length and dtype, raising ShapeError or TypeMismatch for
    others, and gives every leaf its own dtype.
    """
    leaves, tree = flatten_args(pytree, "ravel_pytree")
    if not leaves:
        return zeros((0,)), lambda vector: tree.unflatten([])
    types = [leaf.type for leaf in leaves]
    dtype = promote(*((t.dtype, False) for t in types))[0]
    total = sum(t.size for t in types)
    flat = [OPS["reshape"](cast(v, dtype), shape=(v.size,)) for v in leaves]
    vector = OPS["concatenate"](*flat, axis=0) if len(flat) > 1 else flat[0]

    def unravel(vector: Any) -> Any:
        value = value_of(vector, "unravel")
        if value.shape != (total,):
            raise ShapeError(f"unravel: expected a vector of {total} elements, got {value.type}")
        if value.dtype != dtype:
            raise TypeMismatch(f"unravel: expected {dtype.name}, got {value.type}")
        parts, start = [], 0
        for t in types:
            part = cast(slice_axis(value, 0, start, start + t.size), t.dtype)
            parts.append(OPS["reshape"](part, shape=t.shape))
            start += t.size
        return tree.unflatten(parts)

    return vector, unravel
