"""Control flow: sub-programs are lowered to Blocks of their own."""

from __future__ import annotations

from collections.abc import Callable

from fxad.ir.block import Block, Branching, Looping, LoweredStep, TapeStep, Whiling
from fxad.ir.loops import Structured
from fxad.ir.program import Program
from fxad.lower.nodes import OpaqueNode


def lower_structured(node: OpaqueNode, lower: Callable[[Program], Block]) -> LoweredStep:
    """The step of a scan, while, cond or tape equation."""
    params = node.eqn.params
    match node.record:
        case Structured("scan"):
            return Looping(
                lower(params["body"]),
                params["length"],
                params["reverse"],
                params["consts"],
                params["carry"],
                node.operands,
                node.outputs,
            )
        case Structured("while"):
            return Whiling(
                lower(params["cond"]),
                lower(params["body"]),
                params["cond_consts"],
                params["body_consts"],
                node.operands,
                node.outputs,
            )
        case Structured("cond"):
            branches = tuple([lower(b) for b in params["branches"]])
            return Branching(node.operands[0], branches, node.operands[1:], node.outputs)
        case Structured("tape_write" | "tape_read" | "tape_span" as name):
            kind = name.removeprefix("tape_")
            return TapeStep(kind, node.eqn.inputs[0].type, node.operands, node.outputs)
    raise NotImplementedError(
        f"{node.eqn.op.name} ({node.eqn.where}): no lowering for {node.record!r}"
    )
