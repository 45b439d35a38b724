"""Values offloaded: outside the arena between their making and their use.

    y = offload(x; place="disk", memory)     the value itself, marked: a pass makes of it
    put(x; key, place, memory)               after x was made, and
    y = take(; key, type)                    before y is first read

place: disk or host. memory: bytes for values on their way to the disk, shared by all that say the
same; 0: the setting `offload_memory`.
`offload` is linear and has every derivative; `put` and `take` exist only in programs that are
about to be lowered.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.lazy import later
from fxad.ir.loops import Alias, HostCall
from fxad.ops.base import Batched, Primitive, case, define

if TYPE_CHECKING:
    from fxad.ir.rules import AnyTangents, AnyValues
    from fxad.runtime import session
    from fxad.trace.array import Array
else:
    session = later("fxad.runtime.session")

EFFECTS = frozenset(["host"])


offload = define(
    "offload",
    doc="The operand itself, which may be offloaded to the host or disk until it is read here.",
    type=lambda x, **params: x,
    numpy=lambda x, **params: x,
    jvp=lambda primals, tangents, out, **params: tangents[0],
    transpose=lambda ct, args, **params: [ct],
    batch=lambda size, batched, args, **params: offload(args[0], **params),
    loops=lambda types, **params: Alias(),
    exact=True,
    dtypes="float complex int bool",
    samples=lambda r: [case(r.x(3), place="disk", memory=0)],
)


def _within_jvp(
    primals: AnyValues, tangents: AnyTangents, outs: AnyValues, **params: Any
) -> AnyTangents:
    return tuple(tangents)


within: Primitive[tuple[Array, ...]] = define(
    "within",
    doc="The operands themselves. Those after the first `free` wait here from where they were "
    "made, and may take `budget` bytes: planning recomputes the others from the first, or has "
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


def _session() -> AbstractContextManager[None]:
    return session.session()


class _Offloaded:
    """A host function of one key. `borrows`: it keeps no operand, so it may read them where they
    lie. `around`: what a run of a program that calls it happens in. `buffer`: two functions
    that save its copy, see `fxad.plan.offload_buffers`. (Wrappers pass attributes of the object
    on, not of the class.)"""

    def __init__(self, key: int) -> None:
        self.key = key
        self.borrows = True
        self.around = _session


class _Put(_Offloaded):
    def __init__(self, key: int, place: str, memory: int) -> None:
        super().__init__(key)
        self.place = place
        self.memory = memory
        self.buffer = self.reserved, self

    def __call__(self, x: np.ndarray) -> tuple[()]:
        session.put(self.key, self.place, self.memory, x)
        return ()

    def reserved(self, own: np.ndarray) -> np.ndarray | None:
        return session.reserve(self.key, self.place, self.memory, own)


class _Take(_Offloaded):
    def __init__(self, key: int) -> None:
        super().__init__(key)
        self.buffer = self.borrowed, self.release

    def __call__(self) -> tuple[np.ndarray]:
        return (session.take(self.key),)

    def borrowed(self, own: np.ndarray) -> np.ndarray | None:
        return session.borrow(self.key, own)

    def release(self) -> tuple[()]:
        return session.release(self.key)


put = define(
    "put",
    doc="Offload a value under a key; a key's values form a stack.",
    type=lambda x, *, key, place, memory: (),
    numpy=lambda x, *, key, place, memory: _Put(key, place, memory)(x),
    loops=lambda types, *, key, place, memory: HostCall(_Put(key, place, memory)),
    effects=EFFECTS,
)

take = define(
    "take",
    doc="Bring back what was last offloaded under a key.",
    type=lambda *, key, type: type,
    numpy=lambda *, key, type: _Take(key)()[0].copy(),
    loops=lambda types, *, key, type: HostCall(_Take(key)),
    effects=EFFECTS,
)
