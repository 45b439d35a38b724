"""Names of `jax.core` and `jax.extend.core`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from fxad.api.axes import names as unsafe_get_axis_names_DO_NOT_USE
from fxad.api.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    eval_jaxpr,
    gensym,
    jaxpr_as_fun,
    jaxprs_in_params,
    new_jaxpr_eqn,
    subjaxprs,
)
from fxad.api.shaped_array import AbstractValue, ShapedArray
from fxad.api.shaped_array import aval_of as get_aval
from fxad.as_jax.primitives import Primitive
from fxad.core.errors import BadArgument
from fxad.trace.tracer import Level, Tracer, active_levels, ensure_compile_time_eval

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "Effect",
    "Effects",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "TraceTag",
    "Tracer",
    "Value",
    "Var",
    "ensure_compile_time_eval",
    "eval_jaxpr",
    "find_top_trace",
    "gensym",
    "get_aval",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "new_jaxpr_eqn",
    "no_effects",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "trace_state_clean",
    "unmapped_aval",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]

Value = Any
Atom = Var | Literal
no_effects: frozenset[Any] = frozenset()


class Effect:
    """A kind of side effect, which packages derive their own from. No program has one: effects are
    `fxad.ir`'s."""


Effects = AbstractSet[Effect]


class DebugInfo(NamedTuple):
    """What a function, its arguments and results are called, for packages that make a Jaxpr. Those
    of fxad have none: equations carry the user's line."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None
    result_paths: Any


class Trace:
    """What records or differentiates a tracer: `main` is one object for all tracers of it."""

    def __init__(self, level: Level) -> None:
        self.main = level


# JAX's name for it, by which packages compare tracers.
Tracer._trace = property(lambda tracer: Trace(tracer.level))  # type: ignore[attr-defined]


def find_top_trace(xs: Iterable[Any]) -> Trace | None:
    """The innermost of the traces of these values; None where none is traced."""
    levels = [x.level for x in xs if isinstance(x, Tracer)]
    return Trace(max(levels, key=lambda level: level.depth)) if levels else None


class OpaqueTraceState:
    """What is being recorded or differentiated at some moment; compared by that."""

    def __init__(self) -> None:
        self._levels = active_levels()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._levels == other._levels

    def __hash__(self) -> int:
        return hash(self._levels)


def get_opaque_trace_state(convention: str = "") -> OpaqueTraceState:
    """What is being recorded or differentiated now, to be compared with another moment's."""
    return OpaqueTraceState()


def trace_state_clean() -> bool:
    """Whether nothing is being recorded, differentiated or mapped now."""
    return not active_levels()


class TraceTag:
    """JAX tells a user's own traces apart by it."""


def take_current_trace() -> Any:
    """Raises BadArgument: fxad's traces are its own."""
    raise BadArgument("take_current_trace: a Trace of one's own cannot be set; use make_jaxpr")


def set_current_trace(*args: Any, **kwargs: Any) -> Any:
    """Raises BadArgument: fxad's traces are its own."""
    raise BadArgument("set_current_trace: a Trace of one's own cannot be set; use make_jaxpr")


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of a lane: without an axis, or as it is for None."""
    if axis is None:
        return aval
    return aval.update(shape=(*aval.shape[:axis], *aval.shape[axis + 1 :]))


def unmapped_aval(size: int, axis: int | None, aval: ShapedArray, *ignored: Any) -> ShapedArray:
    """The type of all lanes: with a new axis of this size, or as it is for None."""
    if axis is None:
        return aval
    return aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def valid_jaxtype(x: Any) -> bool:
    """Whether x is an array or a number."""
    try:
        get_aval(x)
    except TypeError:
        return False
    return True
