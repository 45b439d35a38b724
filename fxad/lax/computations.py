"""Functions of scalars that a reduction is made of: recognised, or applied to whole arrays.

combine = Computation(lambda a, b: a * b, [type_of(x)], "reduce")
combine.monoid                          # "mul"
combine([x[:4]], [x[4:]])               # elementwise over arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.flat import FlatFunction, name_of
from fxad.core import pytree
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.lax.carry import described
from fxad.trace.tracer import stage, type_of
from fxad.transform.batch import batch_eval

MONOIDS = {"add", "mul", "max", "min", "and", "or"}


class Computation:
    """computation(a, b) on scalars (or equal pytrees of them), as a function of arrays.

    `monoid`: the op it is made of, if it is nothing but one of `MONOIDS`. Raises TypeMismatch if
    its results are not scalars of the dtypes that go in.
    """

    def __init__(
        self,
        computation: Callable[..., Any],
        types: Sequence[ArrayType],
        what: str,
        tree: pytree.TreeDef | None = None,
    ) -> None:
        scalars = [ArrayType(t.dtype, ()) for t in types]
        side = tree or pytree.structure(0)
        call = pytree.treedef_tuple([pytree.treedef_tuple([side, side]), pytree.structure({})])
        flat = FlatFunction(computation, call)
        program, self._captured = stage(flat, [*scalars, *scalars], name_of(computation))
        if program.out_types != tuple(scalars):
            seen, wanted = (", ".join(map(str, t)) for t in (program.out_types, scalars))
            raise TypeMismatch(
                f"{what}: {described(computation)} must give ({wanted}), got ({seen})"
            )
        self._program = program.closed()
        self.monoid = self._found(program)

    @staticmethod
    def _found(program: Any) -> str | None:
        if len(program.eqns) != 1 or len(program.inputs) != 2:
            return None
        (eqn,) = program.eqns
        both = set(eqn.inputs) == set(program.inputs)
        single = both and eqn.outputs == program.outputs and eqn.op.name in MONOIDS
        return eqn.op.name if single else None

    def __call__(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """The computation on all pairs of elements of arrays of one shape."""
        shape = type_of(first[0]).shape
        size = type_of(first[0]).size
        flat = [OPS["reshape"](x, shape=(size,)) for x in (*first, *second)]
        flags = [*([False] * len(self._captured)), *([True] * len(flat))]
        outs, batched = batch_eval(self._program, size, flags, [*self._captured, *flat])
        outs = [
            o if b else OPS["broadcast"](o, shape=(size,), axes=())
            for o, b in zip(outs, batched, strict=True)
        ]
        return [OPS["reshape"](o, shape=shape) for o in outs]


def halved(combine: Computation, values: Sequence[Any], length: int) -> list[Any]:
    """Fold the leading axis (of the given length, at least 1) in logarithmic depth."""
    parts = list(values)
    while length > 1:
        half = length // 2
        rest = [_rows(x, 2 * half, length) for x in parts] if length % 2 else []
        parts = combine(
            [_rows(x, 0, half) for x in parts], [_rows(x, half, 2 * half) for x in parts]
        )
        length = half
        if rest:
            parts = [OPS["concatenate"](x, r, axis=0) for x, r in zip(parts, rest, strict=True)]
            length += 1
    return [OPS["reshape"](x, shape=type_of(x).shape[1:]) for x in parts]


def _rows(x: Any, start: int, stop: int) -> Any:
    shape = type_of(x).shape
    return OPS["slice"](
        x,
        start=(start, *([0] * (len(shape) - 1))),
        stop=(stop, *shape[1:]),
        step=(1,) * len(shape),
    )
