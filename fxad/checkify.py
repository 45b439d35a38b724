"""Errors as values: a function that may fail becomes one that returns what failed.

def f(x, i):
    checkify.check(i >= 0, "index {} is negative", i)
    return jnp.log(x[i])

checked = fxad.jit(checkify.checkify(f, errors=checkify.user_checks | checkify.nan_checks))
err, y = checked(jnp.ones(3), -1)
err.get()                                 # "index -1 is negative (`check` failed) (model.py:2)"
err.throw()                               # raises that

`fxad.debug` stops a program where it goes wrong, and runs it op by op to find the place. Here the
program stays what it is, compiled and free of effects, and tells afterwards; so it is a
transformation of functions like `jit` and `vmap`, composes with them in any order, and has a
namespace of its own, with the names of `jax.experimental.checkify`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.api.flat import flatten_args, name_of
from fxad.api.indices import recording_indices
from fxad.api.jaxpr import JAX_NAMES
from fxad.api.linear import as_weak
from fxad.api.naming import wraps
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.depth import told_when_too_deep
from fxad.core.errors import BadArgument, CheckFailed, TypeMismatch
from fxad.core.lazy import lazy as _lazy
from fxad.core.node_types import register_node
from fxad.core.record import replace
from fxad.ir.program import OPS, Opaque
from fxad.ops.programs.check import Site, lane_to_report
from fxad.ops.programs.check import check as check_op
from fxad.trace import location
from fxad.trace.array import kept
from fxad.trace.convert import is_array_like, to_value
from fxad.trace.tracer import Tracer, bind, stage, tracing
from fxad.transform.checkify import Checks

__all__ = [
    "Error",
    "ErrorCategory",
    "JaxRuntimeError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "init_error",
    "nan_checks",
    "user_checks",
]

JaxRuntimeError = CheckFailed


class ErrorCategory(enum.Enum):
    """A kind of failure; sets of them are the `errors` of `checkify`."""

    USER = "user"
    NAN = "nan"
    DIV = "div"
    INDEX = "index"


user_checks = frozenset({ErrorCategory.USER})
nan_checks = frozenset({ErrorCategory.NAN})
div_checks = frozenset({ErrorCategory.DIV})
index_checks = frozenset({ErrorCategory.INDEX})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Error:
    """The first failure of a run, or none. A pytree: it passes through `jit`, `vmap` and `scan`."""

    __slots__ = ("_code", "_sites", "_values")

    def __init__(
        self, code: Any = None, values: Sequence[Any] = (), sites: tuple[Site, ...] = ()
    ) -> None:
        self._code = code  # an int32 (None: nothing can fail), with an axis for each vmap
        self._values = tuple(values)
        self._sites = sites

    def get(self) -> str | None:
        """The message, or None if nothing failed. Of a batch a line for each example that did."""
        if self._code is None:
            return None
        codes = np.asarray(self._code)
        values = [np.asarray(v) for v in self._values]
        if codes.ndim == 0:
            return self._sites[int(codes) - 1].message(values) if codes else None
        lines = []
        for index in np.ndindex(*codes.shape):
            if codes[index]:
                text = self._sites[int(codes[index]) - 1].message([v[index] for v in values])
                lines.append(f"at mapped index {', '.join(map(str, index))}: {text}")
        return "\n".join(lines) or None

    def get_exception(self) -> CheckFailed | None:
        """The exception that `throw` would raise, or None."""
        text = self.get()
        return None if text is None else CheckFailed(text)

    def throw(self) -> None:
        """Raise CheckFailed if there was a failure: `check_error`."""
        check_error(self)

    def __repr__(self) -> str:
        traced = isinstance(self._code, Tracer)
        return f"Error({self._code!r})" if traced else f"Error({self.get()})"

    __str__ = __repr__


register_node(
    Error,
    lambda error: ((error._code, error._values), error._sites),
    lambda sites, children: Error(children[0], children[1], sites),
)

init_error = Error()


def checkify(
    f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """A function that returns (Error, result of f), where the Error is the first failure.

    errors: which failures count. `user_checks`: a `check` that does not hold (default);
    `nan_checks`: an operation whose result has a NaN; `div_checks`: a division by zero;
    `index_checks`: an index out of range, where no `mode=` says what happens then; and unions of
    these. A failure stops nothing: the result is what f computes. In loops and branches, and
    functions that f calls, jitted ones too, failures count as elsewhere, if they happen when it
    runs; of a loop the first iteration that fails. `vmap` of the function has an Error with an
    entry per example; a `vmap` inside has one for all.

    >>> from fxad import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "{x} is not positive", x=x)
    ...     return jnp.log(x)
    >>> err, y = fxad.jit(checkify.checkify(f))(-1.0)
    >>> print(err.get().split(" (")[0])
    -1.0 is not positive
    """
    kinds = frozenset(errors)
    if not all(isinstance(kind, ErrorCategory) for kind in kinds):
        raise BadArgument(
            "checkify: errors must be a set of kinds, such as checkify.nan_checks | "
            f"checkify.user_checks, not {errors!r}"
        )
    name = name_of(f)

    @wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        # Arguments are captured, not traced: a Python number stays one, and may be a size.
        args, kwargs = pytree.map(_as_array, (args, kwargs))
        tree: Any = None
        weak: list[bool] = []

        def flat() -> list[Any]:
            nonlocal tree
            outs, tree = flatten_args(f(*args, **kwargs), f"result of {name}")
            weak.extend(o.weak for o in outs)
            return outs

        with recording_indices(ErrorCategory.INDEX in kinds):
            program, given = stage(flat, [], name)
        with told_when_too_deep(name):
            checks = Checks(program, frozenset([kind.value for kind in kinds]), _jax_name)
            outs, code, values = checks.run(given)
        sites = tuple([replace(site, debug=False) for site in checks.sites])
        error = Error(code, values, sites) if sites else init_error
        marked = [as_weak(kept(o), w) for o, w in zip(outs, weak, strict=True)]
        return error, tree.unflatten(marked)

    return checked


def _jax_name(op: str) -> str:
    return JAX_NAMES.get(op, op)


def _as_array(leaf: Any) -> Any:
    """NumPy's arrays as ours: NumPy would compute with its own, unseen."""
    return to_value(leaf) if isinstance(leaf, np.ndarray) and is_array_like(leaf) else leaf


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """A failure with the message `msg.format(*fmt_args, **fmt_kwargs)`, unless pred, one bool.

    In a function that is checkified it becomes part of the Error. Elsewhere it raises CheckFailed:
    at once, or from compiled code when that runs. The arguments of the message may be traced;
    they are kept until the function returns, failure or not. debug: see `debug_check`.
    """
    what = "debug_check" if debug else "check"
    scalar = isinstance(pred, bool) or (
        is_array_like(pred) and getattr(pred, "shape", None) == () and pred.dtype == dt.bool_
    )
    if not scalar:
        raise TypeMismatch(f"{what} takes a scalar pred as argument, got {pred!r}")
    if debug and not tracing():
        return
    leaves, tree = pytree.flatten((fmt_args, fmt_kwargs))
    arrays = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    fixed = tuple([(i, Opaque(v)) for i, v in enumerate(leaves) if i not in arrays])
    values = [to_value(leaves[i], what) for i in arrays]
    site = Site("user", msg, location.calling(), tree, tuple(range(len(values))), fixed, debug)
    code = OPS["convert"](OPS["not"](to_value(pred)), dtype=dt.int32)
    check_op(code, *values, sites=Opaque((site,)))


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` in functions that are checkified; elsewhere nothing, in compiled code too."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise CheckFailed if an Error holds a failure; in a function that is checkified the failure
    becomes part of its Error. (Of a batch only the last example's, if the Error is traced.)

    Raises TypeMismatch for anything else.
    """
    if not isinstance(error, Error):
        raise TypeMismatch(f"check_error takes an Error as argument, got type {type(error)}")
    if error._code is None:
        return
    if not tracing():
        if (failure := error.get_exception()) is not None:
            raise failure
        return
    code, values = to_value(error._code), [to_value(v) for v in error._values]
    while code.ndim:
        if 0 in code.shape:
            return
        code, values = _last_of_a_batch(code, values)
    check_op(code, *values, sites=Opaque(error._sites))


def _last_of_a_batch(code: Any, values: list[Any]) -> tuple[Any, list[Any]]:
    """Code and values without their first axis, that of a vmap."""
    size = code.shape[0]
    flat = OPS["reshape"](code, shape=(size, code.size // size))
    lane = lane_to_report(OPS["max_reduce"](flat, axes=(1,)))
    code, *values = (bind(OPS["gather"], v, lane, axes=(0,)) for v in (code, *values))
    return code, values


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
