"""Looking inside: prints and callbacks from compiled code, the first NaN, indices out of range.

@fxad.jit
def f(x):
    fxad.debug.print("x = {}", x)
    return fxad.numpy.log(x)

with fxad.debug.nans():
    f(-1.0)  # NumericsError: log made 1 NaN ... (model.py:4)
"""

from __future__ import annotations

import builtins
import functools
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.api import breakpoints
from fxad.api.compiled import watching
from fxad.api.copies import explain_copies
from fxad.api.flat import kind_of, name_of
from fxad.api.indices import indices
from fxad.api.jit import Jit
from fxad.api.residuals import print_saved_residuals
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, NumericsError, TypeMismatch, at
from fxad.core.lazy import lazy as _lazy
from fxad.core.semantics import semantics
from fxad.core.types import ArrayType
from fxad.ir.program import Op
from fxad.ops.programs.host import call_host
from fxad.trace.convert import is_array_like, shaped, to_value

__all__ = [
    "breakpoint",
    "callback",
    "explain_copies",
    "explain_retrace",
    "indices",
    "io_callback",
    "nans",
    "print",
    "print_saved_residuals",
    "pure_callback",
]

_EFFECT = ("host",)
_MOVES = frozenset(["bitcast"])  # bits that become a float were never a number

# ---------------------------------------------------------------- callbacks


