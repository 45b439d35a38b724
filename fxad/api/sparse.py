"""Sparse Jacobians and Hessians: as many passes as colours, not as many as elements.

    m = fxad.sparse_jacobian(f)(x)         # m.rows, m.cols, m.data, m.shape
    m @ v, m.T @ u, m.toarray(), m.to_scipy()

Which entries can be other than zero follows from the traced program; columns (or rows) that share
no row (column) are coloured alike and found by one pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.analysis.colouring import colour, colour_symmetric
from fxad.analysis.sparsity import sparsity
from fxad.analysis.sparsity_pattern import Known, Pattern
from fxad.api.autodiff import grad, jvp, vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.vectorise import vmap
from fxad.compiler import inlined
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.record import valued
from fxad.ir.program import OPS
from fxad.ir.rewrite import has_op
from fxad.trace.array import Array, Concrete
from fxad.trace.convert import to_value
from fxad.trace.execute import concrete
from fxad.trace.tracer import Tracer, stage
from fxad.transform.jvp import jvp as jvp_program


class Sparsity:
    """The places of a Jacobian that can be other than zero, and how they are found.

    rows, cols: sorted, one pair per entry; shape: (elements of the result, elements of the
    argument). mode: "forward" (colours of columns), "reverse" (of rows) or "symmetric" (of columns,
    where an entry may be found as its mirror image); colours: one number per column or row; passes:
    how many there are.

    >>> pattern = fxad.sparse_jacobian(lambda x: x**2).pattern(jnp.ones(1000))
    >>> pattern.shape, pattern.passes
    ((1000, 1000), 1)
    """

    def __init__(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        shape: tuple[int, int],
        both: bool,
        symmetric: bool = False,
    ):
        self.rows = rows
        self.cols = cols
        self.shape = shape
        forward = colour(rows, cols, shape[1])
        backward = colour(cols, rows, shape[0]) if both else None
        self.mode, self.colours = "forward", forward
        if backward is not None and backward.max(initial=-1) < forward.max(initial=-1):
            self.mode, self.colours = "reverse", backward
        if symmetric:
            star = colour_symmetric(rows, cols, shape[1])
            if star.max(initial=-1) < self.colours.max(initial=-1):
                self.mode, self.colours = "symmetric", star
        self.passes = int(self.colours.max(initial=-1)) + 1 if len(rows) else 0

    def direct(self) -> np.ndarray:
        """For symmetric colours: whether entry (i, j) is alone in its colour in row i."""
        keys = self.rows * (self.passes + 1) + self.colours[self.cols]
        _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        return np.asarray(counts[which] == 1)

    def __repr__(self) -> str:
        return (
            f"Sparsity({len(self.rows)} of {self.shape[0]} x {self.shape[1]}, "
            f"{self.passes} {self.mode} passes)"
        )


@valued
class Places:
    """The places of a matrix's entries, sorted by row, each once, and its shape."""

    rows: np.ndarray
    cols: np.ndarray
    shape: tuple[int, int]


