"""The terse text's short forms: of parameters, and of arithmetic.

Parameters that are as they mostly are, or as types say, are left out; the parser puts them back.
They follow from the operands' types, and from the type that the line has in which the op stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxad.core.record import record
from fxad.core.types import ArrayType, Type


@record
class Call:
    """An op without some of its parameters; the types of its operands and of its line."""

    types: Sequence[Type]
    line: Type | None
    params: Mapping[str, Any]

    @property
    def rank(self) -> int:
        return len(self.types[0].shape) if isinstance(self.types[0], ArrayType) else 0


def _always(value: Any) -> Callable[[Call], Any]:
    return lambda call: value


def _shape(call: Call) -> Any:
    return getattr(call.line, "shape", None)


def _dtype(call: Call) -> Any:
    return getattr(call.line, "dtype", None)


def _stop(call: Call) -> Any:
    """Where a slice without steps ends."""
    shape = _shape(call)
    if shape is None or len(shape) != call.rank or set(call.params.get("step", ())) - {1}:
        return None
    start = call.params.get("start", (0,) * call.rank)
    return tuple([a + b for a, b in zip(start, shape, strict=True)])


_INDEXED = {"batch": _always(0), "mode": _always("clamp"), "unique": _always(False)}
_ATTEND = {"bias": _always(False), "left": _always(-1), "mask": _always(False)}
_ZEROS = {"interior": lambda call: (0,) * call.rank}

# Op -> parameter -> its value; None where it does not follow.
USUAL: Mapping[str, Mapping[str, Callable[[Call], Any]]] = {
    "flash_attention": _ATTEND,
    "flash_attention_grad": _ATTEND,
    "broadcast": {"shape": _shape},
    "checkpoint": {"policy": _always(())},
    "convert": {"dtype": _dtype},
    "dot": {
        "batch": _always(((), ())),
        "dtype": lambda call: getattr(call.types[0], "dtype", None),
    },
    "gather": _INDEXED,
    "iota": {"dtype": _dtype, "shape": _shape},
    "pad": _ZEROS,
    "reshape": {"shape": _shape},
    "scatter": _INDEXED,
    "slice": {
        "start": lambda call: (0,) * call.rank,
        "step": lambda call: (1,) * call.rank,
        "stop": _stop,
    },
}


# Op -> the parameter that may be written without its name.
MAIN: Mapping[str, str] = {
    "broadcast": "axes",
    "concatenate": "axis",
    "dot": "contract",
    "max_reduce": "axes",
    "min_reduce": "axes",
    "prod": "axes",
    "reshape": "shape",
    "sum": "axes",
    "transpose": "permutation",
}


# Op -> sign and level of binary ones: a higher level binds more tightly, equal ones to the left.
INFIX: Mapping[str, tuple[str, int]] = {
    "add": ("+", 1),
    "sub": ("-", 1),
    "mul": ("*", 2),
    "div": ("/", 2),
}
UNARY = 3  # the level of a minus sign, `neg`
ALONE = 4  # the level of what needs no brackets


def usual(op: str, call: Call) -> dict[str, Any]:
    """The parameters of an op that need not be written, where they follow."""
    found = {name: value(call) for name, value in USUAL.get(op, {}).items()}
    return {name: value for name, value in found.items() if value is not None}
