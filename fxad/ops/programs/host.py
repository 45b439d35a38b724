"""Python functions called in the middle of a program.

    ys = host(*xs; function=@f, results=(f32[3],), effects=("host",), lanes=())

`function` takes NumPy arrays and returns a sequence of arrays of the types in `results`. A call
with effects is never dropped, merged with another or moved past one. With `unmapped`, what to do
instead, it refuses lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.errors import TypeMismatch, UnmappableError
from fxad.core.types import ArrayType
from fxad.ir.loops import HostCall
from fxad.ir.program import Symbol
from fxad.ops.base import define

if TYPE_CHECKING:
    from fxad.ir.rules import AnyTangents, AnyValues
    from fxad.trace.array import Array

Lanes = tuple[tuple[int, tuple[bool, ...]], ...]  # per vmap, innermost first: lanes, who has them


def _type(
    *types: ArrayType, function: Symbol, results: tuple[ArrayType, ...], lanes: Lanes, **params: Any
) -> tuple[ArrayType, ...]:
    sizes = tuple([size for size, _ in reversed(lanes)])
    return tuple([ArrayType(t.dtype, (*sizes, *t.shape)) for t in results])


def _call(
    *arrays: np.ndarray,
    function: Symbol,
    results: tuple[ArrayType, ...],
    lanes: Lanes,
    **params: Any,
) -> tuple[np.ndarray, ...]:
    """One call for every lane, in the order of the lanes (the outermost vmap's slowest)."""
    if not lanes:
        return _checked(function, function.value(*arrays), results)
    size, batched = lanes[-1]
    inner = partial(_call, function=function, results=results, lanes=lanes[:-1])
    rows = [
        inner(*[a[lane] if b else a for a, b in zip(arrays, batched, strict=True)])
        for lane in range(size)
    ]
    if size:
        return tuple([np.stack(column) for column in zip(*rows, strict=True)])
    types = _type(function=function, results=results, lanes=lanes)
    return tuple([np.zeros(t.shape, t.dtype) for t in types])


def _checked(
    function: Symbol, returned: Iterable[object], results: tuple[ArrayType, ...]
) -> tuple[np.ndarray, ...]:
    arrays = tuple([np.asarray(value) for value in returned])
    seen = [ArrayType(a.dtype, a.shape) for a in arrays]
    if seen != list(results):
        raise TypeMismatch(
            f"{function.name} returned ({', '.join(map(str, seen))}), but "
            f"({', '.join(map(str, results))}) was declared; convert what it returns, or declare "
            "what it gives"
        )
    return arrays


def _jvp(primals: AnyValues, tangents: AnyTangents, outs: AnyValues, **params: Any) -> AnyTangents:
    raise TypeMismatch(
        f"{params['function'].name} is Python code of unknown derivative; give it one with "
        "fxad.custom_jvp or fxad.custom_vjp, or pass it stop_gradient of its arguments"
    )


def _batch(size: int, batched: Sequence[bool], args: AnyValues, **params: Any) -> AnyValues:
    if "unmapped" in params:
        raise UnmappableError(
            f"vmap of the callback {params['function'].name}: {params['unmapped']}"
        )
    return host(*args, **{**params, "lanes": (*params["lanes"], (size, tuple(batched)))})


def _loops(types: Sequence[ArrayType], **params: Any) -> HostCall:
    return HostCall(partial(_call, **params))


def _effects(*, effects: tuple[str, ...], **params: Any) -> frozenset[str]:
    return frozenset(effects)


host = define(
    "host",
    doc="Results of a Python function of NumPy arrays, called once per lane.",
    type=_type,
    numpy=_call,
    jvp=_jvp,
    batch=_batch,
    loops=_loops,
    weak=(),
    effects=_effects,
)


def call_host(
    function: Callable[..., Iterable[object]],
    name: str,
    args: AnyValues,
    results: tuple[ArrayType, ...],
    effects: tuple[str, ...],
    unmapped: str | None = None,
) -> tuple[Array, ...]:
    """Record or make a call of a Python function, which refuses lanes where `unmapped` says why."""
    symbol = Symbol(name, function)
    more = {} if unmapped is None else {"unmapped": unmapped}
    return host(*args, function=symbol, results=results, effects=effects, lanes=(), **more)
