"""Algebra on the last two axes, and how an op that LAPACK computes is defined.

mm(a, b)            # f32[..., n, k], f32[..., k, m] -> f32[..., n, m], equal leading axes
triangle(a, lower=True, strict=True)        # zeros on and above the diagonal
host_op("qr", run, rule, jvp=..., ...)      # reference and compiled form are both `run`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fxad.core import blas, cores
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.types import ArrayType
from fxad.ir.loops import Factoring, Fourier, HostCall
from fxad.ir.orders import LAPACK_FEW_ROWS, LAPACK_MANY_ROWS
from fxad.ir.program import OPS
from fxad.ops.arrays.movement import broadcast, iota, transpose
from fxad.ops.base import Primitive, check_kind, define, narrow, spread, zeros
from fxad.ops.base import op as op
from fxad.ops.matrices.product import dot
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Draws, Value, Values
    from fxad.trace.array import Array

KINDS = "float complex"

# LAPACK is backward stable: errors are some n * eps times a condition number. The samples of the
# contract tests are small and well conditioned, so a few hundred units bound them.
ULP = {"f16": 8, "bf16": 8, "f32": 512, "f64": 512, "c64": 512, "c128": 512}
PART = 1 << 15  # elements of an operand that are enough for a thread


def mm(a: Value, b: Value) -> Value:
    """Product of matrices with equal leading axes."""
    type_ = type_of(a)
    rank = type_.ndim
    lead = tuple(range(rank - 2))
    return dot(a, b, contract=((rank - 1,), (rank - 2,)), batch=(lead, lead), dtype=type_.dtype)


def flip(a: Value) -> Value:
    """The transpose of matrices."""
    rank = type_of(a).ndim
    return transpose(a, permutation=(*range(rank - 2), rank - 1, rank - 2))


def adjoint(a: Value) -> Value:
    """The conjugate transpose."""
    flipped = flip(a)
    return op("conj", flipped) if dt.is_complex(type_of(a).dtype) else flipped


def hermitian_part(a: Value) -> Value:
    """(a + a^H) / 2."""
    return op("mul", op("add", a, adjoint(a)), 0.5)


def real_part(a: Value) -> Value:
    """Real part of complex arrays; real arrays as they are."""
    return op("real", a) if dt.is_complex(type_of(a).dtype) else a


def places(type_: ArrayType) -> tuple[Value, Value]:
    """Row and column number of every entry."""
    axes = (type_.ndim - 2, type_.ndim - 1)
    rows, columns = (iota(dtype=dt.int32, shape=type_.shape, axis=axis) for axis in axes)
    return rows, columns


def triangle(a: Value, lower: bool, strict: bool = False) -> Value:
    """Entries of one triangle, zeros elsewhere; `strict` leaves the diagonal out."""
    type_ = type_of(a)
    rows, columns = places(type_)
    first, second = (rows, columns) if lower else (columns, rows)
    return op("select", op("gt" if strict else "ge", first, second), a, zeros(type_))


def diagonal(a: Value) -> Value:
    """The diagonals of square matrices."""
    type_ = type_of(a)
    kept = op("select", op("eq", *places(type_)), a, zeros(type_))
    return op("sum", kept, axes=(type_.ndim - 1,))


def over_rows(v: Value, like: ArrayType) -> Value:
    """v[..., j] at every [..., i, j], in the dtype of `like`."""
    axes = (*range(like.ndim - 2), like.ndim - 1)
    return _as(broadcast(v, shape=like.shape, axes=axes), like.dtype)


def over_columns(v: Value, like: ArrayType) -> Value:
    """v[..., i] at every [..., i, j], in the dtype of `like`."""
    axes = tuple(range(like.ndim - 1))
    return _as(broadcast(v, shape=like.shape, axes=axes), like.dtype)


def _as(a: Value, dtype: np.dtype) -> Value:
    return a if type_of(a).dtype == dtype else op("convert", a, dtype=dtype)


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a value's real part."""
    return dt.real_of(dtype) if dt.is_complex(dtype) else dtype


def check_matrix(name: str, a: ArrayType, square: bool = False) -> None:
    """Raise ShapeError or TypeMismatch unless `a` is a (square) matrix of inexact numbers."""
    check_kind(name, a, KINDS)
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        wanted = "square matrices" if square else "matrices"
        raise ShapeError(f"{name}: expects {wanted} in the last two axes, got {a}")


def square_type(name: str) -> Callable[..., ArrayType]:
    """Type rule: a square matrix, and a result like it."""

    def rule(a: ArrayType) -> ArrayType:
        check_matrix(name, a, square=True)
        return a

    return rule


