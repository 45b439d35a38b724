"""What composes from the basic transformations: Jacobians, Hessians, shapes, printed programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.api import naming, views
from fxad.api.autodiff import jvp, vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.linear import as_weak
from fxad.api.naming import wraps
from fxad.api.shape_struct import ShapeDtypeStruct
from fxad.api.vectorise import vmap
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.lazy import later
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Program, is_long, show
from fxad.ir.rewrite import without_identity_views
from fxad.ops.base import zeros
from fxad.trace import location
from fxad.trace.array import Concrete
from fxad.trace.convert import is_array_like, shaped, to_value
from fxad.trace.tracer import stage

if TYPE_CHECKING:
    from fxad.api.profile import Profile
    from fxad.ir import terse
    from fxad.ir.inspection import columns as listings
    from fxad.ir.inspection import python, sides
else:
    terse = later("fxad.ir.terse")
    listings = later("fxad.ir.inspection.columns")
    python = later("fxad.ir.inspection.python")
    sides = later("fxad.ir.inspection.sides")


def _trace(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]):
    """(program, captured values, FlatFunction) of a function for example arguments."""
    leaves, tree = pytree.flatten((args, kwargs))
    for leaf in leaves:
        if not (is_array_like(leaf) or hasattr(leaf, "shape")):
            raise TypeMismatch(f"expected arrays or shape structs, got {type(leaf).__name__}")
    flat = FlatFunction(function, tree)
    weak = [bool(getattr(v, "weak", False)) or isinstance(v, int | float | complex) for v in leaves]
    program, captured = stage(flat, [shaped(v) for v in leaves], name_of(function), weak)
    return without_identity_views(program), captured, flat


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result's shapes and dtypes, as ShapeDtypeStructs; nothing is computed. What a function
    returns may hold ShapeDtypeStructs itself.

    >>> fxad.eval_shape(lambda x: (x @ x.T).sum(0), jnp.ones((3, 2)))
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """

    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        return pytree.map(_stand_in, fun(*args, **kwargs))

    program, _, flat = _trace(call, args, kwargs)
    return _structs(program, flat)


def _stand_in(leaf: Any) -> Any:
    """A value of a ShapeDtypeStruct's type."""
    if not isinstance(leaf, ShapeDtypeStruct):
        return leaf
    return as_weak(zeros(ArrayType(leaf.dtype, leaf.shape)), leaf.weak_type)


def _structs(program: Program, flat: FlatFunction) -> Any:
    """The types of a traced function's results, in their structure."""
    assert flat.tree is not None
    pairs = zip(program.out_types, flat.weak, strict=True)
    return flat.tree.unflatten(
        [ShapeDtypeStruct(t.shape, t.dtype, weak_type=weak) for t, weak in pairs]
    )