class SparseMatrix:
    """A Jacobian or Hessian in coordinates: data[k] stands at (rows[k], cols[k]); each place once,
    sorted by row. `data` is an Array (traced under jit), the places are NumPy arrays.

    `m @ x`, `x @ m` and `m.T` keep to the entries, and can be differentiated in `data` and `x`.

    >>> f = lambda x: x**2 + jnp.roll(x, 1)
    >>> m = fxad.sparse_jacobian(f)(jnp.array([1.0, 2.0, 3.0]))
    >>> m
    SparseMatrix(f32[6], Sparsity(6 of 3 x 3, 3 forward passes))
    >>> m @ jnp.ones(3)
    Array([3., 5., 7.], dtype=float32)
    """

    __array_ufunc__ = None  # NumPy's arrays leave `x @ m` to us
    __array_priority__ = 2000

    def __init__(self, data: Any, pattern: Sparsity | Places) -> None:
        self.data = data
        self.rows = pattern.rows
        self.cols = pattern.cols
        self.shape = pattern.shape
        self._pattern = pattern

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseMatrix:
        """Of a matrix or array of scipy.sparse in any format. Entries at one place are added up,
        64-bit ones become 32-bit unless x64 is on. Raises TypeMismatch for anything else."""
        if not hasattr(matrix, "tocoo"):
            raise TypeMismatch(f"from_scipy: {type(matrix).__name__} is no matrix of scipy.sparse")
        whole = matrix.tocsr().copy()
        whole.sum_duplicates()
        entries = whole.tocoo()
        rows, cols = np.asarray(entries.row, np.int64), np.asarray(entries.col, np.int64)
        order = np.lexsort((cols, rows))
        places = Places(rows[order], cols[order], (int(whole.shape[0]), int(whole.shape[1])))
        return cls(to_value(entries.data[order], "from_scipy"), places)

    def to_scipy(self) -> Any:
        """As a scipy.sparse.csr_array, with a copy of the values. Raises BadArgument where SciPy is
        not installed, TypeMismatch inside jit, where there are no values."""
        if isinstance(self.data, Tracer):
            raise TypeMismatch("to_scipy: the matrix is traced; return it from the function first")
        try:
            sparse: Any = importlib.import_module("scipy.sparse")
        except ImportError:
            raise BadArgument("to_scipy needs SciPy: pip install scipy") from None
        values = np.array(self.data)
        return sparse.coo_array((values, (self.rows, self.cols)), self.shape).tocsr()

    @property
    def pattern(self) -> Sparsity:
        """The places, with what colours they have."""
        if isinstance(self._pattern, Places):
            self._pattern = Sparsity(self.rows, self.cols, self.shape, both=True)
        return self._pattern

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        found: np.dtype = self.data.dtype
        return found

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return len(self.rows)

    @property
    def T(self) -> SparseMatrix:
        """The transpose."""
        order = np.lexsort((self.rows, self.cols))
        places = Places(self.cols[order], self.rows[order], self.shape[::-1])
        return SparseMatrix(self.data[_index(order)], places)

    def __matmul__(self, other: Any) -> Any:
        """The product with a vector or a matrix, as an Array."""
        if isinstance(other, SparseMatrix):
            raise TypeMismatch("products of two sparse matrices: multiply their to_scipy()")
        value = to_value(other, "SparseMatrix @ x")
        if value.ndim not in (1, 2) or value.shape[0] != self.shape[1]:
            raise ShapeError(
                f"SparseMatrix @ x: the matrix is {self.shape[0]} x {self.shape[1]}, x is "
                f"{value.type}"
            )
        read = value[_index(self.cols)]
        if value.ndim == 2:
            terms = OPS["reshape"](self.data, shape=(self.nnz, 1)) * read
        else:
            terms = self.data * read
        start = Concrete(np.zeros((self.shape[0], *value.shape[1:]), terms.dtype))
        return start.at[_index(self.rows)].add(terms)

    def __rmatmul__(self, other: Any) -> Any:
        """The product of a vector or a matrix with this one, as an Array."""
        value = to_value(other, "x @ SparseMatrix")
        if value.ndim not in (1, 2) or value.shape[-1] != self.shape[0]:
            raise ShapeError(
                f"x @ SparseMatrix: x is {value.type}, the matrix is {self.shape[0]} x "
                f"{self.shape[1]}"
            )
        return (self.T @ value.T).T

    def toarray(self) -> Any:
        """The matrix as an Array with its zeros: SciPy's name of `todense`."""
        return self.todense()

    def todense(self) -> Any:
        """The matrix as an Array with its zeros."""
        zeros = np.zeros(self.shape, self.data.dtype)
        updated = OPS["scatter"](
            zeros,
            self.data,
            _index(self.rows),
            _index(self.cols),
            axes=(0, 1),
            batch=0,
            mode="drop",
            monoid="set",
            unique=True,
        )
        return updated

    def __repr__(self) -> str:
        rows, cols = self.shape
        entries = f"{self.nnz} of {rows} x {cols}"
        known = self._pattern if isinstance(self._pattern, Sparsity) else entries
        return f"SparseMatrix({self.data.type}, {known})"


