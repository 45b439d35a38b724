"""Partial evaluation: cut a Program into what known inputs decide and the rest.

p       (x known, dx unknown) -> (sin x, dx * cos x)
known   (x) -> (sin x, cos x)          the second is a residual
rest    (cos x, dx) -> (dx * cos x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxad.core.masks import Mask, merge, select
from fxad.ir.program import Atom, Op, Program
from fxad.ops.programs.captures import embed
from fxad.trace.tracer import StagedTracer, Staging
from fxad.transform.context import Split, cached, keep_labels, run, transforms

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues, Params


class Deferred(Staging):
    """Records only what depends on its own inputs; everything else happens at lower levels.

    An op with sub-programs is split where it meets both kinds: its known half runs below, the
    other half is recorded here. Values from below that are read become residuals (consts).
    """

    floor = records = False

    def owns(self, value: AnyValue) -> bool:
        return isinstance(value, StagedTracer) and value.level is self

    def process(self, op: Op, args: AnyValues, params: Params) -> Any:
        if op.split is None:
            return super().process(op, args, params)
        unknown = tuple(self.owns(a) for a in args)
        if all(unknown):
            return super().process(op, args, params)
        return tuple(op.split(transforms(), self.record, unknown, args, **params))

    def record(self, op: Op, *args: AnyValue, **params: Any) -> Any:
        """Put an op here without trying to split it."""
        if op.close is not None:
            args, params = op.close(args, params)
        return super().process(op, args, params)


@cached
def split(program: Program, unknown: Mask, force: Mask | None = None) -> Split:
    """Cut a closed Program; `force` marks outputs that must come from the rest."""
    known_inputs = Staging()
    with known_inputs:
        tracers = [known_inputs.input(t) for t in select(program.in_types, unknown, False)]
        deferred = Deferred()
        with deferred:
            pending = [deferred.input(t) for t in select(program.in_types, unknown)]
            outs = run(program, merge(unknown, pending, tracers))
            flags = tuple(
                deferred.owns(o) or (force is not None and force[i]) for i, o in enumerate(outs)
            )
            rest, residuals = deferred.finish(pending, select(outs, flags), program.name)
        wanted = [*select(outs, flags, False), *residuals]
        known, consts = known_inputs.finish(tracers, wanted, program.name)
    whole, kept = embed(known, consts), len(wanted) - len(residuals)
    keep_labels(whole.inputs, select(program.inputs, unknown, False))
    keep_labels(rest.consts, whole.outputs[kept:])
    places: dict[Atom, int] = {v: i for i, v in enumerate(whole.inputs)}
    inputs = tuple(map(places.get, whole.outputs[kept:]))
    lean = whole
    if any(i is not None for i in inputs):
        made = [a for a, i in zip(whole.outputs[kept:], inputs, strict=True) if i is None]
        lean = Program(whole.inputs, whole.eqns, [*whole.outputs[:kept], *made], whole.name)
    return Split(whole, rest.closed(), flags, len(residuals), lean, inputs)
