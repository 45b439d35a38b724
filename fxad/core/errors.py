"""Every exception and warning of fxad. All take one message.

>>> raise ShapeError("add: shapes f32[3] and f32[4] differ" + at("train.py:12"))
Traceback (most recent call last):
...
fxad.core.errors.ShapeError: add: shapes f32[3] and f32[4] differ (train.py:12)

A good message says what was wrong, what was seen and what to try.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from typing import Any


def at(where: str) -> str:
    """Format a source location for the end of a message: ` (file:line)`, or nothing if unknown."""
    return f" ({where})" if where else ""


_locate: Callable[[], str] = str
_LOCATED = r"(\.py|>):\d+|\(\S+:\d+\)"


def set_locator(locate: Callable[[], str]) -> None:
    """Install what finds the user's line (done once, by `fxad.trace.location`)."""
    global _locate
    _locate = locate


def _message(error: BaseException) -> list[str]:
    return [str(error)]


_render: Callable[[BaseException], list[str]] = _message


def set_renderer(render: Callable[[BaseException], list[str]]) -> None:
    """Install what writes the lines of an error for IPython (`fxad.core.tracebacks`, once)."""
    global _render
    _render = render


class FxadError(Exception):
    """Base of every error fxad raises on purpose, except Python's own (TypeError, IndexError...).

    A message that names no location gets the user's line at its end.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message if re.search(_LOCATED, message) else message + at(_locate()))

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows."""
        return _render(self)


class TraceError(FxadError, TypeError):
    """Something was asked of a traced value that only a concrete value can answer."""


class ConcretizationError(TraceError):
    """Python tried to turn a traced value into a bool, int, float, index or NumPy array.

    Usual cause: `if x > 0:` or `while err > tol:` inside `jit`, or `np.sin(x)` on a tracer.
    """

    @classmethod
    def during(cls, action: str, seen: str, where: str = "") -> ConcretizationError:
        """Build the standard message.

        `action` is what Python asked for ("bool()", "int()"), `seen` describes the traced value
        ("f32[3]"), `where` is the user's line.
        """
        made = cls(
            f"{action} needs a concrete value, but got the traced value {seen}{at(where)}. "
            "While tracing, only the shape and dtype are known. "
            "For a branch use fxad.lax.cond or fxad.numpy.where; for a loop use "
            "fxad.lax.while_loop, fxad.lax.scan or fxad.lax.fori_loop; to branch on an argument "
            "of a jitted function in Python, or make a shape of it, mark it in static_argnums or "
            "static_argnames."
        )
        made._about = seen, where
        return made

    _about = ("", "")
    value: Any = None  # the traced value, until it is known what it depends on
    sources: Set[Any] = frozenset()  # variables of programs that it depends on
    inputs: tuple[int, ...] = ()  # those among the inputs of the function being traced
    arguments_named = False

    def of_arguments(self, names: Sequence[str], function: str) -> None:
        """Say once which arguments the value depends on."""
        if names and not self.arguments_named:
            arguments = f"argument{'s' * (len(names) > 1)} {', '.join(names)} of {function}"
            text = str(self.args[0]).removesuffix(".")
            self.args = (f"{text}. The value depends on the {arguments}.", *self.args[1:])
            self.arguments_named = True

    def of_a_shape(self, action: str) -> ConcretizationError:
        """The error of a function that needs the value for a shape or bound of its own."""
        seen, where = self._about
        made = type(self)(
            f"{action} needs concrete values, but got the traced value {seen}{at(where)}. While "
            "tracing, only the shape and dtype are known. An argument of a jitted function that "
            "decides a shape is marked in static_argnums or static_argnames; the values of arrays "
            "cannot decide one, but functions such as nonzero and unique take the largest as size=."
        )
        made.value, made.sources = self.value, self.sources
        return made


class TracedIndexError(ConcretizationError, IndexError):
    """An index decides the shape of its result, and its values are traced: the bounds of a slice,
    a boolean mask. (JAX raises an IndexError for these.)"""


class LeakedTracerError(TraceError):
    """A traced value was used after the function that was being traced had returned.

    Usual cause: a traced value stored in a global, an attribute or a list. Return it instead.
    """


class TypeMismatch(FxadError, TypeError):
    """Dtypes or value types that do not go together (also promotions that lose sense)."""


class TypePromotionError(TypeMismatch, ValueError):
    """Dtypes that have no common one, or none without an explicit conversion; a ValueError too, as
    in JAX."""


class MissingRule(TypeMismatch, AttributeError):
    """A custom_jvp or custom_vjp function was called before its rule was given."""


class ShapeError(FxadError, ValueError, TypeError):
    """Shapes, ranks or axes that do not go together.

    Both a ValueError (what NumPy raises) and a TypeError (what JAX raises for the same mistake).
    """


class TangentError(ShapeError, TypeMismatch):
    """A tangent or cotangent of another shape or dtype than what it belongs to."""


class AxisError(ShapeError, IndexError):
    """An axis number that the array does not have (NumPy's AxisError is an IndexError, too)."""


class IndexOutOfRange(FxadError, IndexError):
    """A Python integer outside the axis it indexes, or more indices than axes."""


class NumberOverflow(FxadError, OverflowError):
    """A Python integer that does not fit the dtype it should take."""


class BadArgument(FxadError, ValueError):
    """An option or a combination of arguments that means nothing."""


class UnmappableError(BadArgument, NotImplementedError):
    """vmap of a callback without a vmap_method, or of an ordered one, under `fxad.as_jax`."""


class CallError(BadArgument, TypeMismatch):
    """A call whose arguments are not those that were announced: their number, or what is static."""


class TreeError(FxadError, ValueError, TypeError):
    """Two pytrees differ in structure, or a pytree is malformed."""


class SizeError(FxadError, MemoryError):
    """An array or a computation that needs more memory than this machine has. Nothing is
    allocated for it."""


class StorageError(FxadError, OSError):
    """Values that were offloaded (to memory under a budget, or to disk) do not fit or cannot be
    read back. Nothing computed from them is returned."""


class DeviceError(FxadError, RuntimeError):
    """A device was asked for that this machine does not have, or lacks the software for."""


class DepthError(FxadError, RecursionError):
    """Loops, branches or functions nested more deeply than Python's stack allows."""


class DonatedError(FxadError, RuntimeError):
    """An array was used after its memory had been donated to a compiled function."""


class CheckError(FxadError):
    """The IR checker found a Program, Kernel or Plan that breaks its own rules."""


class NumericsError(FxadError, FloatingPointError):
    """A debug mode found a NaN, an infinity or an index out of bounds (JAX and NumPy raise
    FloatingPointError for the first two)."""


class CheckFailed(FxadError, ValueError):
    """A check of the user's did not hold, or `fxad.checkify` found another failure. (JAX's
    `checkify.JaxRuntimeError`, which is a ValueError.)"""


class RetraceError(FxadError, RuntimeError):
    """A jitted function was traced for more signatures than `config.max_traces` allows."""


class GradientError(FxadError, AssertionError):
    """`check_grads` found a derivative that is not the derivative of the values."""


class CacheWarning(UserWarning):
    """A cache of compiled programs on disk that cannot be used."""


class NarrowingWarning(UserWarning):
    """A 64-bit input became 32-bit because x64 is off. Given once per process."""
