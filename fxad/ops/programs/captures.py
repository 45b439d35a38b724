"""Values that a user's rule captured, inside Programs.

A custom rule is a Python function, run when a derivative is taken. What it captures is not an
operand of anything; in a transformed Program it stands as an equation

    c: f32[3] = captured(; value=@captured)

Binding that equation gives the value itself, so it vanishes in whatever trace the Program is run.
Ops that hold Programs turn it into an operand when they are bound (rule `close`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Atom, Eqn, Program, Symbol, Var
from fxad.ir.rewrite import literal
from fxad.ops.base import define, zeros
from fxad.trace.execute import concrete
from fxad.trace.tracer import bind, stage, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues, CloseRule, Params

MOST_RUNS = 256  # of equal numbers, in an array that is written into a program

captured = define(
    "captured",
    doc="A value from around a custom rule.",
    type=lambda *, value: type_of(value.value),
    numpy=lambda *, value: concrete(value.value),
    loops=lambda types, **params: Structured("captured"),
    makes_nan=False,
    dtypes="",
)


def embed(program: Program, values: Sequence[Any]) -> Program:
    """The program with its consts as equations that hold their values."""
    if not values:
        return program
    heads = [
        Eqn(captured, (), {"value": Symbol("captured", value)}, (var,))
        for var, value in zip(program.consts, values, strict=True)
    ]
    return Program(program.inputs, [*heads, *program.eqns], program.outputs, program.name)


def of_numbers(value: Any) -> AnyValue | None:
    """A small array made anew in a program, of concatenated runs of equal numbers; None for one of
    more than `MOST_RUNS`."""
    type_ = type_of(value)
    assert isinstance(type_, ArrayType)
    flat = np.asarray(value).reshape(-1)
    bits = flat.view(f"u{flat.itemsize}") if flat.itemsize <= 8 else flat
    starts = [0, *(np.flatnonzero(bits[1:] != bits[:-1]) + 1)] if flat.size else []
    if len(starts) > MOST_RUNS:
        return None
    runs = [
        bind(OPS["broadcast"], literal(flat[a], flat.dtype), shape=(int(b - a),), axes=())
        for a, b in zip(starts, [*starts[1:], flat.size], strict=True)
    ]
    if not runs:
        return zeros(type_)
    whole = runs[0] if len(runs) == 1 else bind(OPS["concatenate"], *runs, axis=0)
    return bind(OPS["reshape"], whole, shape=type_.shape)


def staged(function: Callable[..., AnyValues], types: Sequence[Type], name: str = "f") -> Program:
    """Trace a function into a Program without consts; what it captures is embedded."""
    return embed(*stage(function, types, name))


def values_in(*programs: Program) -> list[AnyValue]:
    """The captured values of some programs, each once."""
    found: dict[int, AnyValue] = {}
    for program in programs:
        for eqn in program.eqns:
            if eqn.op is captured:
                value = eqn.params["value"].value
                found[id(value)] = value
    return list(found.values())


def opened(program: Program, values: AnyValues, at: int = 0) -> Program:
    """The program with inputs for these captured values, put before its input number `at`."""
    heads = [Var(type_of(value)) for value in values]
    places = {id(value): var for value, var in zip(values, heads, strict=True)}
    swap: dict[Atom, Atom] = {}
    kept = []
    for eqn in program.eqns:
        if eqn.op is captured:
            swap[eqn.outputs[0]] = places[id(eqn.params["value"].value)]
        else:
            kept.append(eqn.with_inputs(tuple(swap.get(a, a) for a in eqn.inputs)))
    inputs = [*program.inputs[:at], *heads, *program.inputs[at:]]
    return Program(inputs, kept, [swap.get(a, a) for a in program.outputs], program.name)


def closing(names: Sequence[str], at: int, count: str = "") -> CloseRule:
    """A `close` rule: new operands at place `at`, new leading inputs of the named programs.

    `count` names the parameter that counts those operands.
    """

    def close(args: tuple[AnyValue, ...], params: Params) -> tuple[tuple[AnyValue, ...], Params]:
        held = {n: params[n] for n in names}
        programs = [p for v in held.values() for p in (v if isinstance(v, tuple) else (v,))]
        values = values_in(*[p for p in programs if isinstance(p, Program)])
        if not values:
            return args, params
        changed = {
            n: tuple(opened(p, values) for p in v) if isinstance(v, tuple) else opened(v, values)
            for n, v in held.items()
        }
        if count:
            changed[count] = params[count] + len(values)
        return (*args[:at], *values, *args[at:]), {**params, **changed}

    return close
