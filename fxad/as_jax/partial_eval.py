"""Names of `jax.interpreters.partial_eval`: what of a function's results follows from its known
arguments alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.api.jaxpr import Jaxpr
from fxad.api.shaped_array import AbstractValue, ShapedArray
from fxad.as_jax.linear_util import WrappedFun
from fxad.ir.program import Program, Var
from fxad.ir.rewrite import dce
from fxad.trace.tracer import stage
from fxad.transform.context import run

__all__ = ["PartialVal", "trace_to_jaxpr_nounits"]


class PartialVal(tuple[AbstractValue | None, Any]):
    """(None, value) if it is known, else (type, None)."""

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: AbstractValue) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """The value, None if it is not known."""
        return self[1]

    def get_aval(self) -> Any:
        return self[0]


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """(Jaxpr, results as PartialVals, values of its constvars) of a function of flat values.

    A result that depends on no unknown argument is known, and computed. The Jaxpr is that of all
    results, known ones among them. instantiate: results that are to be unknown in any case.
    """
    unknown: list[Any] = [p.get_aval() for p in pvals if not p.is_known()]

    def call(*traced: Any) -> list[Any]:
        rest = iter(traced)
        return list(
            fun.call_wrapped(*[p.get_known() if p.is_known() else next(rest) for p in pvals])
        )

    program, captured = stage(call, [aval.type for aval in unknown], "traced")
    depends = _dependent(program)
    count = len(program.outputs)
    forced = [instantiate] * count if isinstance(instantiate, bool) else instantiate
    known = [o for o, f in zip(program.outputs, forced, strict=True) if not f and o not in depends]
    part = dce(Program((), program.eqns, known, program.name, program.consts))
    values = iter(run(part.closed(), captured))
    results = [
        PartialVal.unknown(ShapedArray(out.type.shape, out.type.dtype))
        if f or out in depends
        else PartialVal.known(next(values))
        for out, f in zip(program.outputs, forced, strict=True)
    ]
    return Jaxpr.of(program), results, list(captured)


def _dependent(program: Program) -> set[Any]:
    """The values that depend on the inputs."""
    found: set[Any] = set(program.inputs)
    for eqn in program.eqns:
        if any(isinstance(a, Var) and a in found for a in eqn.inputs):
            found.update(eqn.outputs)
    return found
