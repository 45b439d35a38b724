"""`outline`: a function that a trace records once and calls as one Program, however often.

@fxad.outline
def layer(p, x): ...

for p in params["layers"]:      # layer runs once; what is recorded are calls of one program
    x = layer(p, x)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

from fxad.api import naming
from fxad.api.axes import in_force
from fxad.api.flat import NUMBERS, call_place, flatten_args, name_of, with_float0_nodes
from fxad.api.jit import signature
from fxad.api.naming import wraps
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import ConcretizationError
from fxad.core.pytree import KeyPath, TreeDef, describe_path
from fxad.core.record import record
from fxad.ir import labels
from fxad.ir.program import OPS, Program
from fxad.trace import location
from fxad.trace.array import Array
from fxad.trace.tracer import bind, innermost_recorder, stage

# Of these, equal ones are the same function. Other callables may be equal and yet differ.
_FUNCTIONS = (FunctionType, MethodType, functools.partial)


@record
class _Form:
    """A tree without its arrays: Python's numbers by their places among the leaves, and the
    structure."""

    numbers: Mapping[int, Any]
    tree: TreeDef

    @property
    def places(self) -> list[int]:
        """Those of the arrays."""
        return [i for i in range(self.tree.num_leaves) if i not in self.numbers]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays."""
        leaves = {**dict(zip(self.places, arrays, strict=True)), **self.numbers}
        return self.tree.unflatten([leaves[i] for i in range(len(leaves))])


def _taken_apart(
    given: Any, what: str, place: Callable[[KeyPath], str]
) -> tuple[list[Array], _Form]:
    plain = pytree.leaves(given)
    if any(map(dt.is_float0, plain)):  # which hold nothing: part of the structure
        given = with_float0_nodes(given)
        plain = pytree.leaves(given)
    numbers = {i: v for i, v in enumerate(plain) if type(v) in NUMBERS}
    leaves, tree = flatten_args(given, what, place)
    return [v for i, v in enumerate(leaves) if i not in numbers], _Form(numbers, tree)


def _key(fun: Hashable, arrays: list[Array], form: _Form) -> tuple[Hashable, ...]:
    """What a recorded call is looked up by. Numbers are compared as they are written: 1, 1.0 and
    True are equal, as 0.0 and -0.0 are, but a function may tell them apart."""
    numbers = tuple([(i, repr(v)) for i, v in form.numbers.items()])
    around = in_force(), location.surroundings()
    return fun, signature(arrays, form.tree, ()), numbers, around


@record
class _Outlined:
    """A recorded function: a closed program, the values captured for its leading inputs, the form
    of its result and which of the arrays in it are weakly typed."""

    program: Program
    captured: list[Any]
    form: _Form
    weak: list[bool]


def outline(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded once by a trace that calls it often with arguments of the same types.

    For the equal layers of a model: tracing, derivatives and batching take the time of one layer.
    The calls are inlined before anything is compiled; only the gradients of a value that is passed
    as several arguments may be added up in another order than without. Arguments and results are
    trees of arrays and of Python numbers, which stay numbers: each new one is recorded separately.
    The function is to be pure (docs/jit.md); it may use traced values from around it. Where nothing
    is recorded (no `jit` or loop around it) it runs as if it were not outlined; a jitted function
    is compiled on its own there. Raises TypeMismatch for arguments that are no arrays, such as
    strings: bind them beforehand with `functools.partial`.

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
    what = f"outline({name_of(fun)})"

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        level = innermost_recorder()
        if level is None:
            return fun(*args, **kwargs)
        arrays, form = _taken_apart((args, kwargs), what, call_place)
        key = _key(fun if isinstance(fun, _FUNCTIONS) else wrapped, arrays, form)
        found = level.outlined.get(key)
        if found is None:
            found = level.outlined[key] = _recorded(fun, arrays, form, what)
        outs = bind(OPS["call"], *found.captured, *arrays, program=found.program)
        for out, weak in zip(outs, found.weak, strict=True):
            out.weak = weak
        return found.form.filled(outs)

    return wrapped


def _recorded(
    fun: Callable[..., Any], arrays: Sequence[Array], form: _Form, what: str
) -> _Outlined:
    made: list[Any] = []

    def flat(*values: Any) -> list[Array]:
        args, kwargs = form.filled(values)
        outs, result = _taken_apart(fun(*args, **kwargs), f"result of {what}", describe_path)
        made[:] = result, [out.weak for out in outs]
        return outs

    name, places = name_of(fun), form.places
    try:
        types, weak = [v.type for v in arrays], [v.weak for v in arrays]
        program, captured = stage(flat, types, name, weak)
    except ConcretizationError as error:
        chosen = [places[i] for i in error.inputs]
        error.of_arguments(naming.arguments_of(fun, (), form.tree, chosen), name)
        raise
    closed = program.closed()
    names = naming.arguments_of(fun, (), form.tree, places)
    labels.labelled(closed.inputs[len(captured) :], names)
    return _Outlined(closed, captured, *made)
