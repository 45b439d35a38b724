"""Ops that hold Programs, and what they keep apart: branches, loops, custom derivatives, tapes."""

from fxad.ops.programs import (
    check,
    checkpoint,
    cond,
    control,
    custom,
    custom_vmap,
    host,
    linear_solve,
    offload,
    scan,
    tape,
    while_linear,
    while_loop,
)

__all__ = [
    "check",
    "checkpoint",
    "cond",
    "control",
    "custom",
    "custom_vmap",
    "host",
    "linear_solve",
    "offload",
    "scan",
    "tape",
    "while_linear",
    "while_loop",
]
