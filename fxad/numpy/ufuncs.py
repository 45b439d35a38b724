"""`frompyfunc`: a function of scalars as one of arrays, with NumPy's folds.

larger = frompyfunc(lambda a, b: where(a > b, a, b), 2, 1)
larger(x, y)        larger.reduce(x, axis=0)        larger.outer(x, y)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.core.errors import BadArgument, ShapeError
from fxad.lax.loops import scan
from fxad.numpy import reductions
from fxad.numpy.core import asarray, axes_tuple, axis_index, cast, no_out
from fxad.numpy.creation import arange
from fxad.numpy.cumulative import cumprod, cumsum
from fxad.numpy.elementwise import where as choose
from fxad.numpy.functional import vectorize
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import broadcast_to, expand_dims, moveaxis, ravel, reshape
from fxad.trace.array import Array

__all__ = ["frompyfunc", "ufunc"]


class ufunc:  # NumPy's name
    """What `frompyfunc` gives. Folds are for functions of two arguments with one result; they go
    from the first element to the last, whether the function is associative or not.

    >>> add = jnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=0)
    >>> add.accumulate(jnp.arange(5))
    Array([ 0,  1,  3,  6, 10], dtype=int32)
    """

    def __init__(
        self, func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
    ) -> None:
        if nin < 1 or nout < 1:
            raise BadArgument(f"frompyfunc: needs arguments and results, got {nin} and {nout}")
        self._function = vectorize(func)
        self.nin, self.nout, self.nargs, self.identity = nin, nout, nin, identity
        self.__name__ = getattr(func, "__name__", "function")
        self.__doc__ = func.__doc__

    def __repr__(self) -> str:
        return f"<fxad.numpy.ufunc {self.__name__!r}>"

    def __call__(self, *args: Any) -> Any:
        """The function of the broadcast arguments' elements; a tuple of results if there are
        several."""
        if len(args) != self.nin:
            raise BadArgument(f"{self.__name__}: takes {self.nin} arguments, got {len(args)}")
        found = self._function(*args)
        count = len(found) if isinstance(found, tuple) else 1
        if count != self.nout:
            raise BadArgument(f"{self.__name__}: gives {count} results, not {self.nout}")
        return found

    def _folded(self, name: str, a: Any, dtype: Any, out: Any) -> Array:
        """The array to fold. Raises BadArgument unless the function has two arguments and a
        result."""
        if (self.nin, self.nout) != (2, 1):
            raise BadArgument(
                f"{self.__name__}.{name}: needs a function of 2 arguments with 1 result, this has "
                f"{self.nin} and {self.nout}"
            )
        no_out(f"{self.__name__}.{name}", out)
        return asarray(a, dtype=dtype)

    def _identity_of(self, value: Array) -> Any:
        """What a fold of an array starts with."""
        return self.identity

    def _start(self, rows: Array, initial: Any) -> tuple[Array, Array]:
        """What a fold starts with, in the dtype of its results, and the rows that follow."""
        if initial is None and not rows.shape[0]:
            raise ShapeError(f"{self.__name__}.reduce: an axis without elements needs initial=")
        first = rows[0] if initial is None else broadcast_to(asarray(initial), rows.shape[1:])
        rest = rows[1:] if initial is None else rows
        if not rest.shape[0]:
            return first, rest
        return first.astype(self(first, rest[0]).dtype), rest

    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """f(... f(f(initial, a_0), a_1) ..., a_n) along an axis, several in
        row-major order or, with None, all.

        Without `initial` it starts with the function's identity if there is one, else with a_0.
        `where` says which elements take part; it needs a start.
        """
        value = self._folded("reduce", a, dtype, out)
        begin = self._identity_of(value) if initial is None else initial
        if where is not None and begin is None:
            raise BadArgument(f"{self.__name__}.reduce: where= needs initial=, or an identity")
        axes = axes_tuple(axis, value.ndim, f"{self.__name__}.reduce")

        def together(x: Array) -> Array:
            """With these axes as one, the first."""
            front = moveaxis(x, axes, tuple(range(len(axes))))
            rest = front.shape[len(axes) :]
            return reshape(front, (math.prod(front.shape[: len(axes)]), *rest))

        kept = None if where is None else together(broadcast_to(asarray(where), value.shape))
        first, rest = self._start(together(value), begin)

        def step(total: Array, row: Any) -> tuple[Array, None]:
            value, mask = row if isinstance(row, tuple) else (row, None)
            new = self(total, value).astype(total.dtype)
            return (new if mask is None else choose(mask, new, total)), None

        total, _ = scan(step, first, rest if kept is None else (rest, kept))
        return expand_dims(total, axes) if keepdims else total

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """All the values that `reduce` passes through."""
        value = self._folded("accumulate", a, dtype, out)
        at = axis_index(axis, value.ndim, f"{self.__name__}.accumulate")
        rows = moveaxis(value, at, 0)
        if not rows.shape[0]:
            return value
        first, rest = self._start(rows, None)

        def step(total: Array, row: Array) -> tuple[Array, Array]:
            new = self(total, row).astype(total.dtype)
            return new, new

        return moveaxis(concatenate([first[None], scan(step, first, rest)[1]]), 0, at)

    def outer(self, A: Any, B: Any, /) -> Array:
        """The function of every pair of elements: [*A.shape, *B.shape]."""
        first, second = self._folded("outer", A, None, None), asarray(B)
        return self(reshape(first, (*first.shape, *(1,) * second.ndim)), second)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """a with a[i] = f(a[i], b[i]) done for one index after the other, so that each of equal
        ones counts; of one argument, a[i] = f(a[i]). Raises BadArgument unless inplace=False."""
        if inplace:
            raise BadArgument(f"{self.__name__}.at: arrays are immutable; pass inplace=False")
        if self.nin > 2 or self.nout != 1 or (self.nin == 2) != (b is not None):
            raise BadArgument(f"{self.__name__}.at: needs as many arrays as the function arguments")
        value = asarray(a)
        chosen = indices if isinstance(indices, tuple) else (indices,)
        places = reshape(arange(value.size), value.shape)[chosen]
        rows: Any = (ravel(places),)
        if b is not None:
            rows = (ravel(places), ravel(broadcast_to(asarray(b), places.shape)))

        def step(flat: Array, row: Any) -> tuple[Array, None]:
            place, *rest = row
            return flat.at[place].set(self(flat[place], *rest).astype(flat.dtype)), None

        return reshape(scan(step, ravel(value), rows)[0], value.shape)

    def reduceat(
        self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None
    ) -> Array:
        """For each index i and the next one j (for the last the axis' end), `reduce` of a[i:j], or
        a[i] where that is empty."""
        value = self._folded("reduceat", a, dtype, out)
        at = axis_index(axis, value.ndim, f"{self.__name__}.reduceat")
        rows, starts = moveaxis(value, at, 0), asarray(indices)
        if starts.ndim != 1:
            raise ShapeError(f"{self.__name__}.reduceat: indices are a vector, not {starts.type}")
        stops = concatenate([starts[1:], asarray([rows.shape[0]], dtype=starts.dtype)])
        firsts = rows[starts]
        firsts = cast(firsts, self(firsts, firsts).dtype)
        column = (-1, *(1,) * (rows.ndim - 1))

        def step(totals: Array, numbered: Any) -> tuple[Array, None]:
            number, row = numbered
            inside = reshape((number > starts) & (number < stops), column)
            return choose(inside, self(totals, row).astype(totals.dtype), totals), None

        totals, _ = scan(step, firsts, (arange(rows.shape[0]), rows))
        return moveaxis(totals, 0, at)


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "add": reductions.sum,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "multiply": reductions.prod,
}
_RUNNING: dict[str, Callable[..., Array]] = {"add": cumsum, "multiply": cumprod}
_PLACES = {
    "add": "add",
    "maximum": "max",
    "minimum": "min",
    "multiply": "multiply",
    "subtract": "subtract",
}  # methods of `x.at[...]`


class Known(ufunc):
    """A function of `fxad.numpy` as a ufunc: its folds are reductions where there is one."""

    def __init__(self, name: str, func: Callable[..., Any], /, nin: int, identity: Any) -> None:
        super().__init__(func, nin, 1, identity=identity)
        self.__name__ = name
        self._function = func  # which takes arrays as they are

    def _identity_of(self, value: Array) -> Any:
        """-1 of bitwise_and is True of bools."""
        if value.dtype == bool and self.__name__.startswith("bitwise"):
            return bool(self.identity)
        return self.identity

    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """As of every ufunc; subtract takes one axis or None."""
        reduction = _REDUCTIONS.get(self.__name__)
        of_bools = reduction in (reductions.all, reductions.any)
        if reduction is None or (of_bools and initial is not None):
            if self.__name__ == "subtract" and isinstance(axis, tuple) and len(axis) > 1:
                raise BadArgument("subtract.reduce: the order matters, so give one axis or None")
            return super().reduce(a, axis, dtype, out, keepdims, initial, where)
        named: dict[str, Any] = {"axis": axis, "keepdims": keepdims, "where": where}
        if not of_bools:
            named["initial"] = initial
        if reduction in (reductions.sum, reductions.prod):  # they widen small integers
            return reduction(self._folded("reduce", a, None, out), dtype=dtype, **named)
        return reduction(self._folded("reduce", a, dtype, out), **named)

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """As of every ufunc."""
        running = _RUNNING.get(self.__name__)
        if running is None:
            return super().accumulate(a, axis, dtype, out)
        return running(self._folded("accumulate", a, None, out), axis=axis, dtype=dtype)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """As of every ufunc."""
        place = _PLACES.get(self.__name__)
        if inplace or place is None or b is None:
            return super().at(a, indices, b, inplace=inplace)
        result: Array = getattr(asarray(a).at[indices], place)(b)
        return result


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A function of `nin` scalars, traced, with `nout` results, as a `ufunc`. identity: what folds
    start with. It is differentiated and compiled like others.

    >>> add = jnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=0)
    >>> add.reduce(jnp.arange(5))
    Array(10, dtype=int32)
    >>> add.outer(jnp.arange(2), jnp.arange(3))
    Array([[0, 1, 2],
           [1, 2, 3]], dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)
