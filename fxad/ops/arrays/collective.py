"""Talk between the lanes of a vmap with a name: sums over lanes, and all lanes' values.

    s = psum(x, lane)                     # f32[3] in every lane: the sum over lanes
    g = all_gather(x, lane; lanes=4)       # f32[4,3] in every lane

`lane` is the number of the lane, i32[]. It is what says which vmap is meant: the one under which
it differs from lane to lane. Under all others these ops work elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import HostCall
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.ops.arrays.movement import transpose
from fxad.ops.arrays.reduce import sum
from fxad.ops.base import Batched, Primitive, define, spread, value_of
from fxad.ops.elements.arithmetic import mul
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Value, Values
    from fxad.trace.array import Array


def _alone(name: str) -> Callable[..., np.ndarray]:
    def rule(*arrays: np.ndarray, **params: Any) -> np.ndarray:
        raise TypeMismatch(
            f"{name}: the examples of this vmap run one after another here, as in a branch that "
            "only some take, so they cannot exchange values; move it out of the branch"
        )

    return rule


def _psum_batch(size: int, batched: Sequence[bool], args: Values) -> Batched:
    x, lane = args
    if not batched[1]:
        return Batched((psum(x, lane),), (batched[0],))
    if batched[0]:
        return Batched((sum(x, axes=(0,)),), (False,))
    return Batched((mul(x, literal(size, type_of(x).dtype)),), (False,))


psum: Primitive[Array] = define(
    "psum",
    doc="The sum of x over the lanes that `lane` numbers.",
    type=lambda x, lane: x,
    numpy=_alone("psum"),
    jvp="linear",
    transpose=lambda ct, args: [psum(ct, args[1]), None],
    batch=_psum_batch,
    loops=lambda types: HostCall(_alone("psum")),
    dtypes="float complex int",
)


def _gather_batch(size: int, batched: Sequence[bool], args: Values, *, lanes: int) -> Batched:
    x, lane = args
    if batched[1]:
        return Batched((x if batched[0] else spread(x, size),), (False,))
    found = all_gather(x, lane, lanes=lanes)
    order = (1, 0, *range(2, type_of(found).ndim))
    return Batched((transpose(found, permutation=order),), (True,))


def _gather_transpose(ct: Value, args: Operands, *, lanes: int) -> Cotangents:
    """What all lanes want of this one."""
    total = psum(ct, value_of(args[1]))
    starts = [value_of(args[1]), *(literal(0, dt.int32) for _ in type_of(ct).shape[1:])]
    sizes = (1, *type_of(ct).shape[1:])
    own = bind(OPS["dynamic_slice"], total, *starts, sizes=sizes)
    return [bind(OPS["reshape"], own, shape=sizes[1:]), None]


all_gather = define(
    "all_gather",
    doc="The values of x in all lanes that `lane` numbers, along a new leading axis.",
    type=lambda x, lane, *, lanes: ArrayType(x.dtype, (lanes, *x.shape)),
    numpy=_alone("all_gather"),
    jvp="linear",
    transpose=_gather_transpose,
    batch=_gather_batch,
    loops=lambda types, **params: HostCall(_alone("all_gather")),
    dtypes="float complex int bool",
)