class Printed:
    """A Program with a readable text; `.program` is the object itself. `.captured`: the arrays it
    captures, in the order of its `consts`."""

    def __init__(self, program: Program, captured: Sequence[Any] = ()) -> None:
        self.program = program
        self.captured = tuple(captured)

    @property
    def eqns(self) -> tuple:
        return self.program.eqns

    def text(
        self,
        columns: Sequence[str] = (),
        *,
        style: str | None = None,
        width: int | None = None,
        profile: Profile | None = None,
    ) -> str:
        """The text, with columns beside the equations: "shape", "flops", "bytes", "lives" (numbers
        of the equations that make it and use it last), "kept" (saved, recomputed or offloaded for
        the backward pass), "phase", "time" (of `profile`, what `fxad.profile` returns for the
        function), "where" and "source" (the line of the user's code).

        style: "full" (an equation a line, all types and parameters), "terse" (equal stretches
        once, equations inside others; `fxad.ir.terse`) or "sides" (by the user's line, the backward
        pass to the right); by default the one that `str` gives: full up to 60 equations. width: of
        lines, the terminal's by default but in the full style. Raises BadArgument for another
        style, or a column that there is not.
        """
        if columns:
            return tabled(self.program, columns, profile)
        return styled(self.program, style, width)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the program as one HTML file that needs no other: coloured, folding, with the cost
        and the user's code of each line, and links from equations to their gradients. The file is
        there whole or not at all."""
        views.save_html(self.program, path)

    def _repr_html_(self) -> str:
        return views.program_html(self.program)

    def to_python(self) -> str:
        """Runnable NumPy source of the Program. Captured arrays are keyword arguments, whose
        defaults are these values where they are known and have up to 1,000 elements."""
        known = [v.data if isinstance(v, Concrete) else None for v in self.captured]
        return python.to_python(self.program, known)

    def __str__(self) -> str:
        return str(self.program)

    __repr__ = __str__


def tabled(program: Program, columns: Sequence[str], profile: Profile | None = None) -> str:
    """The text of a Program with columns: see `Printed.text`."""
    kernels = [] if profile is None else [(k.name, k.seconds, k.where) for k in profile.kernels]
    return listings.listing(program, columns, listings.Known(kernels, location.code))


def styled(program: Program, style: str | None = None, width: int | None = None) -> str:
    """The text of a Program in a style: see `Printed.text`."""
    if style not in (None, "full", "terse", "sides"):
        raise BadArgument(f"a program's style is 'full', 'terse' or 'sides', not {style!r}")
    if style == "sides":
        return sides.side_by_side(program, width)
    if style == "terse" or (style is None and is_long(program)):
        return terse.terse(program, width)
    text = show(program)
    if width is None:
        return text
    return "\n".join([part for line in text.split("\n") for part in terse.wrapped(line, width)])


def make_ir(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """make_ir(f)(*args) is the Program that tracing f for these arguments gives.

    With return_shape a pair: the Program, and the result's ShapeDtypeStructs. axis_env: None;
    names of axes come from `vmap`.

    >>> print(fxad.make_ir(lambda x: jnp.sin(x) * 2)(1.0))
    program f(x: f32[]) {
      a: f32[] = sin(x)  # ...
      b: f32[] = mul(a, 2.0:f32)  # ...
      return b
    }
    """
    if axis_env is not None:
        raise BadArgument("make_ir: axis_env must be None; name axes with vmap(..., axis_name=)")
    static = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)

    @wraps(fun, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        def call(*dynamic: Any, **named: Any) -> Any:
            merged = list(dynamic)
            for number in sorted(static):
                merged.insert(number, args[number])
            return fun(*merged, **named)

        call.__name__ = name_of(fun)
        dynamic = tuple(a for i, a in enumerate(args) if i not in static)
        program, captured, flat = _trace(call, dynamic, kwargs)
        naming.label_program(program, fun, static, flat.in_tree, flat.tree)
        printed = Printed(program, captured)
        return (printed, _structs(program, flat)) if return_shape else printed

    wrapped.__name__ = wrapped.__qualname__ = f"make_ir_{name_of(fun)}"
    return wrapped


def _argument(function: Callable[..., Any], args: tuple, number: int, kwargs: dict[str, Any]):
    def call(value: Any) -> Any:
        merged = list(args)
        merged[number] = value
        return function(*merged, **kwargs)

    return call


def _basis(tree: Any) -> tuple[Any, list[ArrayType]]:
    """A pytree of unit vectors: leaf i has a leading axis over all elements of the tree."""
    leaves, structure = flatten_args(tree, "jacobian")
    types = [v.type for v in leaves]
    total = sum(t.size for t in types)
    rows, start = [], 0
    for t in types:
        position = OPS["iota"](dtype=dt.int32, shape=(total, t.size), axis=0)
        column = OPS["iota"](dtype=dt.int32, shape=(total, t.size), axis=1)
        unit = OPS["convert"](OPS["eq"](position, OPS["add"](column, start)), dtype=t.dtype)
        rows.append(OPS["reshape"](unit, shape=(total, *t.shape)))
        start += t.size
    return structure.unflatten(rows), types


def _check_jacobian(what: str, x: Any, holomorphic: bool, allow_int: bool = False) -> None:
    """Raise TypeMismatch naming the leaf that has no derivative of the kind asked for."""
    for path, leaf in pytree.leaves_with_path(x):
        dtype = shaped(leaf).dtype
        if holomorphic and not dt.is_complex(dtype):
            problem = "with holomorphic=True it must be complex"
        elif not dt.is_inexact(dtype) and not allow_int:
            problem = "it must be a float"
        elif dt.is_complex(dtype) and not holomorphic and what == "jacfwd":
            problem = "complex numbers have only holomorphic derivatives: pass holomorphic=True"
        else:
            continue
        raise TypeMismatch(f"{what}: argument leaf x{pytree.keystr(path)} is {dtype}; {problem}")


def jacfwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Jacobian by forward mode, one jvp per input element (vectorised).

    holomorphic: arguments and results are complex, and the derivative is that of a holomorphic
    function.

    >>> fxad.jacfwd(lambda x: x[:2] * x[2])(jnp.array([1.0, 2.0, 5.0]))
    Array([[5., 0., 1.],
           [0., 5., 2.]], dtype=float32)
    """

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        pushed = [_pushed_basis(fun, args, kwargs, n, has_aux, holomorphic) for n in numbers]
        trees, derivatives = zip(*pushed, strict=True)
        leaves = derivatives[0] if isinstance(argnums, int) else zip(*derivatives, strict=True)
        jacobian = trees[0].unflatten(list(leaves))
        return (jacobian, fun(*args, **kwargs)[1]) if has_aux else jacobian

    naming.entitle(wrapped, "jacfwd", fun, argnums=(argnums, 0))
    return wrapped


