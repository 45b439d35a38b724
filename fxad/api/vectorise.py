"""`vmap`: a function of one example becomes a function of many."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from fxad.api import naming
from fxad.api.axes import named
from fxad.api.flat import FlatFunction, call_place, flatten_args, name_of
from fxad.api.linear import as_weak_as
from fxad.api.naming import wraps
from fxad.core import pytree
from fxad.core.depth import told_when_too_deep
from fxad.core.errors import BadArgument, ShapeError, TreeError, TypeMismatch
from fxad.core.masks import merge, select
from fxad.core.types import INT32, ArrayType
from fxad.ir.program import OPS
from fxad.ops.base import spread
from fxad.trace.convert import is_array_like
from fxad.trace.tracer import Lane, stage, type_of
from fxad.transform.batch import batch_eval


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """A function of one example as a function of a batch, computed for all examples at once.

    in_axes: which axis of every argument holds the examples. An int for all, or a tuple with one
    entry per argument: an int, None for an argument that all examples share (it need not be an
    array, and Python's numbers stay what they are), or a pytree prefix of the argument with those
    as leaves. Keyword arguments are mapped over axis 0. out_axes: likewise, where the results have
    it. axis_size: the number of examples, needed only if every in_axes is None. axis_name: a name
    by which examples talk to each other, through fxad.lax.psum and the like.

    >>> x = jnp.arange(6.0).reshape(3, 2)
    >>> fxad.vmap(lambda row, w: row @ w, in_axes=(0, None))(x, jnp.array([1.0, 10.0]))
    Array([10., 32., 54.], dtype=float32)
    >>> fxad.vmap(fxad.grad(lambda w, x: jnp.sum(w * x) ** 2), in_axes=(None, 0))(jnp.ones(2), x)
    Array([[ 0.,  2.],
           [20., 30.],
           [72., 90.]], dtype=float32)
    >>> fxad.vmap(lambda x: x - fxad.lax.pmean(x, "batch"), axis_name="batch")(jnp.arange(3.0))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    name = name_of(fun)
    if not (in_axes is None or isinstance(in_axes, int | tuple | list)):
        raise TypeMismatch(
            f"vmap({name}): in_axes must be an int, None, or a tuple with an entry for each "
            f"positional argument, not {in_axes!r}"
        )
    _check_axes(in_axes, f"vmap({name}): in_axes")
    _check_axes(out_axes, f"vmap({name}): out_axes")

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        axes = _leaf_axes(in_axes, args, kwargs, name)
        leaves, axes, flat = _mapped_leaves(fun, args, kwargs, axes, name)
        size = _size(leaves, axes, axis_size, args, kwargs, name)
        places = {i: a for i, a in enumerate(axes) if a is not None}
        moved = [move_axis(leaves[i], a, 0) for i, a in places.items()]
        types = [_lane(type_of(v)) for v in moved]
        weak = [v.weak for v in moved]

        def one(*lanes: Any) -> Any:
            """Of one lane; what is not mapped stays what it is, with its values."""
            given = list(leaves)
            for place, lane in zip(places, lanes, strict=True):
                given[place] = lane
            return flat(*given)

        if axis_name is not None:
            one = _with_lane(one, axis_name, size)
            types, weak = [INT32, *types], [False, *weak]
            moved = [OPS["iota"](dtype=INT32.dtype, shape=(size,), axis=0), *moved]
        program, captured = stage(one, types, name, weak, Lane)
        flags = [*([False] * len(captured)), *([True] * len(moved))]
        with told_when_too_deep(name):
            outs, batched = batch_eval(program.closed(), size, flags, [*captured, *moved])
        return flat.tree.unflatten(_place(outs, batched, out_axes, flat, size, name))

    naming.entitle(wrapped, "vmap", fun, in_axes=(in_axes, 0), out_axes=(out_axes, 0))
    return wrapped


def _check_axes(axes: Any, what: str) -> None:
    for leaf in pytree.leaves(axes):
        if not isinstance(leaf, int) or isinstance(leaf, bool):
            raise TypeMismatch(
                f"{what} must be an int, None, or a pytree of these, but holds {leaf!r}"
            )


def _mapped_leaves(
    function: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    axes: list[int | None],
    name: str,
) -> tuple[list[Any], list[int | None], FlatFunction]:
    """The arrays among the arguments' leaves, their axes counted from the front, and the function
    of these arrays: what is shared by all lanes need not be an array, and a Python number among it
    stays one."""
    raw, tree = pytree.flatten((args, kwargs))
    fixed = [a is None and not _is_traced(v) for v, a in zip(raw, axes, strict=True)]
    if not any(fixed):
        leaves, tree = flatten_args((args, kwargs), f"vmap({name})", call_place)
        flat = FlatFunction(function, tree)
    else:
        inner = FlatFunction(function, tree)
        shared = select(raw, fixed)
        leaves, tree = flatten_args((tuple(select(raw, fixed, False)), {}), f"vmap({name})")
        axes = select(axes, fixed, False)

        def call(*values: Any) -> Any:
            given, named = inner.in_tree.unflatten(merge(fixed, shared, values))
            return function(*given, **named)

        flat = FlatFunction(call, tree, what=name)
    places = [
        None if a is None else _mapped_axis(a, type_of(v), name)
        for a, v in zip(axes, leaves, strict=True)
    ]
    return leaves, places, flat


def _is_traced(value: Any) -> bool:
    return is_array_like(value) and type(value) not in (bool, int, float, complex)


def _with_lane(one: Callable[..., Any], name: Hashable, size: int) -> Callable[..., Any]:
    """The function of one lane with the lane's number first, known under the axis's name."""

    def numbered(lane: Any, *lanes: Any) -> Any:
        with named(name, size, lane):
            return one(*lanes)

    return numbered


def _leaf_axes(in_axes: Any, args: tuple, kwargs: dict, name: str) -> list[int | None]:
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise BadArgument(
            f"vmap({name}): in_axes has {len(in_axes)} entries for {len(args)} positional arguments"
        )
    try:
        axes = pytree.broadcast_prefix(in_axes, args, is_leaf=lambda x: x is None)
    except TreeError:
        errors = pytree.prefix_errors(in_axes, args, is_leaf=lambda x: x is None)
        raise errors[0](f"vmap({name}): in_axes") from None
    return [*axes, *([0] * len(pytree.leaves(kwargs)))]


def _mapped_axis(axis: int, type_: ArrayType, name: str) -> int:
    if not -type_.ndim <= axis < type_.ndim:
        rank = -axis if axis < 0 else axis + 1
        raise ShapeError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its "
            f"rank should be at least {rank}, but is only {type_.ndim} (its shape is "
            f"{type_.shape}): see in_axes of vmap({name})"
        )
    return axis % type_.ndim


