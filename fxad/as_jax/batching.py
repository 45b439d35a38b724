"""Names of `jax.interpreters.batching`: how primitives are batched (see `primitives`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxad.numpy as jnp
from fxad.api.jaxpr import Primitive
from fxad.as_jax.primitives import axis_batchers as axis_primitive_batchers
from fxad.as_jax.primitives import batchers as primitive_batchers
from fxad.as_jax.primitives import fancy_batchers as fancy_primitive_batchers
from fxad.core.errors import ShapeError

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
    "register_vmappable",
]

not_mapped = None
moveaxis = jnp.moveaxis


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """x with a new axis of so many equal elements."""
    x = jnp.expand_dims(x, axis)
    return jnp.broadcast_to(x, (*x.shape[:axis], sz, *x.shape[axis + 1 :]))


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """x with its mapped axis first, or a new one."""
    return broadcast(x, size, 0) if bdim is None else jnp.moveaxis(x, bdim, 0)


def defvectorized(prim: Primitive) -> None:
    """Elementwise in one operand: it is applied to all lanes at once."""

    def batch(args: Any, dims: Any, **params: Any) -> Any:
        mapped = {d for d in dims if d is not None}
        if len(mapped) != 1 or any(d is None for d in dims):
            raise ShapeError(f"{prim}: operands are batched along different axes: {dims}")
        return prim.bind(*args, **params), mapped.pop()

    primitive_batchers[prim] = batch


def defbroadcasting(prim: Primitive) -> None:
    """Elementwise in several operands: those that are not mapped get an axis of length 1."""

    def batch(args: Any, dims: Any, **params: Any) -> Any:
        rank = max(jnp.ndim(a) - (d is not None) for a, d in zip(args, dims, strict=True))

        def aligned(x: Any, dim: int | None) -> Any:
            x = jnp.expand_dims(x, 0) if dim is None else jnp.moveaxis(x, dim, 0)
            missing = rank + 1 - x.ndim
            return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])

        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        lanes = [aligned(x, d) for x, d in zip(args, dims, strict=True)]
        lanes = [jnp.broadcast_to(x, (size, *x.shape[1:])) for x in lanes]
        return prim.bind(*lanes, **params), 0

    primitive_batchers[prim] = batch


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[..., Any] | None,
) -> None:
    """Nothing: `vmap` takes values of the class as the pytrees they are."""
