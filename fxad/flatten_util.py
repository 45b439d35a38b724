"""One vector instead of a pytree: ravel_pytree.

flat, unravel = ravel_pytree({"w": w, "b": b})      # f32[n]
tree = unravel(flat - 0.1 * gradient)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import ShapeError
from fxad.numpy import concatenate, real, reshape, zeros
from fxad.numpy.core import asarray, cast, promoted, value_of
from fxad.trace.array import Array


def ravel_pytree(tree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """All leaves in one vector of their common dtype, and the function that takes it apart again.

    `unravel` restores shapes and dtypes; it raises ShapeError for a vector of another length. A
    tree without leaves is an empty f32 vector.
    """
    leaves, structure = pytree.flatten(tree)
    arrays = [asarray(leaf) for leaf in leaves]
    shapes = [a.shape for a in arrays]
    dtypes = [a.dtype for a in arrays]
    sizes = [math.prod(shape) for shape in shapes]
    parts = promoted("ravel_pytree", *arrays, broadcast=False, numbers=False) if arrays else []
    flat = concatenate([reshape(p, (-1,)) for p in parts]) if parts else zeros((0,), dt.float32)

    def unravel(vector: Any) -> Any:
        value = value_of(vector, "unravel")
        if value.shape != (sum(sizes),):
            raise ShapeError(f"unravel: expects {sum(sizes)} numbers, got shape {value.shape}")
        start, restored = 0, []
        for shape, dtype, size in zip(shapes, dtypes, sizes, strict=True):
            piece = reshape(value[start : start + size], shape)
            if dt.is_complex(piece.dtype) and not dt.is_complex(dtype):
                piece = real(piece)
            restored.append(cast(piece, dtype))
            start += size
        return structure.unflatten(restored)

    return flat, unravel
