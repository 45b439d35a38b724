"""check: where a program may fail, and what is to be said of it.

    check(code, *values; sites=(Site, ...))

`code` is an int32: 0, or the number (from 1) of the site that failed; `values` are the arrays that
messages show. Run as it is, a failure raises CheckFailed, unless the site is for debugging.
`fxad.transform.checkify` turns checks into results of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import CheckFailed, ShapeError, at
from fxad.core.record import valued
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Opaque
from fxad.ir.rewrite import literal
from fxad.ops.base import Primitive, define
from fxad.ops.programs.host import call_host
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.core.treedef import TreeDef
    from fxad.ir.rules import Value, Values
    from fxad.trace.array import Array


@valued
class Site:
    """A place that may fail. `kind`: "user", "nan", "div" or "index".

    text: the message, filled in as by `str.format` with the (args, kwargs) of structure `tree`
    (None: there are none). Its leaves are arrays, `slots` of which says where they stand among the
    values of a check, and other objects, `fixed` as pairs of (number of the leaf, object).
    where: the user's line. debug: whether a failure is only of interest to `checkify`.
    """

    kind: str
    text: str
    where: str
    tree: TreeDef | None = None
    slots: tuple[int, ...] = ()
    fixed: tuple[tuple[int, Opaque], ...] = ()
    debug: bool = False

    def message(self, values: Sequence[Any]) -> str:
        """What to say, given the values of the check."""
        text = self.text
        if self.tree is not None:
            others = {number: held.value for number, held in self.fixed}
            arrays = iter([values[slot] for slot in self.slots])
            count = len(self.slots) + len(others)
            leaves = [others[i] if i in others else next(arrays) for i in range(count)]
            args, kwargs = self.tree.unflatten(leaves)
            text = text.format(*args, **kwargs)
        if self.kind == "user":
            text += " (`check` failed)"
        return text + at(self.where)


def _type(code: ArrayType, *values: ArrayType, sites: Opaque) -> tuple[()]:
    if code != ArrayType(dt.int32, ()):
        raise ShapeError(f"check: the code must be one int32, not {code}")
    return ()


def _raise(code: np.ndarray, *values: np.ndarray, sites: Opaque) -> tuple[()]:
    if code:
        site: Site = sites.value[int(code) - 1]
        if not site.debug:
            raise CheckFailed(site.message(values))
    return ()


def lane_to_report(code: Value) -> Value:
    """Of a code per lane: the number of the last lane that failed, as in JAX."""
    (size,) = type_of(code).shape
    lanes = bind(OPS["iota"], dtype=dt.int32, shape=(size,), axis=0)
    failed = OPS["select"](OPS["ne"](code, 0), lanes, 0)
    return bind(OPS["max_reduce"], failed, axes=(0,))


def _batch(size: int, batched: Sequence[bool], args: Values, **params: Any) -> tuple[()]:
    if size == 0:
        return ()
    lane: Value = lane_to_report(args[0]) if batched[0] else literal(size - 1, dt.int32)
    one = [
        bind(OPS["gather"], value, lane, axes=(0,)) if has else value
        for value, has in zip(args, batched, strict=True)
    ]
    bind(check, *one, **params)
    return ()


def _parts(code: Value, *values: Value, sites: Opaque) -> tuple[()]:
    if not all(site.debug for site in sites.value):
        call_host(partial(_raise, sites=sites), "check", [code, *values], (), ("host",))
    return ()


check: Primitive[tuple[Array, ...]] = define(
    "check",
    doc="Nothing; fails where the code is not 0.",
    type=_type,
    numpy=_raise,
    batch=_batch,
    decompose=_parts,
    effects=frozenset({"check"}),
    dtypes="",
)
