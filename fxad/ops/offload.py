"""Values that wait outside the arena between their making and their use.

    y = offload(x; place="disk")     the value itself, marked: a pass makes of it
    put(x; key, place, memory)       after x was made, and
    y = take(; key, place, type)     before y is first read

`offload` is linear and has every derivative; `put` and `take` exist only in programs that are
about to be lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fxad.ir.loops import Alias, HostCall
from fxad.ops.base import Batched, case, define
from fxad.runtime import session

EFFECTS = frozenset(["host"])

offload = define(
    "offload",
    doc="The operand itself, which may wait on the host or on disk until it is read here.",
    type=lambda x, *, place: x,
    numpy=lambda x, *, place: x,
    jvp=lambda primals, tangents, out, *, place: tangents[0],
    transpose=lambda ct, args, *, place: [ct],
    batch=lambda size, batched, args, *, place: offload(args[0], place=place),
    loops=lambda types, *, place: Alias(),
    exact=True,
    dtypes="float complex int bool",
    samples=lambda r: [case(r.x(3), place="disk")],
)


def _within_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any, **params: Any) -> Any:
    return tuple(tangents)


within = define(
    "within",
    doc="The operands themselves. Those after the first `free` wait here from where they were "
    "made, and may take `budget` bytes: planning computes the others again from the first, or has "
    "them wait in one of `ways` (disk, host, bf16).",
    type=lambda *types, **params: types,
    numpy=lambda *arrays, **params: arrays,
    jvp=_within_jvp,
    transpose=lambda ct, args, **params: list(ct) if isinstance(ct, tuple) else [ct],
    batch=lambda size, batched, args, *, budget, **params: Batched(
        within(*args, budget=budget * size, **params), tuple(batched)
    ),
    loops=lambda types, **params: tuple(Alias(i) for i in range(len(types))),
    exact=True,
    dtypes="float complex int bool",
    samples=lambda r: [case(r.x(3), r.x(2), budget=8, free=1, ways=("disk",))],
)


class _Aside:
    """A host function of one key. `borrows`: it keeps no operand, so it may read them where they
    lie. `around`: what a run of a program that calls it happens in."""

    def __init__(self, key: int, place: str, memory: int = 0) -> None:
        self.key = key
        self.place = place
        self.borrows = True
        self.around = partial(session.session, memory)


class _Put(_Aside):
    def __call__(self, x: np.ndarray) -> tuple[()]:
        session.put(self.key, self.place, x)
        return ()


class _Take(_Aside):
    def __call__(self) -> tuple[np.ndarray]:
        return (session.take(self.key, self.place),)


put = define(
    "put",
    doc="Put a value aside under a key; a key's values form a stack.",
    type=lambda x, *, key, place, memory: (),
    numpy=lambda x, *, key, place, memory: _Put(key, place)(x),
    loops=lambda types, *, key, place, memory: HostCall(_Put(key, place, memory)),
    effects=EFFECTS,
)

take = define(
    "take",
    doc="Take back what was last put aside under a key.",
    type=lambda *, key, place, type: type,
    numpy=lambda *, key, place, type: _Take(key, place)()[0].copy(),
    loops=lambda types, *, key, place, type: HostCall(_Take(key, place)),
    effects=EFFECTS,
)
