"""Which results of functions are weakly typed: they follow other arrays in promotion.

@keeps_weak
def logaddexp(x, y): ...    # weak where both arguments are

Ops give weak results where their operands are weak (see `fxad.ops.base`), so a function needs one
of these only where it makes arrays of its own, or where JAX's function of its name says otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from fxad.core import pytree
from fxad.core.promotion import entry_of, promote
from fxad.ir.program import OPS, Lit
from fxad.trace.array import Array
from fxad.trace.convert import to_value

F = TypeVar("F", bound=Callable[..., Any])


def weak_result(*args: Any) -> bool:
    """Whether promotion of these arguments gives a weakly typed result."""
    weak = False
    for arg in args:
        if not isinstance(arg, Array) or arg.weak:
            weak = True
        elif arg.type.dtype.kind == "f":
            return False  # nothing weak comes above a strong float
    return weak and promote(*[entry(a) for a in args])[1]


def entry(arg: Any) -> tuple:
    """What promotion asks of an argument: its dtype, and whether that is weak."""
    if hasattr(arg, "__jax_array__"):
        arg = to_value(arg)
    return (arg.type.dtype, False) if isinstance(arg, Lit) else entry_of(arg)


def finish(out: Any, weak: bool) -> Array:
    """A result that was just made, marked weak."""
    if weak:
        out.weak = True
    return out


def keeps_weak(function: F) -> F:
    """A function whose results are weakly typed where all its arguments are, as numbers are, and
    nowhere else."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if not weak_result(*args, *kwargs.values()):
            return tuple(map(strong, out)) if isinstance(out, tuple) else strong(out)
        for each in out if isinstance(out, tuple) else (out,):
            finish(each, True)
        return out

    return wrapped  # type: ignore[return-value]


def weak_as_first(function: F) -> F:
    """A function whose results are weakly typed where its first argument is, and of its dtype."""

    @functools.wraps(function)
    def wrapped(first: Any, *args: Any, **kwargs: Any) -> Any:
        out = function(first, *args, **kwargs)
        if weak_result(first):
            dtype = entry(first)[0]
            for each in out if isinstance(out, tuple) else (out,):
                finish(each, each.type.dtype == dtype)
        return out

    return wrapped  # type: ignore[return-value]


def gives_strong(function: F) -> F:
    """A function whose results are never weakly typed, though they come of ops alone."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if isinstance(out, Array):
            return strong(out)
        return pytree.map(strong, out)

    return wrapped  # type: ignore[return-value]


def strong_with_axes(function: F) -> F:
    """A function whose result is weakly typed where all its arguments are and it has no axes: in
    JAX it is made by broadcasting numbers, which makes them strong."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        out = function(*args)
        return strong(out) if out.ndim else finish(out, weak_result(*args))

    return wrapped  # type: ignore[return-value]


def strong(value: Any) -> Any:
    """A value that is not weakly typed."""
    if not isinstance(value, Array) or not value.weak:
        return value
    return OPS["convert"](value, dtype=value.type.dtype)
