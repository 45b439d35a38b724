"""Branches over pytrees: cond and switch.

y = cond(x > 0, jnp.log, jnp.negative, x)

Only the chosen branch runs. Under vmap with a mapped predicate lanes take their own branch one
after another if a branch holds a loop, an effect or a call of Python; else all branches run and the
results are selected. A printed Program names which: `cond_lane_by_lane` or `cond_by_select`. Inside
`fxad.disable_jit()` the branch is chosen by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.naming import label_arguments
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.promotion import is_python_scalar, promote
from fxad.core.types import ArrayType, array_type
from fxad.ir.program import OPS, Eqn, Program, Var
from fxad.ir.rewrite import literal
from fxad.lax.carry import check_callable, described, marked
from fxad.lax.loops import in_python
from fxad.numpy.core import value_of
from fxad.trace.array import kept
from fxad.trace.tracer import stage, type_of

_MISSING = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _MISSING,
    linear: Any = None,
) -> Any:
    """true_fun(*operands) if pred else false_fun(*operands).

    pred: one bool or number. Both functions give pytrees of one structure and the same types;
    weakly typed results adapt. Raises TreeError or TypeMismatch naming the leaf otherwise.
    JAX's older form cond(pred, true_operand, true_fun, false_operand, false_fun) works too.

    >>> halve = lambda x: fxad.lax.cond(x % 2 == 0, lambda x: x // 2, lambda x: 3 * x + 1, x)
    >>> halve(6), halve(7)
    (Array(3, dtype=int32), Array(22, dtype=int32))
    >>> safe_log = lambda x: fxad.lax.cond(x > 0, jnp.log, lambda x: 0.0 * x, x)
    >>> fxad.grad(safe_log)(4.0), fxad.grad(safe_log)(-1.0)  # that of the branch that ran
    (Array(0.25, dtype=float32), Array(0., dtype=float32))
    """
    if not callable(true_fun) and len(operands) == 2 and callable(operands[1]):
        return _cond_of_two(pred, true_fun, false_fun, *operands)
    check_callable("cond", true_fun=true_fun, false_fun=false_fun)
    if operand is not _MISSING:
        operands = (*operands, operand)
    if pred is None:
        raise TypeMismatch("cond predicate is None; it must be one bool or number")
    flag = _scalar(pred, "cond: pred")
    if in_python():
        return _called("cond", true_fun if bool(value_of(pred)) else false_fun, operands)
    if type_of(flag).dtype != dt.bool_:
        flag = OPS["ne"](value_of(pred), 0)
    return _choose("cond", flag, (false_fun, true_fun), operands)


def _cond_of_two(
    pred: Any, on_true: Any, true_fun: Callable[..., Any], on_false: Any, false_fun: Any
) -> Any:
    """The form with an operand of its own for each branch."""

    def first(a: Any, b: Any) -> Any:
        return true_fun(a)

    def second(a: Any, b: Any) -> Any:
        return false_fun(b)

    return cond(pred, first, second, on_true, on_false)


def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = _MISSING,
) -> Any:
    """branches[index](*operands), with the index clamped to the branches there are. The index is an
    integer, or a bool, as that of `cond`'s equations.

    `operand` is one more operand, by name.

    >>> powers = [lambda x: jnp.ones_like(x), lambda x: x, lambda x: x * x]
    >>> fxad.jit(lambda i, x: fxad.lax.switch(i, powers, x))(2, 3.0)
    Array(9., dtype=float32)
    >>> # 7 is clamped to 2
    >>> fxad.vmap(lambda i: fxad.lax.switch(i, powers, 3.0))(jnp.array([0, 1, 7]))
    Array([1., 3., 9.], dtype=float32)
    """
    if operand is not _MISSING:
        operands = (*operands, operand)
    branches = tuple(branches)
    if not branches:
        raise BadArgument("switch: Empty branch sequence: give at least one branch")
    check_callable("switch", **{f"branch {i}": b for i, b in enumerate(branches)})
    number = _scalar(index, "switch: index")
    dtype = type_of(number).dtype
    if not (dt.is_integer(dtype) or dt.is_bool(dtype)):
        raise TypeMismatch(f"switch: the index must be an integer, not {type_of(number)}")
    last = len(branches) - 1
    if in_python():
        return _called("switch", branches[min(max(int(value_of(index)), 0), last)], operands)
    if not last:
        return _called("switch", branches[0], operands)
    if dt.is_bool(dtype):
        number = OPS["convert"](number, dtype=dt.int32)
    elif dtype != dt.int32:
        value = value_of(index)
        if last <= dt.iinfo(dtype).max:
            value = OPS["min"](value, literal(last, dtype))
        number = OPS["convert"](OPS["max"](value, literal(0, dtype)), dtype=dt.int32)
    return _choose("switch", number, branches, operands)


def _scalar(value: Any, what: str) -> Any:
    """A rank-0 operand: a Lit for Python numbers. Raises TypeMismatch for arrays."""
    array = value_of(value, what)
    if array.shape:
        raise TypeMismatch(f"{what} must be one value, not {array.type}")
    return literal(value, array.dtype) if is_python_scalar(value) else array


def _called(what: str, branch: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """The branch called by Python, on Arrays as a compiled one is: NumPy's arithmetic on arrays of
    its own would be neither fxad's nor seen by `debug.nans`."""
    leaves, tree = flatten_args((operands, {}), f"{what}: operand")
    args, _ = tree.unflatten(leaves)
    leaves, tree = flatten_args(branch(*args), f"{what}: result")
    return tree.unflatten(leaves)


def _choose(
    what: str, index: Any, functions: Sequence[Callable[..., Any]], operands: tuple[Any, ...]
) -> Any:
    leaves, tree = flatten_args((operands, {}), f"{what}: operand")
    flats = [FlatFunction(f, tree, what=f"{what} branch {described(f)}") for f in functions]
    types, weak = [type_of(v) for v in leaves], [v.weak for v in leaves]
    staged = [
        stage(flat, types, name_of(f), weak) for flat, f in zip(flats, functions, strict=True)
    ]
    given = tree.children()[0].children()
    for (program, _), f in zip(staged, functions, strict=True):
        label_arguments(program.inputs, f, given)
    _check_trees(what, functions, flats)
    goal, goal_weak = _common_types(what, functions, flats, [program for program, _ in staged])
    captured = _union([values for _, values in staged])
    branches = tuple(
        _converted(_with_captures(program, values, captured), goal) for program, values in staged
    )
    outs = _bound(index, branches, [*captured, *leaves], goal_weak)
    assert flats[0].tree is not None
    return flats[0].tree.unflatten(outs)


def _bound(
    index: Any, branches: tuple[Program, ...], operands: list[Any], weak: Sequence[bool]
) -> list[Any]:
    """The results of a cond. An operand that all branches hand on as it is needs no branch: it is
    not batched because the index is, and no derivative of it passes through the cond."""
    handed = [_handed_on(branches, i) for i in range(len(weak))]
    left = [i for i, place in enumerate(handed) if place is None]
    fewer = tuple(Program(b.inputs, b.eqns, [b.outputs[i] for i in left], b.name) for b in branches)
    found = iter(
        marked(OPS["cond"](index, *operands, branches=fewer), [weak[i] for i in left])
        if left or any(b.effects for b in branches)
        else ()
    )
    return [next(found) if place is None else kept(operands[place]) for place in handed]


def _handed_on(branches: Sequence[Program], number: int) -> int | None:
    """The place of the operand that is result `number` of every branch, if there is one."""
    places = {
        next((i for i, v in enumerate(b.inputs) if v is b.outputs[number]), None) for b in branches
    }
    return places.pop() if len(places) == 1 else None


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """`cpu(*args)` if there is a function for the CPU, the platform of this library, else
    `default(*args)`. Raises NotImplementedError without either.

    >>> fxad.lax.platform_dependent(4.0, cpu=jnp.sqrt, default=lambda x: x**0.5)
    Array(2., dtype=float32)
    """
    check_callable("platform_dependent", **per_platform)
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise NotImplementedError(
            "platform_dependent: translation rule among "
            f"{', '.join(sorted(per_platform)) or 'none'} not found for platform cpu; give cpu= or "
            "default="
        )
    return chosen(*args)


def _check_trees(what: str, functions: Sequence[Callable], flats: Sequence[FlatFunction]) -> None:
    for function, flat in zip(functions[1:], flats[1:], strict=True):
        pytree.same_structure_or_raise(
            flats[0].tree,
            flat.tree,
            f"{what}: results of {described(functions[0])} and {described(function)}",
        )


def _common_types(
    what: str,
    functions: Sequence[Callable],
    flats: Sequence[FlatFunction],
    programs: Sequence[Program],
) -> tuple[list[ArrayType], list[bool]]:
    """The result types of all branches; weakly typed results follow the others."""
    goal, weak, wrong = [], [], []
    tree = flats[0].tree
    assert tree is not None
    paths = tree.paths()
    for i, path in enumerate(paths):
        types = [p.out_types[i] for p in programs]
        flags = [f.weak[i] for f in flats]
        strong = [t.dtype for t, f in zip(types, flags, strict=True) if not f]
        dtype, is_weak = types[0].dtype, flags[0]
        if any(t.dtype != dtype for t in types) and len(set(strong)) <= 1:
            dtype, is_weak = promote(*[(t.dtype, f) for t, f in zip(types, flags, strict=True)])
        holds = all(t.dtype == dtype or f for t, f in zip(types, flags, strict=True))
        if any(t.shape != types[0].shape for t in types) or not holds:
            seen = ", ".join(
                f"{t} from {described(f)}" for t, f in zip(types, functions, strict=True)
            )
            wrong.append(f"result{pytree.keystr(path)}: {seen}")
        goal.append(array_type(types[0]).with_dtype(dtype))
        weak.append(is_weak and all(flags))
    if wrong:
        raise TypeMismatch(
            f"{what}: the branches must give the same types, but {'; '.join(wrong)}; convert with "
            ".astype or reshape"
        )
    return goal, weak


def _union(groups: Sequence[Sequence[Any]]) -> list[Any]:
    """Each captured value once."""
    found = {id(value): value for values in groups for value in values}
    return list(found.values())


def _with_captures(program: Program, own: Sequence[Any], captured: Sequence[Any]) -> Program:
    """The program closed over all branches' captures: unused ones become inputs nobody reads."""
    mine = {id(value): var for value, var in zip(own, program.consts, strict=True)}
    heads = [mine.get(id(value)) or Var(type_of(value)) for value in captured]
    return Program([*heads, *program.inputs], program.eqns, program.outputs, program.name)


def _converted(program: Program, goal: Sequence[ArrayType]) -> Program:
    """The program with its results in the dtypes of `goal`."""
    if program.out_types == tuple(goal):
        return program
    eqns, outputs = list(program.eqns), list(program.outputs)
    for i, (atom, type_) in enumerate(zip(program.outputs, goal, strict=True)):
        if atom.type != type_:
            converted = Var(type_)
            eqns.append(Eqn(OPS["convert"], (atom,), {"dtype": type_.dtype}, (converted,)))
            outputs[i] = converted
    return Program(program.inputs, eqns, outputs, program.name)
