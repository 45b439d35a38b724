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


_render: Callable[[BaseException], list[str]] | None = None


def set_renderer(render: Callable[[BaseException], list[str]]) -> None:
    """Install what writes the lines of an error for IPython (`fxad.core.tracebacks`, once)."""
    global _render
    _render = render


class FxadError(Exception):
    """Base of every error fxad raises on purpose, except Python's own (TypeError, IndexError...).

    A message that names no location gets the user's line at its end.

    >>> try:
    ...     jnp.ones(3) + jnp.ones(4)
    ... except fxad.errors.FxadError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message if re.search(_LOCATED, message) else message + at(_locate()))

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows where it asks errors themselves, as in `%run`."""
        if _render is None:
            raise NotImplementedError
        return _render(self)


class TraceError(FxadError, TypeError):
    """Something was asked of a traced value that only a concrete value can answer.

    >>> def f(x):
    ...     return int(x) + 1  # the trace knows only that x is an f32[]
    >>> fxad.jit(f)(1.0)
    Traceback (most recent call last):
    ...
    fxad.core.errors.ConcretizationError: int() needs a concrete value, but got ...
    >>> fxad.jit(f, static_argnums=0)(1.0)  # traced anew for every number
    Array(2, dtype=int32)
    """


class ConcretizationError(TraceError):
    """Python tried to turn a traced value into a bool, int, float, index or NumPy array.

    Usual cause: `if x > 0:` or `while err > tol:` inside `jit`, or `np.sin(x)` on a tracer.

    >>> def positive(x):
    ...     return x if x > 0 else -x
    >>> fxad.jit(positive)(-1.0)
    Traceback (most recent call last):
    ...
    fxad.core.errors.ConcretizationError: bool() needs a concrete value, but got ...
    >>> fxad.jit(lambda x: jnp.where(x > 0, x, -x))(-1.0)
    Array(1., dtype=float32)
    """

    @classmethod
    def during(cls, action: str, seen: str, where: str = "") -> ConcretizationError:
        """Build the standard message.

        `action` is what Python asked for ("bool()", "int()"), `seen` describes the traced value
        ("f32[3]"), `where` is the user's line.
        """
        number = ""
        if action in ("int()", "float()", "complex()"):
            number = (
                " Functions of math, and assignments into a NumPy array, ask for a number, too: "
                "use those of fxad.numpy, and x.at[i].set(value)."
            )
        made = cls(
            f"{action} needs a concrete value, but got the traced value {seen}{at(where)}. "
            "While tracing, only the shape and dtype are known. "
            "For a branch use fxad.lax.cond or fxad.numpy.where; for a loop use "
            "fxad.lax.while_loop, fxad.lax.scan or fxad.lax.fori_loop; to branch on an argument "
            "of a jitted function in Python, or make a shape of it, mark it in static_argnums or "
            f"static_argnames.{number}"
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
    a boolean mask. (JAX raises an IndexError for these.)

    >>> fxad.jit(lambda x: x[x > 1])(jnp.arange(4))
    Traceback (most recent call last):
    ...
    fxad.core.errors.TracedIndexError: ...
    >>> fxad.jit(lambda x: jnp.where(x > 1, x, 0))(jnp.arange(4))  # the same shape for any values
    Array([0, 0, 2, 3], dtype=int32)
    """


class LeakedTracerError(TraceError):
    """A traced value was used after the function that was being traced had returned.

    Usual cause: a traced value stored in a global, an attribute or a list. Return it instead.

    >>> kept = []
    >>> fxad.jit(lambda x: kept.append(x * 2) or x)(1.0)
    Array(1., dtype=float32)
    >>> kept[0] + 1
    Traceback (most recent call last):
    ...
    fxad.core.errors.LeakedTracerError: a traced value f32[] made at ... is used at ...
    >>> x, doubled = fxad.jit(lambda x: (x, x * 2))(1.0)
    """


class TypeMismatch(FxadError, TypeError):
    """Dtypes or value types that do not go together (also promotions that lose sense).

    >>> jnp.add("3", 1)
    Traceback (most recent call last):
    ...
    fxad.core.errors.TypeMismatch: add: expected an array or a number, got str...
    """


class TypePromotionError(TypeMismatch, ValueError):
    """Dtypes that have no common one, or none without an explicit conversion; a ValueError too, as
    in JAX.

    >>> x, y = jnp.ones(2, "float8_e5m2"), jnp.ones(2, "float8_e4m3fn")
    >>> x + y
    Traceback (most recent call last):
    ...
    fxad.core.errors.TypePromotionError: no implicit promotion between ...
    >>> (x.astype("float32") + y.astype("float32")).dtype
    dtype('float32')
    """


class DtypeError(TypeMismatch, ValueError):
    """A dtype that a function does not take or give; a ValueError too, as in JAX.

    >>> jnp.choose(jnp.array([0.0]), [jnp.ones(1)])
    Traceback (most recent call last):
    ...
    fxad.core.errors.DtypeError: choose: a must be integers, not f32[1]; convert it...
    """


class MissingRule(TypeMismatch, AttributeError):
    """A custom_jvp or custom_vjp function was called before its rule was given.

    >>> @fxad.custom_vjp
    ... def square(x):
    ...     return x * x
    >>> square(3.0)
    Traceback (most recent call last):
    ...
    fxad.core.errors.MissingRule: custom_vjp square: give its rule with square.defvjp(fwd, bwd)...
    >>> square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
    >>> square(3.0)
    9.0
    """


class ShapeError(FxadError, ValueError, TypeError):
    """Shapes, ranks or axes that do not go together.

    Both a ValueError (what NumPy raises) and a TypeError (what JAX raises for the same mistake).

    >>> jnp.ones(3) + jnp.ones(4)
    Traceback (most recent call last):
    ...
    fxad.core.errors.ShapeError: add: shapes (3,), (4,) do not broadcast: ...
    """


class TangentError(ShapeError, TypeMismatch):
    """A tangent or cotangent of another shape or dtype than what it belongs to.

    >>> fxad.jvp(jnp.sin, (jnp.ones(3),), (jnp.ones(2),))
    Traceback (most recent call last):
    ...
    fxad.core.errors.TangentError: a tangent of sin is f32[2], but what it belongs to is f32[3]...
    """


class AxisError(ShapeError, IndexError):
    """An axis number that the array does not have (NumPy's AxisError is an IndexError, too).

    >>> jnp.sum(jnp.ones((2, 3)), axis=2)
    Traceback (most recent call last):
    ...
    fxad.core.errors.AxisError: sum: axis 2 is out of range for an array with 2 axes...
    """


class IndexOutOfRange(FxadError, IndexError):
    """A Python integer outside the axis it indexes, or more indices than axes.

    >>> x = jnp.arange(3)
    >>> x[3]
    Traceback (most recent call last):
    ...
    fxad.core.errors.IndexOutOfRange: index 3 out of bounds for axis 0 with size 3 ...
    >>> x.at[3].get(mode="clip")
    Array(2, dtype=int32)
    """


class NumberOverflow(FxadError, OverflowError):
    """A Python integer that does not fit the dtype it should take.

    >>> x = jnp.array([1], "int8")
    >>> x + 1000
    Traceback (most recent call last):
    ...
    fxad.core.errors.NumberOverflow: the Python int 1000 does not fit int8, ...
    >>> x.astype("int32") + 1000
    Array([1001], dtype=int32)
    """


class BadArgument(FxadError, ValueError):
    """An option or a combination of arguments that means nothing.

    >>> jnp.pad(jnp.ones(3), 1, mode="edge", constant_values=2)
    Traceback (most recent call last):
    ...
    fxad.core.errors.BadArgument: pad: constant_values is no option of mode 'edge' ...
    """


class UnboundAxisError(BadArgument, NameError):
    """A collective or `axis_index` names an axis that no `vmap` around it has.

    >>> fxad.lax.axis_index("lane")
    Traceback (most recent call last):
    ...
    fxad.core.errors.UnboundAxisError: axis_index: no enclosing vmap has axis_name='lane' ...
    """


class UnmappableError(BadArgument, NotImplementedError):
    """vmap of a callback without a vmap_method, or of an ordered one, under `fxad.as_jax`.

    >>> # under the alias: jax.vmap(lambda x: jax.pure_callback(f, x, x))(xs), without vmap_method=
    >>> issubclass(fxad.errors.UnmappableError, NotImplementedError)
    True
    """


class UnsupportedError(BadArgument, NotImplementedError):
    """What NumPy offers and immutable arrays cannot: results in memory that is there, `out=`; or an
    option that is not there. A NotImplementedError too, as in JAX.

    >>> jnp.sum(jnp.ones(3), out=jnp.zeros(()))
    Traceback (most recent call last):
    ...
    fxad.core.errors.UnsupportedError: sum: arrays are immutable, so out= must be None ...
    """


class CallError(BadArgument, TypeMismatch):
    """A call whose arguments are not those that were announced: their number, or what is static;
    or with one that NumPy's function of the name has, and fxad's only by name.

    >>> sine = fxad.jit(jnp.sin).lower(jnp.ones(3)).compile()
    >>> sine(jnp.ones(4))
    Traceback (most recent call last):
    ...
    fxad.core.errors.TypeMismatch: ...
    """


class TreeError(FxadError, ValueError, TypeError):
    """Two pytrees differ in structure, or a pytree is malformed.

    >>> fxad.tree.map(jnp.add, {"a": 1}, {"b": 1})
    Traceback (most recent call last):
    ...
    fxad.core.errors.TreeError: tree structures differ at the root: ...
    """


class SizeError(FxadError, MemoryError):
    """An array or a computation that needs more memory than this machine has. Nothing is
    allocated for it.

    >>> jnp.zeros(2**40)
    Traceback (most recent call last):
    ...
    fxad.core.errors.SizeError: broadcast: a result f32[1099511627776] needs 4.4 TB, ...
    """


class StorageError(FxadError, OSError):
    """Values that were offloaded (to memory under a budget, or to disk) do not fit or cannot be
    read back. Nothing computed from them is returned.

    >>> # jit(f, memory_budget="1GiB") with a full disk, or a file of offloaded values cut short
    >>> issubclass(fxad.errors.StorageError, OSError)
    True
    """


class DeviceError(FxadError, RuntimeError):
    """A device was asked for that this machine does not have, or lacks the software for.

    >>> # fxad.jit(f).on("cuda") without an NVIDIA GPU, its driver or the extra `cuda`
    >>> issubclass(fxad.errors.DeviceError, RuntimeError)
    True
    """


class DepthError(FxadError, RecursionError):
    """Loops, branches or functions nested more deeply than Python's stack allows.

    >>> def endless(x):
    ...     return endless(x + 1)
    >>> fxad.jit(endless)(0)
    Traceback (most recent call last):
    ...
    fxad.core.errors.DepthError: ...
    """


class DonatedError(FxadError, RuntimeError):
    """An array was used after its memory had been donated to a compiled function.

    >>> step = fxad.jit(lambda x: x + 1, donate_argnums=0)
    >>> x = jnp.ones(3)
    >>> y = step(x)
    >>> x + 1
    Traceback (most recent call last):
    ...
    fxad.core.errors.DonatedError: this array f32[3] was donated to a compiled function ...
    >>> x = step(y)  # go on with the result
    """


class CheckError(FxadError):
    """The IR checker found a Program, Kernel or Plan that breaks its own rules.

    >>> import fxad.ir.text
    >>> fxad.ir.text.parse("program f(a: f32[3]) {  return b }")
    Traceback (most recent call last):
    ...
    fxad.core.errors.CheckError: program text, line 1: b is not defined here: ...
    """


class NumericsError(FxadError, FloatingPointError):
    """A debug mode found a NaN, an infinity or an index out of bounds (JAX and NumPy raise
    FloatingPointError for the first two).

    >>> with fxad.debug.nans():
    ...     jnp.log(jnp.array([1.0, -1.0]))
    Traceback (most recent call last):
    ...
    fxad.core.errors.NumericsError: log made 1 NaN of finite operands ...
    """


class CheckFailed(FxadError, ValueError):
    """A check of the user's did not hold, or `fxad.checkify` found another failure. (JAX's
    `checkify.JaxRuntimeError`, which is a ValueError.)

    >>> def root(x):
    ...     fxad.checkify.check(x >= 0, "x is {x}", x=x)
    ...     return jnp.sqrt(x)
    >>> error, _ = fxad.checkify.checkify(root)(-1.0)
    >>> error.throw()
    Traceback (most recent call last):
    ...
    fxad.core.errors.CheckFailed: x is -1.0 (`check` failed)...
    """


class RetraceError(FxadError, RuntimeError):
    """A jitted function was traced for more signatures than `config.max_traces` allows.

    >>> fxad.config.max_traces = 2
    >>> double = fxad.jit(lambda x: x * 2)
    >>> try:
    ...     for size in range(4):  # a trace for every shape
    ...         y = double(jnp.ones(size))
    ... except fxad.errors.RetraceError:
    ...     print("pad to one size, or to few")
    ... finally:
    ...     fxad.config.max_traces = None
    pad to one size, or to few
    """


class GradientError(FxadError, AssertionError):
    """`check_grads` found a derivative that is not the derivative of the values.

    >>> @fxad.custom_vjp
    ... def square(x):
    ...     return x * x
    >>> square.defvjp(lambda x: (x * x, x), lambda x, g: (x * g,))  # the factor 2 is missing
    >>> fxad.check_grads(square, (3.0,), order=1)
    Traceback (most recent call last):
    ...
    fxad.core.errors.GradientError: check_grads: vjp(square) is wrong: ...
    """


class CacheWarning(UserWarning):
    """A cache of compiled programs on disk that cannot be used.

    >>> import warnings
    >>> warnings.simplefilter("ignore", fxad.errors.CacheWarning)  # compile anew in every process
    """


class NarrowingWarning(UserWarning):
    """A 64-bit input became 32-bit because x64 is off. Given once per process.

    >>> import warnings
    >>> warnings.simplefilter("ignore", fxad.errors.NarrowingWarning)
    >>> jnp.asarray([1.0], dtype="float64").dtype  # what is asked for is kept
    dtype('float64')
    """
