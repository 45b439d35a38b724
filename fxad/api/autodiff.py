"""grad, value_and_grad, vjp, jvp, linearize, jacobians - over pytrees.

Outside `jit` and `vmap` these run the function once on real values, so Python's `if` and `while`
may look at them. While a trace is active they rewrite Programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError, TreeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import Program
from fxad.ops.base import full, zeros
from fxad.passes.recognise import recognise
from fxad.trace.array import Concrete, kept
from fxad.trace.convert import shaped
from fxad.trace.tracer import stage, staging, type_of
from fxad.transform.context import differentiable, merge, run, select
from fxad.transform.jvp import Forward, jvp_eval, tangent_for
from fxad.transform.jvp import jvp as jvp_program
from fxad.transform.split import Deferred, split
from fxad.transform.transpose import transpose, transpose_eval


class Linear(NamedTuple):
    """The derivative at a point: `program`(fixed values, tangents of active inputs) -> tangents
    of active outputs."""

    program: Program
    fixed: list[Any]
    active_in: tuple[bool, ...]
    active_out: tuple[bool, ...]

    def stored(self) -> Linear:
        """The same, fit to outlive the call: memory of NumPy arguments is copied."""
        return self._replace(fixed=[kept(v) for v in self.fixed])

    def push(self, tangents: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """Tangents of all outputs (zeros where there is no dependence)."""
        results = run(self.program, [*self.fixed, *select(tangents, self.active_in)])
        given = iter(results)
        return [
            next(given) if a else _zero_tangent(type_of(o))
            for a, o in zip(self.active_out, outs, strict=True)
        ]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """A cotangent or None for every input."""
        given = select(cotangents, self.active_out)
        linear = (*([False] * len(self.fixed)), *([True] * sum(self.active_in)))
        if staging():
            closed = self.program.closed()
            derived, flags = transpose(closed, linear, (True,) * len(given))
            results = iter(run(derived, [*self.fixed, *given]))
            found = [next(results) if f else None for f in flags]
        else:
            flat = self.program.closed()
            values = [*self.fixed, *([None] * sum(self.active_in))]
            found = transpose_eval(flat, linear, values, given)
        return merge(self.active_in, found, [None] * (len(self.active_in) - sum(self.active_in)))


def _zero_tangent(type_: ArrayType) -> Any:
    return zeros(type_)


def linearise(function: Callable[..., list[Any]], primals: Sequence[Any], name: str):
    """Results of a flat function and its derivative there, running the function once."""
    active = tuple(differentiable(p) for p in primals)
    if staging():
        return _linearise_staged(function, primals, active, name)
    deferred = Deferred()
    with deferred:
        pending = [deferred.input(type_of(p)) for p in select(primals, active)]
        given = iter(pending)
        with Forward() as level:
            duals = [
                level.dual(p, next(given)) if a else p for p, a in zip(primals, active, strict=True)
            ]
            pairs = [level.lower(o) for o in function(*duals)]
        outs = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        program, fixed = deferred.finish(pending, [t for t in tangents if t is not None], name)
    active_out = tuple(t is not None for t in tangents)
    return outs, Linear(program.closed(), fixed, active, active_out)


def _linearise_staged(
    function: Callable[..., list[Any]], primals: Sequence[Any], active: tuple, name: str
):
    program, captured = stage(function, [type_of(p) for p in primals], name, _weak(primals))
    program, captured = recognise(program, captured)
    closed = program.closed()
    mask = (*([False] * len(captured)), *active)
    # Values captured from an enclosing trace are constants here: they carry no tangent of ours.
    derived, active_out = jvp_program(closed, mask)
    count = len(closed.outputs)
    unknown = (*([False] * len(mask)), *([True] * sum(mask)))
    force = (*([False] * count), *([True] * sum(active_out)))
    s = split(derived, unknown, force)
    results = run(s.known, [*captured, *primals])
    return results[:count], Linear(s.rest, results[count:], active, active_out)


def _weak(values: Sequence[Any]) -> list[bool]:
    return [bool(getattr(v, "weak", False)) for v in values]


# ---------------------------------------------------------------- vjp and grad


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Result of function(*primals) and the map from its cotangents back to the arguments'.

    Returns (out, pullback), or (out, pullback, aux) with has_aux. `pullback(ct)` takes a pytree
    like `out` and returns a tuple of cotangents, one per argument.
    """
    leaves, tree = flatten_args((primals, {}), f"vjp({name_of(function)})")
    flat = FlatFunction(function, tree, has_aux)
    outs, linear = linearise(flat, leaves, name_of(function))
    linear = linear.stored()
    result = flat.result(outs)
    types = [type_of(v) for v in leaves]
    out_tree = flat.tree

    def pullback(cotangent: Any) -> tuple:
        given, given_tree = flatten_args(cotangent, "cotangent")
        if given_tree != out_tree:
            raise TreeError(
                f"the cotangent's structure {given_tree} is not the result's {out_tree}"
            )
        checked = [_cotangent(c, o) for c, o in zip(given, outs[: flat.count], strict=True)]
        padded = [*checked, *(_zero_tangent(type_of(o)) for o in outs[flat.count :])]
        found = linear.pull(padded)
        filled = [_zero_tangent(t) if c is None else c for c, t in zip(found, types, strict=True)]
        return tree.unflatten(filled)[0]

    if has_aux:
        return result[0], pullback, result[1]
    return result, pullback


