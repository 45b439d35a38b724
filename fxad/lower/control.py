"""Steps that are no kernels: control flow with Blocks of its own, and calls of Python functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core.types import ArrayType, TapeType, array_types
from fxad.ir.block import Block, Branch, Host, Loop, LoweredStep, Taping, While
from fxad.ir.loops import HostCall, Structured
from fxad.ir.program import Program, Var
from fxad.lower.graph import Def


def step_of(
    definition: Def, operands: tuple[Var, ...], lower: Callable[[Program], Block]
) -> LoweredStep:
    """The step of a scan, while, cond or tape equation, or of a host call; operands: where the
    definition's lie. lower: see `lower`."""
    eqn, results = definition.eqn, definition.outputs
    params = eqn.params
    match definition.record:
        case HostCall(function):
            shaped = _shaped(function, array_types(a.type for a in eqn.inputs))
            return Host(shaped, operands, results, eqn.op.name)
        case Structured("scan"):
            return Loop(
                lower(params["body"]),
                params["length"],
                params["reverse"],
                params["consts"],
                params["carry"],
                operands,
                results,
            )
        case Structured("while"):
            return While(
                lower(params["cond"]),
                lower(params["body"]),
                params["cond_consts"],
                params["body_consts"],
                operands,
                results,
            )
        case Structured("cond"):
            branches = tuple([lower(b) for b in params["branches"]])
            return Branch(operands[0], branches, operands[1:], results)
        case Structured("tape_write" | "tape_read" | "tape_span" as name):
            kind = name.removeprefix("tape_")
            type_ = eqn.inputs[0].type
            assert isinstance(type_, TapeType)
            return Taping(kind, type_, operands, results)
    raise NotImplementedError(f"{eqn.op.name} ({eqn.where}): no lowering for {definition.record!r}")


def _shaped(function: Callable[..., Any], types: Sequence[ArrayType]) -> Callable[..., Any]:
    """The function on arrays of its operands' shapes; their bytes may be a reshaped value's.
    It keeps the function's attributes, which tell executors how to call it."""

    @functools.wraps(function)
    def call(*arrays: np.ndarray) -> Any:
        return function(*(a.reshape(t.shape) for a, t in zip(arrays, types, strict=True)))

    return call