def _index(values: np.ndarray) -> Any:
    return Concrete(values.astype(np.int32))


def sparse_jacobian(
    function: Callable[..., Any], argnums: int = 0, *, sparsity: Sparsity | None = None
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `function` by one argument as a SparseMatrix.

    Rows count the elements of the result's leaves, columns those of the argument's, in order. The
    pattern is found anew at each call outside jit; `sparse_jacobian(f).pattern(*args)` is that
    alone, to be given as `sparsity` where it never changes. Structural zeros come from constants
    and indices that do not depend on arguments; where indices are computed from arguments,
    everything is taken to depend on everything. Loops are followed trip by trip; where the number
    of trips depends on arguments, the pattern is that of any number of them. Raises TypeMismatch
    if a leaf is not a float (or complex), ShapeError if `sparsity` is of another shape.

    >>> f = lambda x: x[1:] - x[:-1]
    >>> j = fxad.sparse_jacobian(f)(jnp.ones(1000))
    >>> j.shape, len(j.data), j.pattern.passes
    ((999, 1000), 1998, 2)
    """
    return _sparse(function, argnums, sparsity, symmetric=False)


def _sparse(
    function: Callable[..., Any], argnums: int, sparsity: Sparsity | None, symmetric: bool
) -> Callable[..., Any]:
    name = f"sparse_jacobian({name_of(function)})"

    def part_of(args: tuple, kwargs: dict[str, Any]) -> Callable[..., Any]:
        if not -len(args) <= argnums < len(args):
            raise BadArgument(f"{name}: argnums is {argnums}, the call has {len(args)} arguments")

        def part(value: Any) -> Any:
            merged = list(args)
            merged[argnums] = value
            return function(*merged, **kwargs)

        return part

    def pattern(*args: Any, **kwargs: Any) -> Sparsity:
        leaves, tree = flatten_args(((args[argnums],), {}), name)
        return pattern_of(FlatFunction(part_of(args, kwargs), tree), leaves, name, symmetric)

    def wrapped(*args: Any, **kwargs: Any) -> SparseMatrix:
        part = part_of(args, kwargs)
        leaves, tree = flatten_args(((args[argnums],), {}), name)
        found = sparsity or pattern_of(FlatFunction(part, tree), leaves, name, symmetric)
        if found.shape[1] != sum(v.size for v in leaves):
            raise ShapeError(f"{name}: the sparsity is of {found.shape}, not of this argument")
        compress = _backward if found.mode == "reverse" else _forward
        return SparseMatrix(compress(FlatFunction(part, tree), leaves, found, name), found)

    wrapped.__name__ = name_of(function)
    wrapped.pattern = pattern  # type: ignore[attr-defined]
    return wrapped


def sparse_hessian(
    function: Callable[..., Any], argnums: int = 0, *, sparsity: Sparsity | None = None
) -> Callable[..., Any]:
    """As `sparse_jacobian`, of the gradient of a scalar function; of two entries that mirror each
    other one may be found for both, so that an arrow takes two passes and not n.

    >>> f = lambda x: (x[1:] * x[:-1] ** 2).sum()  # each element with its neighbours
    >>> h = fxad.sparse_hessian(f)(jnp.ones(1000))
    >>> h.shape, len(h.data), h.pattern.passes
    ((1000, 1000), 2997, 3)
    """
    return _sparse(grad(function, argnums), argnums, sparsity, symmetric=True)


def pattern_of(
    flat: FlatFunction, leaves: list[Array], name: str, symmetric: bool = False
) -> Sparsity:
    """The sparsity of a flat function's Jacobian, from the Program of its tangents."""
    _check(leaves, f"{name}: the argument")
    types = [v.type for v in leaves]
    program, captured = stage(flat, types, name_of(flat.function))
    count, width = len(captured), sum(t.size for t in types)
    active = (False,) * count + (True,) * len(leaves)
    derived, on = jvp_program(program.closed(), active)
    flattened = inlined(derived)
    given = [Known(value=None if isinstance(v, Tracer) else concrete(v)) for v in captured]
    given += [Known() for _ in leaves]
    start = 0
    for t in types:
        places = np.arange(t.size)
        given.append(Known(Pattern(places, places + start, t.size, width)))
        start += t.size
    outs = iter(sparsity(flattened, given)[len(program.outputs) :])
    rows, cols, height = [], [], 0
    for type_, has in zip(program.out_types, on, strict=True):
        found = next(outs).pattern if has else None
        if found is not None:
            rows.append(found.rows + height)
            cols.append(found.cols)
        height += type_.size
    empty = np.zeros(0, np.int64)
    shape = (height, width)
    # A rule for reverse mode only need not agree with the tangents that were followed.
    own_rule = has_op(derived, "linear_call")
    entries = np.concatenate([empty, *rows]), np.concatenate([empty, *cols])
    if symmetric and not own_rule:
        both_ways = np.concatenate(entries), np.concatenate(entries[::-1])
        mirrored = Pattern.of(*both_ways, height, width)
        return Sparsity(mirrored.rows, mirrored.cols, shape, False, symmetric=True)
    real = all(dt.is_float(t.dtype) for t in program.out_types)  # rows of others are no vjp of 1
    return Sparsity(*entries, shape, real and not own_rule)


def _check(leaves: list[Array], what: str) -> None:
    for leaf in leaves:
        if not dt.is_inexact(leaf.dtype):
            raise TypeMismatch(f"{what} has a leaf {leaf.type}; only floats have derivatives")


def seeds(colours: np.ndarray, passes: int, types: list[Any]) -> list[np.ndarray]:
    """Per leaf an array [pass, *shape] with ones at the elements of the pass's colour."""
    wide = colours[None, :] == np.arange(passes)[:, None]
    seeds, start = [], 0
    for t in types:
        block = wide[:, start : start + t.size].astype(t.dtype)
        seeds.append(block.reshape(passes, *t.shape))
        start += t.size
    return seeds


def _forward(flat: FlatFunction, leaves: list[Array], found: Sparsity, name: str) -> Any:
    def push(*tangents: Any) -> Any:
        return row(jvp(lambda *xs: flat(*xs), tuple(leaves), tangents)[1])

    types = [v.type for v in leaves]
    if not found.passes:
        return Concrete(np.zeros(0, types[0].dtype if types else np.float32))
    compressed = vmap(push)(*seeds(found.colours, found.passes, types))
    rows, cols = found.rows, found.cols
    if found.mode == "symmetric":
        here = found.direct()
        rows, cols = np.where(here, rows, cols), np.where(here, cols, rows)
    return picked(compressed, found.colours[cols], rows)


def _backward(flat: FlatFunction, leaves: list[Array], found: Sparsity, name: str) -> Any:
    outs, pullback = vjp(lambda *xs: flat(*xs), *leaves)
    types = [o.type for o in outs]
    compressed = vmap(lambda *cts: row(pullback(list(cts))))(
        *seeds(found.colours, found.passes, types)
    )
    return picked(compressed, found.colours[found.rows], found.cols)


def row(leaves: Any) -> Any:
    """All leaves' elements one after another."""
    flat = [OPS["reshape"](v, shape=(v.size,)) for v in leaves]
    return flat[0] if len(flat) == 1 else OPS["concatenate"](*flat, axis=0)


def picked(compressed: Any, passes: np.ndarray, places: np.ndarray) -> Any:
    return compressed[_index(passes), _index(places)]
