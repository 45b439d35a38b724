"""Derivatives of functions over pytrees: vjp, grad, jvp, linearize, linear_transpose.

    fxad.grad(lambda w: (w["a"] * 3).sum())({"a": jnp.ones(2)})      # {"a": [3., 3.]}

Outside `jit` and `vmap` these run the function once on real values, so Python's `if` and `while`
may look at them. While a trace is active they rewrite Programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api import naming
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.linear import (
    Linear,
    Pullback,
    Pushforward,
    Signature,
    along,
    as_weak,
    as_weak_as,
    linearise,
    tangent_like,
    weakness,
    zero_tangent,
)
from fxad.api.naming import wraps
from fxad.compiler import recognise
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import CallError, ShapeError, TreeError, TypeMismatch
from fxad.core.types import array_types
from fxad.ops.base import full, zeros
from fxad.trace.array import kept
from fxad.trace.convert import shaped
from fxad.trace.tracer import stage, staging, type_of
from fxad.transform.context import differentiable
from fxad.transform.jvp import Forward, jvp_eval

# ---------------------------------------------------------------- vjp and grad


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of fun(*primals), and the map from its cotangents back to the arguments'.

    Returns (out, pullback), or (out, pullback, aux) with has_aux. `pullback(ct)` takes a pytree
    like `out` and returns a tuple of cotangents, one per argument: the vector-Jacobian product. One
    forward pass serves any number of pullbacks.

    >>> y, pullback = fxad.vjp(lambda a, b: a * b, 3.0, jnp.array([1.0, 2.0]))
    >>> y
    Array([3., 6.], dtype=float32)
    >>> pullback(jnp.ones(2))
    (Array(3., dtype=float32), Array([3., 3.], dtype=float32))
    """
    leaves, tree = flatten_args((primals, {}), f"vjp({name_of(fun)})")
    flat = FlatFunction(fun, tree, has_aux)
    outs, linear = linearise(flat, leaves, name_of(fun))
    pullback = Pullback(linear.stored(), Signature.of(name_of(fun), leaves, flat, outs))
    result = flat.result(as_weak_as(outs, flat))
    return (result[0], pullback, result[1]) if has_aux else (result, pullback)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns (value, gradient): what a training step needs, for one forward pass.

    The function must return one scalar (with has_aux: (scalar, aux), and ((scalar, aux), gradient)
    comes back). Gradients have the arguments' structure, shapes and dtypes; integer leaves raise
    TypeError naming the leaf unless allow_int, which gives arrays of `float0` for them.

    >>> loss = lambda w, x, y: jnp.mean((x * w - y) ** 2)
    >>> x, y = jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0])
    >>> fxad.value_and_grad(loss)(1.0, x, y)
    (Array(2.5, dtype=float32), Array(-5., dtype=float32))
    >>> value, (dw, dx) = fxad.value_and_grad(loss, argnums=(0, 1))(1.0, x, y)
    >>> dx
    Array([-1., -2.], dtype=float32)
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    name = name_of(fun)

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = [_argument(args, n, name) for n in numbers]

        def place(path: pytree.KeyPath) -> str:
            return f"args[{numbers[path[1].idx]}]{pytree.keystr(path[2:])}"

        def places() -> list[str]:
            return [place(p) for p, _ in pytree.leaves_with_path((tuple(chosen), {}))]

        leaves, tree = flatten_args((tuple(chosen), {}), f"grad({name})", place)
        _check_inputs(leaves, places, holomorphic, allow_int, name)

        def partial(*values: Any) -> Any:
            merged = list(args)
            for n, value in zip(numbers, values, strict=True):
                merged[n] = value
            return fun(*merged, **kwargs)

        flat = FlatFunction(partial, tree, has_aux, f"grad({name})")
        outs, linear = linearise(flat, leaves, name)
        _check_scalar(outs, flat.count, holomorphic, name)
        seed = full(1, type_of(outs[0]))
        found = linear.pull([seed, *(zeros(type_of(o)) for o in outs[1:])])
        grads = [
            as_weak(zero_tangent(type_of(v)) if g is None else g, v.weak)
            for g, v in zip(found, leaves, strict=True)
        ]
        gradient = tree.unflatten(grads)[0]
        return flat.result(as_weak_as(outs, flat)), gradient[0] if isinstance(
            argnums, int
        ) else gradient

    wrapped.__name__ = f"grad_{name}"
    naming.note_gradient(wrapped, fun, argnums, (1,))
    naming.entitle(wrapped, "value_and_grad", fun, argnums=(argnums, 0), has_aux=(has_aux, False))
    return wrapped


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `fun`, a function with one scalar result.

    The gradient has the structure, shapes and dtypes of the argument. argnums: which argument, or a
    sequence of them for a tuple of gradients. has_aux: `fun` returns (scalar, aux), and the new
    function (gradient, aux). `value_and_grad` gives the scalar too, and says what is raised.

    >>> fxad.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32)
    >>> loss = lambda params, x: jnp.sum(params["w"] * x) + params["b"]
    >>> fxad.grad(loss)({"w": jnp.ones(2), "b": 0.0}, jnp.array([3.0, 4.0]))
    {'b': Array(1., dtype=float32), 'w': Array([3., 4.], dtype=float32)}
    >>> fxad.grad(fxad.grad(lambda x: x**3))(2.0)  # the gradient of the gradient
    Array(12., dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    wrapped.__name__ = f"grad_{name_of(fun)}"
    naming.note_gradient(wrapped, fun, argnums, (0,) if has_aux else ())
    naming.entitle(wrapped, "grad", fun, argnums=(argnums, 0), has_aux=(has_aux, False))
    return wrapped


def _argument(args: tuple, number: int, name: str) -> Any:
    if not -len(args) <= number < len(args):
        raise CallError(
            f"grad({name}): argnums has {number}, but positional arguments of the call: "
            f"{len(args)}; pass the argument by position"
        )
    return args[number]


def _check_inputs(
    leaves: list[Any],
    places: Callable[[], list[str]],
    holomorphic: bool,
    allow_int: bool,
    name: str,
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
        raise TypeMismatch(f"grad({name}): {places()[number]}: {problem}")


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
    if holomorphic and not dt.is_complex(type_.dtype):
        raise TypeMismatch(
            f"grad({name}): with holomorphic=True the result must be complex, not {type_}"
        )


# ---------------------------------------------------------------- jvp and linearize


def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> Any:
    """The result of fun(*primals), and its derivative along the direction `tangents`.

    tangents: a sequence like primals, with the same structure, shapes and dtypes. Forward mode
    computes both in one pass and keeps nothing, so it suits functions of few inputs. With has_aux
    (result, derivative, aux).

    >>> fxad.jvp(lambda x: x**2, (3.0,), (1.0,))
    (Array(9., dtype=float32), Array(6., dtype=float32))
    >>> y, dy = fxad.jvp(jnp.multiply, (2.0, 5.0), (1.0, 0.0))  # along the first argument
    >>> dy
    Array(5., dtype=float32)
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeMismatch("jvp: primals and tangents must be tuples, one entry per argument")
    name = name_of(fun)
    leaves, tree = flatten_args((tuple(primals), {}), f"jvp({name})")
    if type(primals) is not type(tangents):
        raise TreeError(
            f"jvp({name}): primals and tangents must both be tuples or both lists, not "
            f"{type(primals).__name__} and {type(tangents).__name__}"
        )
    tangents = along(tree, (tuple(tangents), {}), f"jvp({name}): tangents", "the primals")
    given = [
        tangent_like(type_of(p), t, f"a tangent of {name}")
        for p, t in zip(leaves, tangents, strict=True)
    ]
    flat = FlatFunction(fun, tree, has_aux)
    outs, dual = _push_forward(flat, leaves, given, name)
    dual = [
        zero_tangent(type_of(o)) if d is None else kept(d) for o, d in zip(outs, dual, strict=True)
    ]
    result = flat.result(as_weak_as(outs, flat))
    dual = [as_weak(d, weak) for d, weak in zip(dual, flat.weak, strict=True)]
    derivative = flat.tree.unflatten(dual[: flat.count])
    return (result[0], derivative, result[1]) if has_aux else (result, derivative)


def _push_forward(flat: FlatFunction, primals: list, tangents: list, name: str):
    if staging():
        program, captured = stage(flat, [type_of(p) for p in primals], name, weakness(primals))
        program, captured = recognise(program, captured)
        none = [None] * len(captured)
        return jvp_eval(program.closed(), [*captured, *primals], [*none, *tangents])
    with Forward() as level:
        pairs = [level.lower(o) for o in flat(*map(level.dual, primals, tangents))]
    return [p for p, _ in pairs], [t for _, t in pairs]


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of fun(*primals), and the linear map of tangents there.

    Returns (out, push), or (out, push, aux) with has_aux. `push(*tangents)` is what `jvp` gives,
    but the function itself is computed only once, however many tangents follow.

    >>> y, push = fxad.linearize(jnp.square, 3.0)
    >>> push(1.0), push(10.0)
    (Array(6., dtype=float32), Array(60., dtype=float32))
    """
    leaves, tree = flatten_args((primals, {}), f"linearize({name_of(fun)})")
    flat = FlatFunction(fun, tree, has_aux)
    outs, linear = linearise(flat, leaves, name_of(fun))
    push = Pushforward(linear.stored(), Signature.of(name_of(fun), leaves, flat, outs))
    result = flat.result(as_weak_as(outs, flat))
    return (result[0], push, result[1]) if has_aux else (result, push)


def linear_transpose(fun: Callable[..., Any], *examples: Any) -> Pullback:
    """The transpose of a linear function: for a product with a matrix, that with its transpose.

    examples: arrays, or anything with shape and dtype, that give the types of the arguments; their
    values are not looked at. The transpose returns a tuple, one item per argument. Integers go to
    integers, floats to floats.

    Raises TypeMismatch if an integer argument meets a result that is none, or the reverse.

    >>> total = fxad.linear_transpose(jnp.sum, jnp.zeros(3))  # a sum is transposed to a broadcast
    >>> total(2.0)
    (Array([2., 2., 2.], dtype=float32),)
    """
    name = name_of(fun)
    leaves, tree = pytree.flatten((examples, {}))
    types = [shaped(v) for v in leaves]
    flat = FlatFunction(fun, tree)
    program, captured = stage(flat, types, name)
    outs = array_types(program.out_types)
    if len({differentiable(t) for t in (*types, *outs)}) > 1:
        raise TypeMismatch(
            f"linear_transpose({name}): arguments {list(map(str, types))} and results "
            f"{list(map(str, outs))} must all be integers, or all be floats or complex"
        )
    linear = Linear(program.closed(), captured, (True,) * len(types), (True,) * len(outs))
    weak = (False,) * len(types), (False,) * len(outs)
    return Pullback(linear, Signature(name, tree, tuple(types), flat.tree, outs, *weak, plain=True))
