"""A tree of arrays as one vector, under the name of `jax.flatten_util`.

vector, unravel = ravel_pytree(params)      # unravel(vector) has the structure of params
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.api.flat import flatten_args
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.promotion import promote
from fxad.core.pytree import TreeDef
from fxad.core.record import valued
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import cast, value_of
from fxad.numpy.creation import zeros
from fxad.numpy.manipulation import slice_axis
from fxad.trace.array import Array


def ravel_pytree(pytree: Any) -> tuple[Array, Unravel]:
    """(all elements of the leaves in one vector of their common dtype, the way back).

    The way back takes a vector of that length, raising ShapeError for others. Leaves of several
    dtypes get them back, and the vector must have the common one (else TypeMismatch); leaves of
    one dtype take that of the vector. Ways back for equal structures and types are equal.
    """
    leaves, tree = flatten_args(pytree, "ravel_pytree")
    types = tuple([leaf.type for leaf in leaves])
    if not leaves:
        return zeros((0,), dt.float32), Unravel(tree, types, None)
    dtype = promote(*((t.dtype, False) for t in types))[0]
    flat = [OPS["reshape"](cast(v, dtype), shape=(v.size,)) for v in leaves]
    vector = OPS["concatenate"](*flat, axis=0) if len(flat) > 1 else flat[0]
    mixed = any(t.dtype != dtype for t in types)
    return vector, Unravel(tree, types, dtype if mixed else None)


@valued
class Unravel:
    """From a vector to the tree; `dtype` is that of the vector if the leaves have several."""

    tree: TreeDef
    types: tuple[ArrayType, ...]
    dtype: np.dtype | None

    def __call__(self, vector: Any) -> Any:
        value = value_of(vector, "unravel")
        total = sum(t.size for t in self.types)
        if value.shape != (total,):
            raise ShapeError(f"unravel: expected a vector of {total} elements, got {value.type}")
        if self.dtype is not None and value.dtype != self.dtype:
            raise TypeMismatch(
                f"unravel: got {value.type}, but expected dtype {self.dtype.name}: the leaves have "
                "several dtypes, so they cannot take the vector's"
            )
        parts, start = [], 0
        for t in self.types:
            part = slice_axis(value, 0, start, start + t.size)
            part = part if self.dtype is None else cast(part, t.dtype)
            parts.append(OPS["reshape"](part, shape=t.shape))
            start += t.size
        return self.tree.unflatten(parts)
