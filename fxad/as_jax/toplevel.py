"""Names of `jax` itself that fxad has otherwise."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
from fxad.api.shaped_array import aval_of as typeof
from fxad.as_jax.config import config
from fxad.core import pytree
from fxad.core.dtypes import narrow
from fxad.core.errors import BadArgument
from fxad.trace.array import Concrete

__all__ = [
    "ProfileOptions",
    "__version__",
    "__version_info__",
    "config",
    "copy_to_host_async",
    "dtype_of",
    "effects_barrier",
    "fwd_and_bwd",
    "host_count",
    "host_id",
    "host_ids",
    "live_arrays",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "no_tracing",
    "pmap",
    "process_indices",
    "shard_map",
    "typeof",
]

__version__ = "0.10.2"  # whose names the alias has: `public_names.txt`
__version_info__ = (0, 10, 2)
no_tracing = fxad.no_tracing


def dtype_of(x: Any, *, canonicalize: bool = False) -> Any:
    """The dtype of an array or a number, or that arrays made of a dtype have (`jax.lax.dtype`)."""
    return narrow(x) if isinstance(x, type | np.dtype | str) else typeof(x).dtype


def effects_barrier() -> None:
    """Nothing to wait for: effects have happened when a call returns."""


def copy_to_host_async(x: Any) -> Any:
    """The tree itself: arrays are in the host's memory."""
    return x


def fwd_and_bwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(forward, backward) of a function: forward(*args) is what `vjp` gives, a pullback among it,
    and backward(pullback, cotangent) the cotangents of the arguments `argnums`."""
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def forward(*args: Any) -> Any:
        def of_chosen(*values: Any) -> Any:
            merged = list(args)
            for number, value in zip(chosen, values, strict=True):
                merged[number] = value
            return fun(*merged)

        return fxad.vjp(of_chosen, *[args[number] for number in chosen], has_aux=has_aux)

    def backward(pullback: Callable[..., Any], cotangent: Any) -> Any:
        found = pullback(cotangent)
        return found[0] if isinstance(argnums, int) else found

    return (fxad.jit(forward), fxad.jit(backward)) if jitted else (forward, backward)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """The data of this process, the only one, as arrays that lie under a sharding. Raises
    BadArgument for another shape than `global_shape`."""
    made = fxad.device_put(local_data, sharding)
    if global_shape is not None:
        fxad.tree.map(lambda leaf: _check_whole(leaf, global_shape), made)
    return made


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[..., Any], dtype: Any = None
) -> Any:
    """The array whose only part is what `data_callback` gives for the slices of all its axes.
    Raises BadArgument where that has another shape."""
    whole = fxad.numpy.asarray(data_callback((slice(None),) * len(shape)), dtype)
    _check_whole(whole, shape)
    return fxad.device_put(whole, sharding)


def _check_whole(part: Any, shape: Sequence[int]) -> None:
    if part.shape != tuple(shape):
        raise BadArgument(f"the part of the only process has shape {part.shape}, not {shape}")


class ProfileOptions:
    """Options for `profiler.start_trace`, which has none."""

    advanced_configuration: Any = None
    device_tracer_level = 1
    duration_ms = 0
    enable_hlo_proto = False
    host_tracer_level = 2
    include_dataset_ops = True
    python_tracer_level = 0


def live_arrays(platform: str | None = None) -> list[Any]:
    """The arrays there are."""
    return [a for a in gc.get_objects() if isinstance(a, Concrete) and not a.is_deleted()]


def host_id(backend: str | None = None) -> int:
    """0: there is one process."""
    return 0


def host_ids(backend: str | None = None) -> list[int]:
    """[0]: there is one process."""
    return [0]


process_indices = host_ids


def host_count(backend: str | None = None) -> int:
    """1."""
    return 1


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: Any = (),
    devices: Any = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
) -> Callable[..., Any]:
    """`jit(vmap(fun))` over an axis of length 1, since there is one device.

    The function is called with an axis of another length: BadArgument, which says to use vmap.
    """
    static = static_broadcasted_argnums
    static = (static,) if isinstance(static, int) else tuple(static)

    def one_lane(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple | list) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise BadArgument(f"pmap: in_axes has {len(axes)} entries for {len(args)} arguments")
        shared = [None if i in static else axis for i, axis in enumerate(axes)]
        for arg, axis in zip(args, shared, strict=True):
            if isinstance(axis, int):
                _check_lanes(arg, axis)
        mapped = fxad.vmap(fun, tuple(shared), out_axes, axis_name, axis_size or 1)
        return mapped(*args, **kwargs)

    one_lane = functools.wraps(fun)(one_lane)
    return fxad.jit(one_lane, static_argnums=static, donate_argnums=donate_argnums)


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any = None,
    in_specs: Any = None,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Any:
    """The function itself, on the one shard that one device has: names of the mesh's axes are known
    inside, and are of length 1, as no mesh is larger."""
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names
        )
    names = tuple(axis_names) if mesh is None else mesh.axis_names

    def on_one_shard(*args: Any) -> Any:
        call = f
        for name in names:
            call = fxad.vmap(call, None, 0, name, 1)
        found = call(*args)
        return fxad.tree.map(lambda x: x.reshape(x.shape[len(names) :]), found)

    return functools.wraps(f)(on_one_shard)


def _check_lanes(arg: Any, axis: int) -> None:
    for leaf in pytree.leaves(arg):
        if getattr(leaf, "ndim", 0) and leaf.shape[axis] != 1:
            raise BadArgument(
                f"pmap: there is one device, but the axis has length {leaf.shape[axis]}; "
                "use jax.vmap for lanes"
            )
