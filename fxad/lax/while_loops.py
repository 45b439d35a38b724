"""Loops of unknown length over pytrees: the plain one, which checkpointed ones are made of too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.compiled import interpreting
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.naming import label_arguments
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import TypeMismatch
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Program
from fxad.lax.carry import (
    Body,
    check_callable,
    described,
    marked,
    stage_body,
    with_forwarded,
)
from fxad.trace.tracer import stage, staging, type_of


def in_python() -> bool:
    """Whether control flow runs as plain Python: interpreting, and nothing is being recorded."""
    return interpreting() and not staging()


@record
class StagedWhile:
    """A loop as Programs: cond(cond_captured..., state...), body(captured..., state...)."""

    cond: Program
    cond_captured: list[Any]
    body: Program
    captured: list[Any]
    state: list[Any]
    tree: pytree.TreeDef
    weak: list[bool]

    def finished(self, outs: Sequence[Any]) -> Any:
        """The final state as the user's pytree."""
        outs = marked(outs, self.weak)
        return self.tree.unflatten(with_forwarded(self.body, len(self.captured), self.state, outs))


def staged_while(cond_fun: Callable, body_fun: Callable, init_val: Any) -> StagedWhile:
    """Trace condition and body.

    Raises TreeError or TypeMismatch naming the leaf if the state changes type.
    """
    carry, tree = flatten_args(init_val, "while_loop: initial value")
    body = _body(body_fun, tree)
    program, captured, carry = stage_body(body, carry, [])
    test = FlatFunction(lambda *leaves: cond_fun(tree.unflatten(leaves)), _arguments(carry))
    types = [type_of(c) for c in carry]
    cond, cond_captured = stage(test, types, name_of(cond_fun), body.weak)
    label_arguments(cond.inputs, cond_fun, [tree])
    if cond.out_types != (ArrayType(dt.bool_, ()),) or not test.tree.is_leaf:
        seen = ", ".join(str(t) for t in cond.out_types)
        inside = "" if test.tree.is_leaf else f" in a tree {test.tree}"
        raise TypeMismatch(
            f"while_loop: the condition {described(cond_fun)} must give one bool, not "
            f"({seen}){inside}"
        )
    return StagedWhile(cond.closed(), cond_captured, program, captured, carry, tree, body.weak)


def _body(body_fun: Callable, tree: pytree.TreeDef) -> Body:
    step = lambda state, _: (body_fun(state), ())  # noqa: E731
    return Body("while_loop", body_fun, step, [tree], tree)


def _arguments(leaves: Sequence[Any]) -> pytree.TreeDef:
    """The structure of a call f(*leaves)."""
    return pytree.structure((tuple(leaves), {}))


def plain_while(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """`while_loop` that keeps the residuals of every trip."""
    check_callable("while_loop", cond_fun=cond_fun, body_fun=body_fun)
    if in_python():
        return python_while(cond_fun, body_fun, init_val)
    loop = staged_while(cond_fun, body_fun, init_val)
    outs = OPS["while"](
        *loop.cond_captured,
        *loop.captured,
        *loop.state,
        cond=loop.cond,
        body=loop.body,
        cond_consts=len(loop.cond_captured),
        body_consts=len(loop.captured),
    )
    return loop.finished(outs)


def python_while(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """The loop run by Python, so that prints and breakpoints see numbers."""
    carry, tree = flatten_args(init_val, "while_loop: initial value")
    body = _body(body_fun, tree)
    state, first = list(carry), True
    while bool(cond_fun(tree.unflatten(state))):
        new = body(*state)
        if not first:
            body.check([type_of(s) for s in state], [type_of(n) for n in new])
        state, first = new, False
    return tree.unflatten(state)
