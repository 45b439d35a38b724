"""Functions given by the user: mapped over arrays, or chosen by conditions.

f = vectorize(lambda v, w: v @ w, signature="(n),(n)->()")
y = piecewise(x, [x < 0, x > 0], [lambda v: -v, 1.0])
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fxad.api.vectorise import vmap
from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy.core import (
    asarray,
    axis_index,
    cast,
    result_shape,
    shape_items,
    spread_to,
    value_of,
)
from fxad.numpy.elementwise import where
from fxad.numpy.manipulation import broadcast_to, expand_dims, moveaxis, reshape, shape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array

__all__ = ["apply_along_axis", "apply_over_axes", "piecewise", "vectorize"]


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """pyfunc over the broadcast leading axes of its arguments, keyword arguments too.

    signature: core axes like "(m,n),(n)->(m)", of keyword arguments in the order of the call after
    the others; without it pyfunc takes and gives 0-d arrays.
    excluded: positions and names of arguments passed as they are, as is None. Raises ShapeError
    where a core axis has two lengths, BadArgument for a signature or excluded arguments that are
    none.

    >>> f = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")
    >>> f(jnp.ones((5, 3)), jnp.ones(3))
    Array([3., 3., 3., 3., 3.], dtype=float32)
    """
    for key in excluded:
        if not (isinstance(key, str) or (isinstance(key, int) and key >= 0)):
            raise BadArgument(f"vectorize: excluded are positions or names, not {key!r}")

    @functools.wraps(pyfunc)
    def wrapped(*args: Any, **named: Any) -> Any:
        given: dict[int | str, Any] = dict(enumerate(args)) | named
        mapped = [key for key in given if key not in excluded]
        inputs, outputs = _core_axes(signature, len(mapped))
        cores = {
            key: core
            for key, core in zip(mapped, inputs, strict=True)
            if core or given[key] is not None
        }
        values = {key: asarray(given[key]) for key in cores}
        sizes: dict[str, int] = {}
        for key, core in cores.items():
            if values[key].ndim < len(core):
                raise ShapeError(
                    f"vectorize: {values[key].type} has fewer axes than in {signature!r}"
                )
            _note_sizes(sizes, core, values[key].shape, f"argument {key}")
        leads = {key: v.shape[: v.ndim - len(cores[key])] for key, v in values.items()}
        lead = result_shape("vectorize", list(leads.values()))

        def call(*items: Any) -> Any:
            merged = {**given, **dict(zip(cores, items, strict=True))}
            out = pyfunc(*[merged[i] for i in range(len(args))], **{k: merged[k] for k in named})
            if outputs is not None:
                _check_results(out, outputs, dict(sizes), signature)
            return out

        function = call
        for _ in lead:
            function = vmap(function)
        return function(
            *[broadcast_to(v, lead + v.shape[len(leads[key]) :]) for key, v in values.items()]
        )

    return wrapped


Core = tuple[str, ...]  # names of the axes of one argument or result that are not mapped


def _core_axes(signature: str | None, count: int) -> tuple[list[Core], list[Core] | None]:
    """The core axes of `count` arguments, and of the results if they are said."""
    if signature is None:
        return [()] * count, None
    halves = [
        [tuple(re.findall(r"\w+", core)) for core in re.findall(r"\(([^()]*)\)", half)]
        for half in signature.split("->")
    ]
    if len(halves) != 2 or len(halves[0]) != count:
        raise BadArgument(f"vectorize: signature {signature!r} does not take {count} arguments")
    return halves[0], halves[1]


def _note_sizes(sizes: dict[str, int], core: Core, shape: tuple[int, ...], what: str) -> None:
    """Add to `sizes` the lengths of core axes, the last ones of a shape."""
    for name, size in zip(core, shape[len(shape) - len(core) :], strict=True):
        if sizes.setdefault(name, size) != size:
            raise ShapeError(
                f"vectorize: axis {name!r} of {what} has length {size}, elsewhere {sizes[name]}"
            )


def _check_results(
    out: Any, outputs: list[Core], sizes: dict[str, int], signature: str | None
) -> None:
    """Raise ShapeError unless results have the core axes that the signature says."""
    results = out if isinstance(out, tuple | list) else (out,)
    if len(results) != len(outputs):
        raise ShapeError(f"vectorize: {len(results)} results, but the signature is {signature!r}")
    for number, (result, core) in enumerate(zip(results, outputs, strict=True)):
        own = shape(result)
        if len(own) != len(core):
            raise ShapeError(
                f"vectorize: result {number} has shape {own}, but the signature is {signature!r}"
            )
        _note_sizes(sizes, core, own, f"result {number}")


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """func1d over all 1-d slices along an axis; the axes of its result, or of each array of the
    tree that it gives, stand in that axis's place.

    >>> jnp.apply_along_axis(lambda row: row / row.sum(), 1, jnp.array([[1.0, 3.0], [2.0, 2.0]]))
    Array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    value = value_of(arr)
    at = axis_index(axis, value.ndim, "apply_along_axis")
    rows = moveaxis(value, at, -1)
    lead = rows.shape[:-1]
    out = vmap(lambda row: func1d(row, *args, **kwargs))(reshape(rows, (-1, rows.shape[-1])))

    def in_place(result: Array) -> Array:
        whole = reshape(result, (*lead, *result.shape[1:]))
        extra = range(whole.ndim - len(lead))
        return moveaxis(whole, [len(lead) + i for i in extra], [at + i for i in extra])

    return pytree.map(in_place, out)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Array:
    """func(a, axis) for one axis after the other, each of its results given to the next call. One
    with an axis less, as of a sum, gets it again with length 1.

    >>> jnp.apply_over_axes(jnp.sum, jnp.array([[1, 2, 3], [4, 5, 6]]), [0, 1])
    Array([[21]], dtype=int32)
    """
    value = value_of(a, "apply_over_axes")
    for axis in shape_items(axes):
        at = axis_index(axis, value.ndim, "apply_over_axes")
        out = value_of(func(value, axis), "apply_over_axes")
        if out.ndim not in (value.ndim, value.ndim - 1):
            raise ShapeError(
                f"apply_over_axes: the function makes {out.type} of {value.type}; the axes of its "
                "result must be as many or one less"
            )
        value = out if out.ndim == value.ndim else expand_dims(out, at)
    return value


@gives_strong
def piecewise(
    x: Any,
    condlist: Sequence[Any] | Any,
    funclist: Sequence[Any],
    *args: Any,
    **kw: Any,
) -> Array:
    """Each element by the function (or number) of the last condition that holds for it.

    One more function than conditions is the default; without it the default is 0. All functions
    see all elements. Results have the dtype of x.

    >>> x = jnp.array([-2.0, 1.0])
    >>> jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: 10 * x])
    Array([ 2., 10.], dtype=float32)
    """
    value = value_of(x, "piecewise")
    if not isinstance(condlist, list | tuple):
        condlist = [condlist]
    flags = [spread_to(value_of(c, "piecewise") != 0, value.shape) for c in condlist]
    choices = list(funclist)
    if len(choices) == len(flags) + 1:
        default = choices.pop()
    elif len(choices) == len(flags):
        default = 0
    else:
        raise BadArgument(f"piecewise: {len(choices)} functions for {len(flags)} conditions")

    def result(choice: Any) -> Any:
        found = choice(value, *args, **kw) if callable(choice) else choice
        return spread_to(cast(value_of(found, "piecewise"), value.dtype), value.shape)

    out = result(default)
    for flag, choice in zip(flags, choices, strict=True):
        out = where(flag, result(choice), out)
    return out
