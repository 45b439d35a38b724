"""Another derivative rule for an existing op, within a scope.

with fxad.override("sqrt", jvp=safe_sqrt):      # 0 instead of infinity at 0
    fxad.grad(norm)(x)
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.api.custom_vjp import custom_vjp
from fxad.core import system
from fxad.core.errors import BadArgument
from fxad.ir.program import OPS, Lit, Op
from fxad.trace.tracer import bind, set_intercept


class _Active(threading.local):
    """Rules of this thread, the innermost last; `inside` while an op itself is being bound."""

    def __init__(self) -> None:
        self.rules: list[tuple[str, Any, Any]] = []
        self.inside: set[str] = set()


_active = _Active()
_lock = system.free_in_children(threading.Lock())
_scopes = 0  # of all threads


def override(
    op: str,
    *,
    jvp: Callable[..., Any] | None = None,
    vjp: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> AbstractContextManager[None]:
    """Inside, every new use of an op (its name as `make_ir` prints it) has this derivative.

    jvp(primals, tangents, **params) -> (result, tangent), as for `fxad.custom_jvp`; vjp = (fwd,
    bwd) as for `fxad.custom_vjp`, with fwd(*operands, **params). Both may be given. A rule may use
    the op: inside it the op has its own derivative. The scope is where the op is *used*: a
    function traced inside keeps the rule, and a jitted one is traced anew when it is differentiated
    inside. Numbers among the operands come as arrays. Of this thread only. Raises BadArgument for
    an unknown op, an op that holds programs, or no rule.

    >>> def clipped(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return jnp.exp(x), jnp.minimum(jnp.exp(x), 10.0) * t
    >>> with fxad.override("exp", jvp=clipped):
    ...     slope = fxad.grad(jnp.exp)(5.0)
    >>> slope
    Array(10., dtype=float32)
    """
    if op not in OPS:
        near = importlib.import_module("difflib").get_close_matches(op, OPS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadArgument(f"override: there is no op {op!r}{hint}")
    if OPS[op].higher:
        raise BadArgument(f"override: {op} holds programs; override the ops inside them")
    if jvp is None and vjp is None:
        raise BadArgument("override: give jvp=rule, vjp=(fwd, bwd) or both")
    return _scope(op, jvp, vjp)


@contextmanager
def _scope(op: str, jvp: Any, vjp: Any) -> Iterator[None]:
    _active.rules.append((op, jvp, vjp))
    _count(1)
    try:
        yield
    finally:
        _active.rules.pop()
        _count(-1)


def active() -> tuple:
    """This thread's rules, to tell functions traced under them from others."""
    return tuple(_active.rules)


def _count(change: int) -> None:
    global _scopes
    with _lock:
        _scopes += change
        set_intercept(_intercept if _scopes else None)


def _intercept(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The op as a function with a rule of its own, if this thread has one for it."""
    if op.name in _active.inside:
        return NotImplemented
    for name, jvp, vjp in reversed(_active.rules):
        if name == op.name:
            return _with_rules(op, args, params, jvp, vjp)
    return NotImplemented


@contextmanager
def _itself(name: str) -> Iterator[None]:
    added = name not in _active.inside
    _active.inside.add(name)
    try:
        yield
    finally:
        if added:
            _active.inside.discard(name)


def _with_rules(op: Op, args: Sequence[Any], params: dict[str, Any], jvp: Any, vjp: Any) -> Any:
    numbers = {i: a for i, a in enumerate(args) if isinstance(a, Lit)}
    given = [a for i, a in enumerate(args) if i not in numbers]

    def operands(values: Sequence[Any], fill: Callable[[Lit], Any]) -> list[Any]:
        rest = iter(values)
        return [fill(numbers[i]) if i in numbers else next(rest) for i in range(len(args))]

    def itself(*values: Any) -> Any:
        with _itself(op.name):
            return bind(op, *operands(values, lambda number: number), **params)

    def push(primals: tuple, tangents: tuple) -> Any:
        with _itself(op.name):
            return jvp(
                tuple(operands(primals, _array)),
                tuple(operands(tangents, lambda number: np.zeros_like(_array(number)))),
                **params,
            )

    def forward(*values: Any) -> Any:
        with _itself(op.name):
            return vjp[0](*operands(values, _array), **params)

    def back(residuals: Any, cotangent: Any) -> tuple:
        with _itself(op.name):
            found = vjp[1](residuals, cotangent)
        return tuple([c for i, c in enumerate(found) if i not in numbers])

    itself.__name__ = op.name
    if vjp is None:
        function: Any = custom_jvp(itself)
    else:
        function = custom_vjp(itself)
        function.defvjp(forward, back)
    if jvp is not None:
        function.defjvp(push)
    return function(*given)


def _array(number: Lit) -> np.ndarray:
    return np.asarray(number.value, number.type.dtype)