def _pushed_basis(
    fun: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    number: int,
    has_aux: bool,
    holomorphic: bool,
) -> tuple[Any, list[Any]]:
    """The structure of the results, and for each of their leaves its derivatives by one argument,
    in that argument's structure."""
    part = _argument(fun, args, number, kwargs)
    x = args[number]
    _check_jacobian("jacfwd", x, holomorphic)
    basis, types = _basis(x)
    inputs = [to_value(v) for v in pytree.leaves(x)]
    weak: list[bool] = []

    def push(tangent: Any) -> Any:
        out, derivative = jvp(part, (x,), (tangent,), has_aux=has_aux)[:2]
        weak.extend(getattr(v, "weak", False) for v in pytree.leaves(out))
        return derivative

    columns, out_tree = pytree.flatten(vmap(push, out_axes=-1)(basis))
    structure = pytree.structure(x)
    return out_tree, [
        _split_last(c, types, structure, inputs if is_weak else ())
        for c, is_weak in zip(columns, weak, strict=False)
    ]


def _split_last(columns: Any, types: list[ArrayType], structure: Any, inputs: Sequence[Any]) -> Any:
    """The last axis cut into one block per input leaf, each with that leaf's shape. `inputs` are
    those leaves where the result is weak."""
    if dt.is_float0(columns):  # of an integer result
        return structure.unflatten([np.zeros((*columns.shape, *t.shape), dt.float0) for t in types])
    lead, blocks, start = columns.shape[:-1], [], 0
    for t in types:
        block = columns[..., start : start + t.size]
        blocks.append(OPS["reshape"](block, shape=(*lead, *t.shape)))
        start += t.size
    if inputs:
        blocks = [as_weak(b, v.weak) for b, v in zip(blocks, inputs, strict=True)]
    return structure.unflatten(blocks)


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """The Jacobian by reverse mode, one vjp per output element (vectorised).

    holomorphic: arguments and results are complex, and the derivative is that of a holomorphic
    function. allow_int: integer arguments have zero derivatives instead of being an error.

    >>> fxad.jacrev(lambda x: x[:2] * x[2])(jnp.array([1.0, 2.0, 5.0]))
    Array([[5., 0., 1.],
           [0., 5., 2.]], dtype=float32)
    """

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        def part(*values: Any) -> Any:
            merged = list(args)
            for n, value in zip(numbers, values, strict=True):
                merged[n] = value
            return fun(*merged, **kwargs)

        chosen = [args[n] for n in numbers]
        chosen_values = pytree.map(to_value, chosen)
        _check_jacobian("jacrev", chosen, holomorphic, allow_int)
        if has_aux:
            out, pullback, aux = vjp(part, *chosen, has_aux=True)
        else:
            out, pullback = vjp(part, *chosen)
        basis, types = _basis(out)
        _check_real(out, holomorphic)
        rows = vmap(pullback)(basis)
        rows = rows[0] if isinstance(argnums, int) else rows
        structure = pytree.structure(out)
        leaves, inner = pytree.flatten(rows)
        split = [
            [as_weak(block, x.weak) for block in _split_first(r, types)]
            for r, x in zip(leaves, pytree.leaves(chosen_values), strict=True)
        ]
        per_output = [inner.unflatten([s[i] for s in split]) for i in range(len(types))]
        jacobian = structure.unflatten(per_output)
        return (jacobian, aux) if has_aux else jacobian

    naming.entitle(wrapped, "jacrev", fun, argnums=(argnums, 0))
    return wrapped


def _check_real(out: Any, holomorphic: bool) -> None:
    """Raise TypeMismatch for a complex result whose derivative was not said to be holomorphic."""
    for path, leaf in pytree.leaves_with_path(out):
        if dt.is_complex(shaped(leaf).dtype) and not holomorphic:
            raise TypeMismatch(
                f"jacrev: result{pytree.keystr(path)} is {shaped(leaf)}; complex results "
                "have only holomorphic derivatives: pass holomorphic=True"
            )


def _split_first(rows: Any, types: list[ArrayType]) -> list[Any]:
    if dt.is_float0(rows):  # of an integer argument
        return [np.zeros((*t.shape, *rows.shape), dt.float0) for t in types]
    blocks, start = [], 0
    for t in types:
        block = rows[start : start + t.size]
        blocks.append(OPS["reshape"](block, shape=(*t.shape, *rows.shape[1:])))
        start += t.size
    return blocks


jacobian = jacrev


def hessian(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Second derivatives: forward over reverse.

    >>> fxad.hessian(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 3.0]))
    Array([[6., 2.],
           [2., 0.]], dtype=float32)
    """
    inner = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(inner, argnums, has_aux, holomorphic)
