"""`outline`: a function that a trace records once and calls as one Program, however often.

@fxad.outline
def layer(p, x): ...

for p in params["layers"]:      # layer runs once; what is recorded are calls of one program
    x = layer(p, x)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.axes import in_force
from fxad.api.flat import FlatFunction, call_place, flatten_args, name_of, with_number_nodes
from fxad.api.jit import signature
from fxad.api.naming import label_arguments
from fxad.compiler import recognise
from fxad.core.pytree import TreeDef
from fxad.core.record import record
from fxad.ir.program import OPS, Program
from fxad.trace import location
from fxad.trace.tracer import bind, innermost_recorder, stage


@record
class _Outlined:
    """A recorded function: a closed program, the values captured for its leading inputs, and the
    structure of its results and which of them are weakly typed."""

    program: Program
    captured: list[Any]
    tree: TreeDef
    weak: tuple[bool, ...]


def outline(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded once by a trace that calls it often with arguments of the same types.

    For the equal layers of a model: tracing, derivatives and batching take the time of one layer.
    The compiled program is that of the plain function. Arguments and results are trees of arrays;
    Python numbers and None among them stay what they are, and other numbers are recorded anew. The
    function is to be pure (docs/jit.md); it may use traced values from around it. Where nothing is
    recorded (no `jit`, no loop around it) it runs as if it were not outlined, unlike a jitted one,
    which is compiled alone there. Raises TypeMismatch for arguments that are no arrays, such as
    strings: bind them with `functools.partial` before.

    >>> count = 0
    >>> @fxad.outline
    ... def layer(w, x):
    ...     global count
    ...     count += 1
    ...     return jnp.tanh(x @ w)
    >>> @fxad.jit
    ... def model(weights, x):
    ...     for w in weights:
    ...         x = layer(w, x)
    ...     return jnp.sum(x)
    >>> model([jnp.eye(2)] * 8, jnp.ones(2)), count
    (Array(0.78284144, dtype=float32), 1)
    """
    name = name_of(fun)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        level = innermost_recorder()
        if level is None:
            return fun(*args, **kwargs)
        given = with_number_nodes((args, kwargs))
        leaves, tree = flatten_args(given, name, call_place)
        key = (wrapped, *signature(leaves, tree, ()), in_force(), location.surroundings())
        found = level.outlined.get(key)
        if found is None:
            found = level.outlined[key] = _outlined(FlatFunction(fun, tree), leaves, name)
            label_arguments(found.program.inputs[len(found.captured) :], fun, *given)
        outs = bind(OPS["call"], *found.captured, *leaves, program=found.program)
        for out, weak in zip(outs, found.weak, strict=True):
            out.weak = weak
        return found.tree.unflatten(outs)

    return wrapped


def _outlined(flat: FlatFunction, leaves: Sequence[Any], name: str) -> _Outlined:
    weak = [v.weak for v in leaves]
    program, captured = recognise(*stage(flat, [v.type for v in leaves], name, weak))
    return _Outlined(program.closed(), captured, flat.tree, flat.weak)
