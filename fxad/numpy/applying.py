"""A function applied to each element as often as a count says: what `x.at[i].apply(f)` means.

applied(jnp.sin, jnp.ones(2), jnp.array([0, 2]))        # 1, sin(sin(1))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.ir.program import OPS
from fxad.numpy.core import asarray, cast
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import stage, type_of


def applied(function: Callable[[Any], Any], value: Array, counts: Array) -> Array:
    """`value` after as many applications as `counts`, integers of its shape, hold.

    The dtype stays. Known counts make a Python loop, traced ones a while loop.
    """
    if not value.size:
        return value
    most = OPS["max_reduce"](counts, axes=tuple(range(counts.ndim))) if counts.ndim else counts

    def step(number: Any, done: Any, current: Any) -> Any:
        new = cast(asarray(function(current)), value.dtype)
        return OPS["select"](OPS["lt"](done, number), new, current)

    if isinstance(most, Concrete):
        for done in range(int(most.data)):
            value = step(counts, done, value)
        return value

    def test(limit: Any, done: Any, current: Any) -> list[Any]:
        return [OPS["lt"](done, limit)]

    def body(number: Any, done: Any, current: Any) -> list[Any]:
        return [OPS["add"](done, 1), step(number, _spread(done, number), current)]

    start = Concrete(np.zeros((), type_of(counts).dtype))
    state = [type_of(start), type_of(value)]
    cond, _ = stage(test, [type_of(most), *state], "applications_left")
    program, captured = stage(body, [type_of(counts), *state], "apply")
    results = OPS["while"](
        most,
        *captured,
        counts,
        start,
        value,
        cond=cond.closed(),
        body=program.closed(),
        cond_consts=1,
        body_consts=len(captured) + 1,
    )
    return results[1]


def _spread(done: Any, like: Any) -> Any:
    return OPS["broadcast"](done, shape=type_of(like).shape, axes=())