def _cotangent(cotangent: Any, out: Any) -> Any:
    """A cotangent of exactly the result's type; Python numbers take its dtype."""
    wanted = type_of(out)
    if type_of(cotangent).shape != wanted.shape:
        raise ShapeError(
            f"a cotangent has type {type_of(cotangent)}, but the result it belongs to is {wanted}"
        )
    if type_of(cotangent).dtype != wanted.dtype:
        if not getattr(cotangent, "weak", False):
            raise TypeMismatch(
                f"a cotangent has type {type_of(cotangent)}, but the result it belongs to is "
                f"{wanted}"
            )
        return Concrete(np.asarray(cotangent, wanted.dtype))
    return cotangent


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function returning (value, gradient with respect to the chosen arguments).

    The function must return one scalar (with has_aux: (scalar, aux)). Gradients have the
    arguments' structure, shapes and dtypes; integer leaves raise TypeError naming the leaf unless
    allow_int, which gives zeros for them.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    name = name_of(function)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = [_argument(args, n, name) for n in numbers]

        def place(path: pytree.KeyPath) -> str:
            return f"args[{numbers[path[1].idx]}]{pytree.keystr(path[2:])}"

        leaves, tree = flatten_args((tuple(chosen), {}), f"grad({name})", place)
        paths = (place(p) for p, _ in pytree.leaves_with_path((tuple(chosen), {})))
        _check_inputs(leaves, paths, holomorphic, allow_int, name)

        def partial(*values: Any) -> Any:
            merged = list(args)
            for n, value in zip(numbers, values, strict=True):
                merged[n] = value
            return function(*merged, **kwargs)

        flat = FlatFunction(partial, tree, has_aux, f"grad({name})")
        outs, linear = linearise(flat, leaves, name)
        _check_scalar(outs, flat.count, holomorphic, name)
        seed = full(1, type_of(outs[0]))
        rest = [_zero_tangent(type_of(o)) for o in outs[1:]]
        found = linear.pull([seed, *rest])
        grads = [
            _zero_tangent(type_of(v)) if g is None else g
            for g, v in zip(found, leaves, strict=True)
        ]
        gradient = tree.unflatten(grads)[0]
        return flat.result(outs), gradient[0] if isinstance(argnums, int) else gradient

    wrapped.__name__ = f"grad_{name}"
    wrapped.__doc__ = function.__doc__
    return wrapped


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function returning the gradient; with has_aux (gradient, aux). See `value_and_grad`."""
    both = value_and_grad(function, argnums, has_aux, holomorphic, allow_int)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    wrapped.__name__ = f"grad_{name_of(function)}"
    wrapped.__doc__ = function.__doc__
    return wrapped


def _argument(args: tuple, number: int, name: str) -> Any:
    if not -len(args) <= number < len(args):
        raise BadArgument(
            f"grad({name}): argnums has {number}, but the call has {len(args)} positional "
            "arguments; pass the argument by position"
        )
    return args[number]


def _check_inputs(
    leaves: list[Any], paths: Iterator[str], holomorphic: bool, allow_int: bool, name: str
) -> None:
    for number, leaf in enumerate(leaves):
        dtype = type_of(leaf).dtype
        if holomorphic and not dt.is_complex(dtype):
            problem = f"with holomorphic=True every input must be complex, not {dtype}"
        elif not dt.is_inexact(dtype) and not allow_int:
            problem = (
                f"{type_of(leaf)} is not differentiable; pass a float, take it out of argnums, or "
                "use allow_int=True"
            )
        elif dt.is_complex(dtype) or dt.is_float(dtype) or allow_int:
            continue
        raise TypeMismatch(f"grad({name}): {[*paths][number]}: {problem}")


def _check_scalar(outs: list[Any], count: int, holomorphic: bool, name: str) -> None:
    if count != 1:
        raise TypeMismatch(
            f"grad({name}): the function must return one scalar, it returned {count} arrays; use "
            "has_aux=True for further results, or vjp"
        )
    type_ = type_of(outs[0])
    if type_.shape:
        raise ShapeError(
            f"grad({name}): the function must return a scalar, it returned {type_}; take its sum "
            "or mean, or use jacrev or vjp"
        )
    if dt.is_complex(type_.dtype) and not holomorphic:
        raise TypeMismatch(
            f"grad({name}): the result is complex; take its real part or abs, or pass "
            "holomorphic=True"
        )
    if not dt.is_inexact(type_.dtype):
        raise TypeMismatch(f"grad({name}): the result {type_} is not a float")


# ---------------------------------------------------------------- jvp and linearize


def jvp(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> Any:
    """(function(*primals), its directional derivative along tangents[, aux])."""
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeMismatch("jvp: primals and tangents must be tuples, one entry per argument")
    leaves, tree = flatten_args((tuple(primals), {}), f"jvp({name_of(function)})")
    given, given_tree = flatten_args((tuple(tangents), {}), "tangents")
    if tree != given_tree:
        raise TreeError(f"jvp: tangents have structure {given_tree}, primals have {tree}")
    given = [_tangent(p, t) for p, t in zip(leaves, given, strict=True)]
    flat = FlatFunction(function, tree, has_aux)
    outs, dual = _push_forward(flat, leaves, given, name_of(function))
    dual = [_zero_tangent(type_of(o)) if d is None else d for o, d in zip(outs, dual, strict=True)]
    result = flat.result(outs)
    derivative = flat.tree.unflatten(dual[: flat.count])
    return (result[0], derivative, result[1]) if has_aux else (result, derivative)


def _tangent(primal: Any, tangent: Any) -> Any:
    """None for integer primals; Python numbers take the primal's dtype."""
    if not differentiable(primal):
        return None
    weak = isinstance(tangent, Concrete) and tangent.weak
    if weak and tangent.shape == type_of(primal).shape:
        return Concrete(np.asarray(tangent, type_of(primal).dtype))
    return tangent_for(primal, tangent)


