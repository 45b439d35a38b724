"""What a loop of unknown length keeps for its reverse: `checkpoints=` of while_loop and fori_loop.

    checkpoints=None             every trip's residuals; nothing is recomputed
    checkpoints=100              every 100th state; each trip is computed once more
    checkpoints=lax.binomial(8)  at most 8 states, however long the loop runs

The binomial schedule (Griewank and Walther, "Algorithm 799: revolve", 2000) runs from the latest
kept state to the trip that is reversed next and keeps states on the way where that saves most. It
wants to know the trips beforehand; here the forward sweep keeps every `stride`-th state and
doubles the stride when it runs out of places. With K states and n trips no more than (r + 1) n
trips are recomputed, where each is reversed included and r is the least with
binomial(K + r, r) >= n: what a schedule that knows n needs at most in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api.autodiff import vjp
from fxad.api.checkpoint import checkpoint
from fxad.api.custom_vjp import custom_vjp
from fxad.core.errors import BadArgument
from fxad.core.record import valued
from fxad.ir.program import OPS, Program
from fxad.lax.while_loops import plain_while
from fxad.numpy import creation, elementwise, reductions
from fxad.numpy.core import asarray
from fxad.trace.tracer import type_of
from fxad.transform.context import differentiable

_LARGEST = 2**31 - 1
_SWEEPS = 4096  # columns of the binomial table at most


@valued
class Binomial:
    """At most `states` states are kept, and others are recomputed from them."""

    states: int


Checkpoints = int | Binomial | None


def binomial(states: int) -> Binomial:
    """For `checkpoints=`: keep at most `states` (two or more) states of a loop, however many trips
    it makes, and recompute the others. Raises BadArgument for fewer.

    >>> step = lambda s: (s[0] + 1, jnp.sin(s[1]))
    >>> def run(x, **keep):
    ...     return fxad.lax.while_loop(lambda s: s[0] < 50, step, (0, x), **keep)[1]
    >>> few = fxad.lax.binomial(4)  # 4 states in memory instead of 50
    >>> fxad.grad(run)(1.0) == fxad.grad(lambda x: run(x, checkpoints=few))(1.0)
    Array(True, dtype=bool)
    """
    if not isinstance(states, int | np.integer) or isinstance(states, bool) or states < 2:
        raise BadArgument(f"binomial: states must be an integer of at least 2, not {states!r}")
    return Binomial(int(states))


def check_checkpoints(what: str, value: Any) -> None:
    """Raise BadArgument for what no loop can take."""
    if value is None or isinstance(value, Binomial):
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise BadArgument(
            f"{what}: checkpoints must be None, a positive integer (keep every k-th state) or "
            f"lax.binomial(k) (keep at most k states), not {value!r}"
        )


def in_blocks(
    cond_fun: Callable, body_fun: Callable, init: Any, trips: int, kept: Callable = checkpoint
) -> Any:
    """A while loop over blocks of `trips` trips, of which only the first state is kept, as `kept`
    (a kind of checkpoint) does."""

    def block(state: Any) -> Any:
        def going(counted: tuple[Any, Any]) -> Any:
            return elementwise.logical_and(counted[0] < trips, cond_fun(counted[1]))

        def step(counted: tuple[Any, Any]) -> tuple[Any, Any]:
            return counted[0] + 1, body_fun(counted[1])

        return plain_while(going, step, (0, state))[1]

    return plain_while(cond_fun, kept(block), init)


class BinomialLoop:
    """One loop: its condition and body as Programs of (captured..., state...).

    A state kept for trip i lies in a row of `table`, an array per part of the state, and `kept`
    says i for each row (-1: free). The last row of the table is for states that are not kept.
    """

    def __init__(self, cond: Program, body: Program, states: int) -> None:
        self.cond = cond
        self.body = body
        self.states = states
        self.few = max(states // 2, 1)  # kept by the forward sweep once the stride is above 1
        self.binomials = _binomials(states)

    def __call__(self, cond_captured: Sequence, captured: Sequence, state: Sequence) -> list:
        run = custom_vjp(self._plain)
        run.defvjp(self._forward, self._backward)
        return run(list(cond_captured), list(captured), list(state))

    def _plain(self, cond_captured: list, captured: list, state: list) -> list:
        counts = {"cond_consts": len(cond_captured), "body_consts": len(captured)}
        operands = (*cond_captured, *captured, *state)
        return list(OPS["while"](*operands, cond=self.cond, body=self.body, **counts))

    def _next(self, captured: list, state: list) -> list:
        return list(OPS["call"](*captured, *state, program=self.body))

    # ------------------------------------------------------------ forward

    def _forward(self, cond_captured: list, captured: list, state: list) -> tuple[list, tuple]:
        rows = self.states + 1
        table = [creation.zeros((rows, *type_of(s).shape), type_of(s).dtype) for s in state]
        kept = creation.full(self.states, -1, np.int32)

        def going(carry: tuple) -> Any:
            return OPS["call"](*cond_captured, *carry[-1], program=self.cond)[0]

        def step(carry: tuple) -> tuple:
            trip, stride, kept, table, state = carry
            stride = self._stride(trip, self._stride(trip, stride))
            due = trip % stride == 0
            free = reductions.argmax((kept < 0) | (kept % stride != 0))
            kept, table = self._keep(due, free, trip, state, kept, table)
            return trip + 1, stride, kept, table, self._next(captured, state)

        zero, one = np.int32(0), np.int32(1)
        trips, stride, kept, table, state = plain_while(
            going, step, (zero, one, kept, table, state)
        )
        kept = elementwise.where((kept >= 0) & (kept % stride == 0), kept, np.int32(-1))
        return state, (captured, trips, kept, table)

    def _stride(self, trip: Any, stride: Any) -> Any:
        """The stride, doubled if a state for `trip` would be one too many."""
        room = elementwise.where(stride == 1, np.int32(self.states), np.int32(self.few))
        held = (trip + stride - 1) // stride
        return elementwise.where((trip % stride == 0) & (held >= room), 2 * stride, stride)

    def _keep(
        self, due: Any, row: Any, trip: Any, state: list, kept: Any, table: list
    ) -> tuple[Any, list]:
        """Put a state into a row if it is due."""
        row = elementwise.where(due, row.astype(np.int32), np.int32(self.states))
        kept = elementwise.where(creation.arange(self.states, dtype=np.int32) == row, trip, kept)
        return kept, [t.at[row].set(s) for t, s in zip(table, state, strict=True)]

    # ------------------------------------------------------------ backward

    def _backward(self, residuals: tuple, cotangents: list) -> tuple[None, list, list]:
        captured, trips, kept, table = residuals
        sums = [creation.zeros_like(c) for c in captured]
        start = (trips - 1, kept, table, sums, list(cotangents))

        def step(carry: tuple) -> tuple:
            trip, kept, table, sums, ct = carry
            row = reductions.argmax(kept)
            first, state = kept[row], [t[row] for t in table]
            kept, table, state = self._advance(captured, trip, first, kept, table, state)
            d_captured, ct = self._pull(captured, state, ct)
            sums = [s + d for s, d in zip(sums, d_captured, strict=True)]
            return trip - 1, elementwise.where(kept >= trip, np.int32(-1), kept), table, sums, ct

        *_, sums, ct = plain_while(lambda carry: carry[0] >= 0, step, start)
        return None, sums, ct

    def _advance(
        self, captured: list, trip: Any, first: Any, kept: Any, table: list, state: list
    ) -> tuple[Any, list, list]:
        """Run from trip `first`, whose state this is, to `trip`, keeping states on the way."""

        def step(carry: tuple) -> tuple:
            at, stop, kept, table, state = carry
            due = at == stop
            kept, table = self._keep(due, reductions.argmin(kept), at, state, kept, table)
            stop = elementwise.where(due, self._stop(trip, at, kept), stop)
            return at + 1, stop, kept, table, self._next(captured, state)

        start = (first, self._stop(trip, first, kept), kept, table, state)
        _, _, kept, table, state = plain_while(lambda carry: carry[0] < trip, step, start)
        return kept, table, state

    def _stop(self, trip: Any, at: Any, kept: Any) -> Any:
        """Where to keep the next state, from trip `at` on, whose state is kept; -1: nowhere."""
        free = reductions.sum((kept < 0).astype(np.int32))
        length = trip - at + 1
        row = self.binomials[elementwise.minimum(free + 1, self.states)]
        sweeps = reductions.sum((row < length).astype(np.int32))  # two more than the exponent r
        right = self.binomials[free, sweeps]
        skipped = elementwise.maximum(length - right, elementwise.maximum(row[sweeps - 2], 1))
        stop = at + elementwise.minimum(skipped, length - 1)
        return elementwise.where((free > 0) & (length > 1), stop, np.int32(-1))

    def _pull(self, captured: list, state: list, ct: list) -> tuple[list, list]:
        """The cotangents of one trip's captured values and state."""
        inputs = [*captured, *state]
        active = [differentiable(v) for v in inputs]
        outs_active = [differentiable(s) for s in state]

        def smooth(*values: Any) -> list:
            given = iter(values)
            args = [next(given) if a else v for v, a in zip(inputs, active, strict=True)]
            outs = OPS["call"](*args, program=self.body)
            return [o for o, a in zip(outs, outs_active, strict=True) if a]

        _, back = vjp(smooth, *[v for v, a in zip(inputs, active, strict=True) if a])
        found = iter(back([c for c, a in zip(ct, outs_active, strict=True) if a]))
        every = [
            next(found) if a else creation.zeros_like(v)
            for v, a in zip(inputs, active, strict=True)
        ]
        return every[: len(captured)], every[len(captured) :]


def _binomials(states: int) -> Any:
    """binomial(s + r, s) for s up to `states` and r = -2, -1, 0, ..., at most 2**31 - 1."""
    rows = [[0, 0, *([1] * 2)] for _ in range(states + 1)]
    least, sweeps = max(states // 2, 1) + 1, 1
    while math.comb(least + sweeps, least) < _LARGEST and sweeps < _SWEEPS:
        sweeps += 1
    rows = [
        [0, 0, *[min(math.comb(s + r, s), _LARGEST) for r in range(sweeps + 1)]]
        for s in range(states + 1)
    ]
    return asarray(np.array(rows, np.int32))