def _size(leaves: list, axes: list, wanted: int | None, args: Any, kwargs: Any, name: str) -> int:
    sizes = {type_of(v).shape[a] for v, a in zip(leaves, axes, strict=True) if a is not None}
    if wanted is not None:
        sizes.add(wanted)
    if len(sizes) == 1:
        return sizes.pop()
    if not sizes:
        raise BadArgument(f"vmap({name}): no argument is mapped; give in_axes or axis_size")
    pairs = pytree.leaves_with_path((args, kwargs))
    paths = [call_place(p) for p, v in pairs if len(pairs) == len(leaves) or _is_traced(v)]
    seen = ", ".join(
        f"{p}: {type_of(v).shape[a]}"
        for p, v, a in zip(paths, leaves, axes, strict=True)
        if a is not None
    )
    asked = "" if wanted is None else f"axis_size={wanted}, "
    raise ShapeError(f"vmap({name}): mapped axes have different sizes: {asked}{seen}")


def _lane(type_: ArrayType) -> ArrayType:
    return ArrayType(type_.dtype, type_.shape[1:])


def _place(outs: list, batched: list, out_axes: Any, flat: FlatFunction, size: int, name: str):
    axes = pytree.broadcast_prefix(out_axes, flat.tree, is_leaf=lambda x: x is None)
    placed: list[Any] = []
    for out, is_batched, axis in zip(outs, batched, axes, strict=True):
        if axis is None:
            if is_batched:
                paths = [p for p, _ in pytree.leaves_with_path(flat.tree.unflatten(outs))]
                path = pytree.keystr(paths[len(placed)]) if len(paths) == len(outs) else ""
                raise BadArgument(
                    f"vmap({name}): out_axes is None for result{path}, which differs between "
                    "examples"
                )
            placed.append(out)
            continue
        lanes = out if is_batched else spread(out, size)
        rank = type_of(lanes).ndim
        if not -rank <= axis < rank:
            raise ShapeError(
                f"vmap({name}): axis {axis} is out of bounds for array of dimension {rank}: see "
                "out_axes"
            )
        place = axis % rank
        assert place is not None
        placed.append(move_axis(lanes, 0, place))
    return as_weak_as(placed, flat)


def move_axis(value: Any, source: int, target: int) -> Any:
    """The array with one axis moved."""
    if source == target:
        return value
    order = [i for i in range(type_of(value).ndim) if i != source]
    order.insert(target, source)
    return OPS["transpose"](value, permutation=tuple(order))