def _push_forward(flat: FlatFunction, primals: list, tangents: list, name: str):
    if staging():
        program, captured = stage(flat, [type_of(p) for p in primals], name, _weak(primals))
        program, captured = recognise(program, captured)
        none = [None] * len(captured)
        return jvp_eval(program.closed(), [*captured, *primals], [*none, *tangents])
    with Forward() as level:
        pairs = [level.lower(o) for o in flat(*map(level.dual, primals, tangents))]
    return [p for p, _ in pairs], [t for _, t in pairs]


def linearize(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """function(*primals) and the linear map of tangents there, ready to be applied many times.

    Returns (out, push), or (out, push, aux) with has_aux.
    """
    leaves, tree = flatten_args((primals, {}), f"linearize({name_of(function)})")
    flat = FlatFunction(function, tree, has_aux)
    outs, linear = linearise(flat, leaves, name_of(function))
    linear = linear.stored()
    result = flat.result(outs)

    def push(*tangents: Any) -> Any:
        given, given_tree = flatten_args((tangents, {}), "tangents")
        if given_tree != tree:
            raise TreeError(f"linearize: tangents have structure {given_tree}, not {tree}")
        checked = [_tangent(p, t) for p, t in zip(leaves, given, strict=True)]
        return flat.tree.unflatten(linear.push(checked, outs)[: flat.count])

    return (result[0], push, result[1]) if has_aux else (result, push)


def linear_transpose(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """The transpose of a linear function; `examples` (arrays, or anything with shape and dtype)
    give the types of its arguments."""
    leaves, tree = pytree.flatten((examples, {}))
    types = [shaped(v) for v in leaves]
    flat = FlatFunction(function, tree)
    program, captured = stage(flat, types, name_of(function))
    linear = (*([False] * len(captured)), *([True] * len(leaves)))

    def back(cotangent: Any) -> tuple:
        given, _ = flatten_args(cotangent, "cotangent")
        values = [*captured, *([None] * len(leaves))]
        found = transpose_eval(program.closed(), linear, values, given)
        filled = [_zero_tangent(t) if c is None else c for c, t in zip(found, types, strict=True)]
        return tree.unflatten(filled)[0]

    return back
