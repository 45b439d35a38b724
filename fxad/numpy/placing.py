"""Writes by masks and flat positions, choices by conditions, indices of triangles.

y = piecewise(x, [x < 0, x > 0], [lambda v: -v, 1.0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.numpy.core import cast, known_values, spread_to, value_of
from fxad.numpy.elementwise import clip, where
from fxad.numpy.picking import nonzero, take
from fxad.numpy.running import cumsum
from fxad.trace.array import Array


def _no_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise BadArgument(f"{name}: arrays are immutable; pass inplace=False and use the result")


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """A copy of a with elements at flat positions replaced by v, repeated as often as needed.

    mode: what happens to positions out of range: "clip", "wrap", or None to drop them. Needs
    inplace=False, as in JAX.
    """
    _no_inplace("put", inplace)
    value, places = value_of(a, "put"), value_of(ind, "put: ind").ravel()
    new = value_of(v, "put: v").ravel()
    if mode not in (None, "clip", "wrap"):
        raise BadArgument(f"put: mode must be 'clip', 'wrap' or None, not {mode!r}")
    if not places.size:
        return value
    if not new.size:
        raise ShapeError("put: no values to put")
    if mode == "clip":
        places = clip(places, 0, value.size - 1)
    elif mode == "wrap":
        places = places % value.size
    repeated = take(new, np.arange(places.size) % new.size)
    flat = value.ravel().at[places].set(repeated, mode="drop")
    return OPS["reshape"](flat, shape=value.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """A copy of arr where the elements under the mask are vals in order, repeated as needed.

    Needs inplace=False, as in JAX. Raises ShapeError if the mask has another size than arr.
    """
    _no_inplace("place", inplace)
    value, flags = value_of(arr, "place"), value_of(mask, "place: mask").ravel() != 0
    new = value_of(vals, "place: vals").ravel()
    if flags.size != value.size:
        raise ShapeError(f"place: a mask of {flags.size} elements for {value.type}")
    if not value.size:
        return value
    if not new.size:
        raise ShapeError("place: no values to place")
    order = (cumsum(cast(flags, dt.index_dtype(flags.size))) - 1) % new.size
    chosen = cast(take(new, order, mode="clip"), value.dtype)
    return OPS["reshape"](where(flags, chosen, value.ravel()), shape=value.shape)


def piecewise(
    x: Any,
    condlist: Sequence[Any] | Any,
    funclist: Sequence[Any],
    *args: Any,
    **kw: Any,
) -> Array:
    """Each element by the function (or number) of the last condition that holds for it.

    One more function than conditions is the default; without it the default is 0. All functions
    see all elements. Results have the dtype of x.
    """
    value = value_of(x, "piecewise")
    if not isinstance(condlist, list | tuple):
        condlist = [condlist]
    flags = [spread_to(value_of(c, "piecewise") != 0, value.shape) for c in condlist]
    choices = list(funclist)
    if len(choices) == len(flags) + 1:
        default = choices.pop()
    elif len(choices) == len(flags):
        default = 0
    else:
        raise BadArgument(f"piecewise: {len(choices)} functions for {len(flags)} conditions")

    def result(choice: Any) -> Any:
        found = choice(value, *args, **kw) if callable(choice) else choice
        return spread_to(cast(value_of(found, "piecewise"), value.dtype), value.shape)

    out = result(default)
    for flag, choice in zip(flags, choices, strict=True):
        out = where(flag, result(choice), out)
    return out


def _from(name: str, arr: Any) -> tuple[int, int]:
    shape = np.shape(arr)
    if len(shape) != 2:
        raise ShapeError(f"{name}: needs a matrix, got shape {shape}")
    return shape


def _indices(mask: np.ndarray) -> tuple[Array, ...]:
    pairs = zip(np.nonzero(mask), mask.shape, strict=True)
    return tuple(value_of(places.astype(dt.index_dtype(size))) for places, size in pairs)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Rows and columns of a matrix's lower triangle, from its diagonal k down."""
    rows, columns = _from("tril_indices_from", arr)
    return _indices(np.tri(rows, columns, k, bool))


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Rows and columns of a matrix's upper triangle, from its diagonal k up."""
    rows, columns = _from("triu_indices_from", arr)
    return _indices(~np.tri(rows, columns, k - 1, bool))


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: Any = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """Rows and columns where mask_func(ones of (n, n), k) is not zero.

    size: how many there are; needed under jit.
    """
    kept = mask_func(value_of(np.ones((n, n), np.float32)), k)
    if size is not None:
        return nonzero(kept, size=size)
    hint = "pass size="
    return _indices(known_values(kept, "mask_indices", hint) != 0)
