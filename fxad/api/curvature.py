"""Second derivatives without the Hessian: products with it, its diagonal, Gauss-Newton products.

fxad.hvp(loss, (w,), (v,))                         H v
fxad.hessian_diag(loss)(w)                         diag H
fxad.gnvp(model, loss_of_outputs, (w,), (v,))      J^T (H of the loss) J v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.analysis.colouring import colour_apart
from fxad.api.autodiff import grad, jvp, linearise, vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.sparse import pattern_of, picked, row, seeds
from fxad.api.vectorise import vmap
from fxad.core.errors import BadArgument, ShapeError, TreeError, TypeMismatch
from fxad.ops.base import full, zeros
from fxad.trace.tracer import type_of

_LANES = 64  # tangents per pass


def hvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> Any:
    """Hessian times a vector, without the Hessian: forward over reverse.

    The product has the structure of `primals`, without the tuple if there is one argument.

    >>> fxad.hvp(lambda x: x[0] ** 2 * x[1], (jnp.array([1.0, 3.0]),), (jnp.array([1.0, 0.0]),))
    Array([6., 2.], dtype=float32)
    """

    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeMismatch(
            "hvp: primals and tangents must be tuples, one entry per argument: hvp(f, (x,), (v,))"
        )

    def gradient(*xs: Any) -> Any:
        value, pullback = vjp(function, *xs)
        return pullback(full(1, type_of(value)))

    found = jvp(gradient, primals, tangents)[1]
    return found[0] if len(primals) == 1 else found


def hessian_diag(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """A function returning the diagonal of the Hessian of a scalar function, like the argument.

    Elements that the Hessian does not couple (see `sparse_hessian`) share a product with it: one
    product suffices for a sum of functions of one element each, n where everything is coupled.

    >>> fxad.hessian_diag(lambda x: (x**3).sum())(jnp.array([1.0, 2.0]))
    Array([ 6., 12.], dtype=float32)
    """
    name = f"hessian_diag({name_of(function)})"
    gradient = grad(function, argnums)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not -len(args) <= argnums < len(args):
            raise BadArgument(f"{name}: argnums is {argnums}, the call has {len(args)} arguments")

        def part(value: Any) -> Any:
            merged = list(args)
            merged[argnums] = value
            return gradient(*merged, **kwargs)

        leaves, tree = flatten_args(((args[argnums],), {}), name)
        flat = FlatFunction(part, tree)
        found = pattern_of(flat, leaves, name)
        colours = colour_apart(found.rows, found.cols, found.shape[1])
        diagonal = _diagonal(flat, leaves, colours)
        blocks, start = [], 0
        for leaf in leaves:
            blocks.append(diagonal[start : start + leaf.size].reshape(leaf.shape))
            start += leaf.size
        return tree.unflatten(blocks)[0][0]

    wrapped.__name__ = name_of(function)
    return wrapped


def _diagonal(flat: FlatFunction, leaves: list[Any], colours: np.ndarray) -> Any:
    """Elements (i, i) of the Jacobian of `flat`, some tangents at a time."""

    def push(*tangents: Any) -> Any:
        return row(jvp(lambda *xs: flat(*xs), tuple(leaves), tangents)[1])

    types = [v.type for v in leaves]
    passes = int(colours.max(initial=-1)) + 1
    places = np.arange(len(colours))
    total: Any = None
    for start in range(0, passes, _LANES):
        lanes = min(_LANES, passes - start)
        here = (colours >= start) & (colours < start + lanes)
        compressed = vmap(push)(*seeds(colours - start, lanes, types))
        part = picked(compressed, np.where(here, colours - start, 0), places) * here
        total = part if total is None else total + part
    return zeros(types[0].with_shape((0,))) if total is None else total


def gnvp(
    model: Callable[..., Any],
    loss: Callable[[Any], Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
) -> Any:
    """Gauss-Newton matrix of loss(model(*primals)) times a vector: J^T (Hessian of the loss) J v.

    `loss` takes the model's result and gives a scalar. For a loss convex in the model's result the
    matrix is positive semidefinite. The product has the structure of `primals`, without the tuple
    if there is one argument. Raises TreeError if the tangents' structure differs.

    >>> model, loss = lambda w: w**2, lambda y: (y**2).sum()
    >>> fxad.gnvp(model, loss, (jnp.array([1.0, 3.0]),), (jnp.ones(2),))  # 2 (2 w)**2
    Array([ 8., 72.], dtype=float32)
    """
    name = f"gnvp({name_of(model)})"
    leaves, tree = flatten_args((tuple(primals), {}), name)
    given, given_tree = flatten_args((tuple(tangents), {}), name)
    if tree != given_tree:
        raise TreeError(f"{name}: tangents have structure {given_tree}, primals have {tree}")
    for primal, tangent in zip(leaves, given, strict=True):
        if type_of(primal) != type_of(tangent):
            raise ShapeError(f"{name}: a tangent {tangent.type} for an argument {primal.type}")
    flat = FlatFunction(model, tree, what=name)
    outs, linear = linearise(flat, leaves, name_of(model))
    result = flat.tree.unflatten(outs)
    moved = flat.tree.unflatten(linear.push(given, outs))
    curved = jvp(grad(loss), (result,), (moved,))[1]
    found = linear.pull(flatten_args(curved, name)[0])
    filled = [zeros(type_of(v)) if c is None else c for c, v in zip(found, leaves, strict=True)]
    product = tree.unflatten(filled)[0]
    return product[0] if len(primals) == 1 else product
