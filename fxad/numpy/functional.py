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
from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy.core import asarray, axis_index, cast, result_shape, spread_to, value_of
from fxad.numpy.elementwise import where
from fxad.numpy.manipulation import broadcast_to, moveaxis, reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array

__all__ = ["apply_along_axis", "piecewise", "vectorize"]


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int] = (), signature: str | None = None
) -> Callable[..., Any]:
    """pyfunc over the broadcast leading axes of its arguments.

    signature: core axes like "(m,n),(n)->(m)"; without it pyfunc takes and gives 0-d arrays.
    excluded: positions of arguments passed as they are.

    >>> f = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")
    >>> f(jnp.ones((5, 3)), jnp.ones(3))
    Array([3., 3., 3., 3., 3.], dtype=float32)
    """

    @functools.wraps(pyfunc)
    def wrapped(*args: Any) -> Any:
        mapped = [i for i in range(len(args)) if i not in excluded]
        values = [asarray(args[i]) for i in mapped]
        ranks = _core_ranks(signature, len(values))
        for value, rank in zip(values, ranks, strict=True):
            if value.ndim < rank:
                raise ShapeError(f"vectorize: {value.type} has fewer axes than in {signature!r}")
        leads = [v.shape[: v.ndim - r] for v, r in zip(values, ranks, strict=True)]
        shape = result_shape("vectorize", leads)

        def call(*cores: Any) -> Any:
            merged = list(args)
            for number, core in zip(mapped, cores, strict=True):
                merged[number] = core
            return pyfunc(*merged)

        function = call
        for _ in shape:
            function = vmap(function)
        cores = [v.shape[v.ndim - r :] for v, r in zip(values, ranks, strict=True)]
        return function(
            *[broadcast_to(v, shape + core) for v, core in zip(values, cores, strict=True)]
        )

    return wrapped


def _core_ranks(signature: str | None, count: int) -> list[int]:
    if signature is None:
        return [0] * count
    inputs = re.findall(r"\(([^()]*)\)", signature.partition("->")[0])
    if len(inputs) != count or "->" not in signature:
        raise BadArgument(f"vectorize: signature {signature!r} does not take {count} arguments")
    return [len([name for name in core.split(",") if name.strip()]) for core in inputs]


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Array:
    """func1d over all 1-d slices along an axis; its results' axes stand in that axis's place.

    >>> jnp.apply_along_axis(lambda row: row / row.sum(), 1, jnp.array([[1.0, 3.0], [2.0, 2.0]]))
    Array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    value = value_of(arr)
    at = axis_index(axis, value.ndim, "apply_along_axis")
    rows = moveaxis(value, at, -1)
    lead = rows.shape[:-1]
    out = vmap(lambda row: func1d(row, *args, **kwargs))(reshape(rows, (-1, rows.shape[-1])))
    out = reshape(out, (*lead, *out.shape[1:]))
    extra = out.ndim - len(lead)
    return moveaxis(out, tuple(range(len(lead), out.ndim)), tuple(range(at, at + extra)))


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