def print(fmt: str, /, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` when the values exist, also inside compiled code.

    Under vmap every lane prints a line, lanes in order (one line if no value differs between
    lanes). All effects keep the program's order, `ordered` or not; the argument is taken for code
    ported from JAX. Raises TypeMismatch if fmt is not a string, BadArgument if it names a value
    that is not given or leaves out one that is.

    >>> y = fxad.jit(lambda x: (fxad.debug.print("x is {}", x), 2 * x)[1])(1.5)
    x is 1.5
    """
    if not isinstance(fmt, str):
        raise TypeMismatch(f"debug.print: the format must be a string, got {kind_of(fmt)}")
    _Fields().check(fmt, args, kwargs)

    def show(*values: Any, **named: Any) -> None:
        builtins.print(fmt.format(*values, **named))

    _call(show, "print", None, _EFFECT, args, kwargs)


class _Fields(string.Formatter):
    """Compares the fields of a format with the values given for them, which need not be known."""

    unused: Sequence[int | str] = ()

    def check(self, fmt: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        try:
            self.vformat(fmt, args, kwargs)
        except KeyError as error:
            (name,) = error.args
            raise BadArgument(
                f"debug.print: the format {fmt!r} names {name}, which is not given: {name}=..."
            ) from None
        except IndexError:
            raise BadArgument(
                f"debug.print: the format {fmt!r} has more fields than there are values"
            ) from None
        if self.unused:
            name = self.unused[0]
            field = "{}" if isinstance(name, int) else f"{{{name}}}"
            raise BadArgument(
                f"debug.print: the format {fmt!r} leaves out value {name}; it needs {field}"
            )

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(
        self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.unused = [name for name in (*range(len(args)), *kwargs) if name not in used_args]


def callback(callback: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call `callback(*args, **kwargs)` on NumPy arrays for what it does; its result is dropped.

    It is called exactly once per execution (once per lane under vmap), also when a gradient is
    taken. Exceptions it raises reach the caller.

    >>> seen = []
    >>> y = fxad.jit(lambda x: (fxad.debug.callback(seen.append, x), 2 * x)[1])(1.5)
    >>> seen
    [array(1.5, dtype=float32)]
    """
    _call(callback, name_of(callback), None, _EFFECT, args, kwargs)


def breakpoint(
    *args: Any,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> None:
    """Stop in Python's debugger when the values exist, also inside compiled code.

    The debugger shows the line of the call, and all variables of the function around it, traced
    values as arrays; `u` leads to the functions around that were traced with it (the innermost
    `num_frames`), `c` goes on. They are kept for as long as the compiled function is. Values given
    by position and by name are `args` and `values` there. What is called is `sys.breakpointhook`,
    so PYTHONBREAKPOINT chooses the debugger (0: none). Called as often as `callback` calls its
    function. The other arguments are accepted for code ported from JAX.

    >>> from unittest.mock import patch
    >>> with patch("sys.breakpointhook", lambda: print("stopped")):
    ...     fxad.debug.breakpoint(jnp.ones(2), step=3)
    stopped
    """
    frames = breakpoints.frames_of(sys._getframe(1))
    if num_frames is not None:
        frames = frames[: max(num_frames, 1)]
    traced, with_arrays = breakpoints.traced_values(frames)

    def stop(args: tuple, values: dict[str, Any], *arrays: Any) -> None:
        inner, *outer = with_arrays(*map(to_value, arrays))
        given = {"args": args, "values": values} if args or values else {}
        breakpoints.stop_in([inner.having(given), *outer])

    _call(stop, "breakpoint", None, _EFFECT, (args, kwargs, *traced), {})


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    /,
    *args: Any,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """`callback(*args, **kwargs)` computed by Python on NumPy arrays.

    result: a pytree of anything with shape and dtype, what the function returns (dtypes are
    converted, shapes must agree). The function must depend on its arguments alone: a call whose
    result nobody needs may be left out. It has no derivative of its own. Lanes of a vmap are
    called one after another; vmap_method is accepted for ported code.

    >>> import numpy as np
    >>> fxad.jit(lambda x: fxad.pure_callback(np.sort, x, x))(jnp.array([3.0, 1.0, 2.0]))
    Array([1., 2., 3.], dtype=float32)
    """
    unmapped = None
    if vmap_method is None and semantics.callbacks_need_vmap_method:
        unmapped = "choose how with pure_callback(..., vmap_method='sequential')"
    return _call(callback, name_of(callback), result_shape_dtypes, (), args, kwargs, unmapped)


def io_callback(
    function: Callable[..., Any],
    result: Any,
    /,
    *args: Any,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """As `pure_callback`, but for functions with effects: called exactly once, in the program's
    order whether `ordered` or not.

    >>> import numpy as np
    >>> notes = []
    >>> note = lambda x: (notes.append(float(x)), np.int32(len(notes)))[1]
    >>> fxad.jit(lambda x: fxad.debug.io_callback(note, fxad.ShapeDtypeStruct((), "int32"), x))(4.0)
    Array(1, dtype=int32)
    >>> notes
    [4.0]
    """
    unmapped = None
    if ordered and semantics.callbacks_need_vmap_method:
        unmapped = "an ordered io_callback cannot be mapped"
    return _call(function, name_of(function), result, _EFFECT, args, kwargs, unmapped)


def _call(
    function: Callable[..., Any],
    name: str,
    result: Any,
    effects: tuple[str, ...],
    args: tuple,
    kwargs: dict[str, Any],
    unmapped: str | None = None,
) -> Any:
    """Bind the call; leaves that are not arrays (strings, ...) are handed on as they are."""
    leaves, tree = pytree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    fixed = {i: leaf for i, leaf in enumerate(leaves) if not is_array_like(leaf)}
    shapes, out_tree = pytree.flatten(result)
    results = tuple([shaped(s) for s in shapes])
    count = len(leaves)

    def run(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        given = {**fixed, **dict(zip(places, arrays, strict=True))}
        inner_args, inner_kwargs = tree.unflatten([given[i] for i in range(count)])
        returned = function(*inner_args, **inner_kwargs)
        return _as_declared(name, returned, out_tree, results) if results else ()

    values = [to_value(leaves[i], name) for i in places]
    outs = call_host(run, name, values, results, effects, unmapped)
    return out_tree.unflatten(list(outs))


def _as_declared(
    name: str, returned: Any, tree: Any, results: tuple[ArrayType, ...]
) -> list[np.ndarray]:
    leaves, seen = pytree.flatten(returned)
    if seen != tree:
        raise TypeMismatch(f"{name} returned {seen}, but {tree} was declared")
    arrays = [np.asarray(leaf) for leaf in leaves]
    return [a.astype(t.dtype) for a, t in zip(arrays, results, strict=True)]


# ---------------------------------------------------------------- explanations


def explain_retrace(function: Callable[..., Any]) -> Callable[..., str]:
    """explain_retrace(f)(*args): whether calling the jitted `f` so would trace it again, and what
    differs from the nearest trace it has. Raises TypeMismatch for what is not jitted.

    `fxad.config.max_traces` limits the signatures per function.

    >>> f = fxad.jit(lambda x: jnp.sin(x))
    >>> y = f(jnp.ones(2))
    >>> print(fxad.debug.explain_retrace(f)(jnp.ones(3)))
    jit(f) is traced again: args[0] is f32[3], not f32[2]
    """
    if not isinstance(function, Jit):
        raise TypeMismatch(
            f"explain_retrace: expected a function made by fxad.jit, got {name_of(function)}"
        )
    return function.explain_retrace


# ---------------------------------------------------------------- NaN


@contextmanager
def nans(infinities: bool = True) -> Iterator[None]:
    """Inside, the first op that makes a NaN (or infinity) of finite operands raises NumericsError.

    Everything runs op by op on the NumPy reference, forward and backward, compiled functions
    included: slow, but the error names the op, its types and the line. An infinity written into
    the program (a mask) is not an error. Outside the block nothing is checked or slower.

    >>> with fxad.debug.nans():
    ...     try:
    ...         fxad.jit(lambda x: jnp.log(x))(-1.0)
    ...     except fxad.errors.NumericsError:
    ...         print("caught")
    caught
    """
    with watching(functools.partial(_check, infinities)):
        yield


def _check(
    infinities: bool, op: Op, args: Sequence[Any], results: Sequence[Any], where: str
) -> None:
    for result in results:
        if _bad(result, infinities) and op.name not in _MOVES:
            if any(_bad(a, True) for a in args):
                return
            operands = "".join(f"\n  operand {i}: {_describe(a)}" for i, a in enumerate(args))
            raise NumericsError(
                f"{op.name} made {_counts(result)} of finite operands{at(where)}"
                f"{operands}\n  result: {_describe(result)}"
            )


def _wide(value: Any) -> np.ndarray | None:
    """An array NumPy can test, or None for what holds no floating-point numbers."""
    if not isinstance(value, np.ndarray | np.generic) or not dt.is_inexact(value.dtype):
        return None
    array = np.asarray(value)
    return array if array.dtype.kind in "fc" else array.astype(np.float32)


def _bad(value: Any, infinities: bool) -> bool:
    array = _wide(value)
    if array is None:
        return False
    return not np.isfinite(array).all() if infinities else bool(np.isnan(array).any())


def _counts(value: Any) -> str:
    array = _wide(value)
    assert array is not None
    parts = [(np.isnan(array).sum(), "NaN"), (np.isinf(array).sum(), "infinite")]
    return " and ".join(f"{n} {what}" for n, what in parts if n)


def _describe(value: Any) -> str:
    """The type, and the range of the finite values."""
    if not isinstance(value, np.ndarray | np.generic):
        return str(getattr(value, "type", value))
    text = str(ArrayType(value.dtype, value.shape))
    array = _wide(value)
    if array is None or array.size == 0:
        return text
    finite = np.isfinite(array)
    if finite.any():
        sizes = np.abs(array[finite]) if array.dtype.kind == "c" else array[finite]
        text += f", finite values from {sizes.min():.6g} to {sizes.max():.6g}"
    if not finite.all():
        first = tuple(map(int, np.argwhere(~finite)[0]))
        text += f", {_counts(value)}, first at index {list(first)}"
    return text


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