def _guarded(
    function: Callable[..., Any], rule: Callable[..., Any]
) -> Callable[..., tuple[np.ndarray, ...]]:
    """A tuple of results over leading axes; a matrix without a solution gives NaNs."""

    def each(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        try:
            with np.errstate(all="ignore"):
                results = function(*arrays)
            return results if isinstance(results, tuple) else (results,)
        except np.linalg.LinAlgError:
            if arrays[0].ndim > 2:
                lanes = [each(*lane) for lane in zip(*arrays, strict=True)]
                return tuple(map(np.stack, zip(*lanes, strict=True)))
            types = rule(*(ArrayType(a.dtype, a.shape) for a in arrays))
            types = types if isinstance(types, tuple) else (types,)
            return tuple(np.full(t.shape, np.nan, t.dtype) for t in types)

    def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """LAPACK has no 16-bit floats: they are computed in f32 and rounded once."""
        dtype = arrays[0].dtype
        if dtype.itemsize > 2:
            return tuple(np.asarray(r) for r in each(*arrays))
        wide = each(*(a.astype(np.float32) for a in arrays))
        return tuple(narrow(r, dtype) if r.dtype == np.float32 else r for r in wide)

    return run


def _at_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same results by several threads, where there is enough to do: each takes some of the
    leading axes. LAPACK has one thread meanwhile, for matrices that several only slow down; larger
    ones are left to all of its own. `undivided` is the function itself, which `to_python` writes.
    """

    def divided(*arrays: np.ndarray, **params: Any) -> Any:
        first, over = arrays[0], _axes(params)
        rows = max([max(a.shape[-2:]) for a in arrays]) if over is None else 0
        alone = LAPACK_FEW_ROWS < rows <= LAPACK_MANY_ROWS
        if rows > LAPACK_MANY_ROWS or over == () or (first.size < 2 * PART and not alone):
            return run(*arrays, **params)
        leading = first.shape[: first.ndim - (2 if over is None else -min(over))]
        most = max(leading, default=1)
        count = min(most, first.size // PART, cores.get_num_threads())
        whole = partial(run, *arrays, **params)
        if count > 1:
            axis = leading.index(most)
            parts = [np.array_split(a, count, axis) for a in arrays]
            jobs = [partial(run, *some, **params) for some in zip(*parts, strict=True)]
            whole = partial(_joined, jobs, axis)
        if not alone:
            return whole()
        with blas.one_thread():
            return whole()

    divided.undivided = run  # type: ignore[attr-defined]
    return divided


def _axes(params: Mapping[str, Any]) -> Sequence[int] | None:
    """The axes of a transform by its parameters, counted from the end; None for what takes
    matrices."""
    return (params["axis"],) if "axis" in params else params.get("axes")


def _joined(jobs: Sequence[Callable[[], Any]], axis: int) -> Any:
    """What jobs return at once, joined along an axis."""
    found = cores.at_once(jobs)
    if not isinstance(found[0], tuple):
        return np.concatenate(found, axis)
    return tuple([np.concatenate(each, axis) for each in zip(*found, strict=True)])


@overload
def host_op(
    name: str,
    function: Callable[..., np.ndarray],
    type: Callable[..., ArrayType],
    factoring: Callable[..., Factoring | Fourier] | None = None,
    divided: bool = True,
    **rules: Any,
) -> Primitive[Array]: ...
@overload
def host_op(
    name: str,
    function: Callable[..., tuple[np.ndarray, ...]],
    type: Callable[..., tuple[ArrayType, ...]],
    factoring: Callable[..., Factoring | Fourier] | None = None,
    divided: bool = True,
    **rules: Any,
) -> Primitive[tuple[Array, ...]]: ...
def host_op(
    name: str,
    function: Callable[..., Any],
    type: Callable[..., Any],
    factoring: Callable[..., Factoring | Fourier] | None = None,
    divided: bool = True,
    **rules: Any,
) -> Primitive[Any]:
    """Define an op that NumPy computes over leading axes, in the middle of a plan.

    factoring(types, **params): what it computes, for executors that have code for it. divided: may
    threads take some of the matrices each? Not if Python takes steps for all of them together.
    """

    def results(*arrays: np.ndarray, **params: Any) -> tuple[np.ndarray, ...]:
        return _guarded(partial(function, **params), partial(type, **params))(*arrays)

    def loops(types: Sequence[ArrayType], **params: Any) -> HostCall:
        run: Any = partial(_at_once(results) if divided else results, **params)
        if factoring is not None:
            run.factoring = factoring(*types, **params)
        return HostCall(run)

    def reference(*arrays: np.ndarray, **params: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        found = results(*arrays, **params)
        return found if len(found) > 1 else found[0]

    def batch(size: int, batched: Sequence[bool], args: Values, **params: Any) -> Any:
        whole = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
        return bind(OPS[name], *whole, **params)

    return define(
        name,
        type=type,
        numpy=_at_once(reference) if divided else reference,
        batch=batch,
        loops=loops,
        ulp=ULP,
        dtypes=rules.pop("dtypes", KINDS),
        **rules,
    )


def regular(r: Draws, *shape: int) -> np.ndarray:
    """Sample: well-conditioned matrices."""
    x = r.x(*shape)
    return np.asarray(x + 6 * np.eye(shape[-2], shape[-1])).astype(x.dtype)


def positive(r: Draws, *shape: int) -> np.ndarray:
    """Sample: Hermitian matrices whose eigenvalues are positive and apart from each other."""
    x = r.x(*shape)
    wide = x.astype(np.complex128 if dt.is_complex(x.dtype) else np.float64)
    square = wide @ np.conj(np.swapaxes(wide, -1, -2)) / shape[-1]
    return np.asarray(square + np.diag(np.arange(2, shape[-1] + 2) * 2.0)).astype(x.dtype)
