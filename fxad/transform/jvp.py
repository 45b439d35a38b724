"""Forward mode. `jvp(p, active)` is p with tangents beside the values.

p      (x) -> (sin x)
jvp    (x, dx) -> (sin x, dx * cos x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fxad.core.masks import Mask
from fxad.ir.program import Eqn, Op, Program
from fxad.ops.base import tangent_type, zeros
from fxad.ops.programs.captures import staged
from fxad.trace import location
from fxad.trace.tracer import Level, Tracer, bind, type_of
from fxad.transform.context import Environment, cached, differentiable, keep_labels, transforms

if TYPE_CHECKING:
    from fxad.ir.rules import AnyTangents, AnyValue, AnyValues, Params


@cached
def jvp(program: Program, active: Mask, force: Mask | None = None) -> tuple[Program, Mask]:
    """(inputs, tangents of active inputs) -> (outputs, tangents of active outputs).

    Returns the Program and which outputs are active; `force` demands a tangent (zeros if need
    be) for the outputs it marks.
    """
    count = len(program.inputs)
    pairs = zip(program.in_types, active, strict=True)
    types = [*program.in_types, *(tangent_type(t) for t, a in pairs if a)]
    out_active: list[bool] = []

    def both(*args: AnyValue) -> AnyValues:
        given = iter(args[count:])
        tangents = [next(given) if a else None for a in active]
        outs, tangents_out = jvp_eval(program, args[:count], tangents)
        for i, out in enumerate(outs):
            if tangents_out[i] is None and force is not None and force[i]:
                tangents_out[i] = zeros(tangent_type(type_of(out)))
        out_active.extend(t is not None for t in tangents_out)
        return [*outs, *(t for t in tangents_out if t is not None)]

    result = staged(both, types, program.name)
    keep_labels(result.inputs, program.inputs)
    return result, tuple(out_active)


def jvp_eval(
    program: Program, primals: AnyValues, tangents: AnyTangents
) -> tuple[list[AnyValue], list[AnyValue | None]]:
    """Bind a Program's equations with tangents beside; None stands for a zero tangent."""
    values: Environment[AnyValue] = Environment(program, primals)
    dual: Environment[AnyValue | None] = Environment(program, tangents)
    before, pair = location.follow(""), location.pair()
    try:
        for eqn in program.eqns:
            location.follow(eqn.where)
            location.enter_pair(eqn.pair)
            _step(eqn, values, dual)
    finally:
        location.restore(before)
        location.enter_pair(pair)
    outs = [values.read(a) for a in program.outputs]
    return outs, [dual.values.get(a) for a in program.outputs]


def _step(eqn: Eqn, values: Environment[AnyValue], dual: Environment[AnyValue | None]) -> None:
    primals = [values.read(a) for a in eqn.inputs]
    tangents = [dual.values.get(a) for a in eqn.inputs]
    outs, tangents_out = apply_jvp(eqn.op, primals, tangents, eqn.params)
    values.write(eqn.outputs, outs)
    for var, tangent in zip(eqn.outputs, tangents_out, strict=True):
        dual.values[var] = tangent


def apply_jvp(
    op: Op,
    primals: AnyValues,
    tangents: AnyTangents,
    params: Mapping[str, Any],
    rule: Any = None,
) -> tuple[Any, AnyTangents]:
    """Outputs (as `bind` gives them) and a tangent or None for each output, by the op's rule or by
    one that it had."""
    if all(t is None for t in tangents):
        outs = bind(op, *primals, **params)
        return outs, [None] * (len(outs) if isinstance(outs, tuple | list) else 1)
    joint = op.joint and rule is None
    rule = op.jvp if rule is None else rule
    if joint:
        outs, found = rule(primals, tangents, **params)
        if isinstance(outs, tuple):
            return outs, _real_tangents(outs, found)
        return outs, _real_tangents((outs,), (found,))
    if op.higher:
        outs, found = rule(transforms(), primals, tangents, **params)
        return tuple(outs), _real_tangents(outs, found)
    outs = bind(op, *primals, **params)
    many = isinstance(outs, tuple)
    count = len(outs) if many else 1
    if rule is None or not any(map(differentiable, outs if many else (outs,))):
        return outs, [None] * count
    tangents_out: Any = rule(primals, tangents, outs, **params)
    if tangents_out is None:
        return outs, [None] * count
    listed = tangents_out if many else (tangents_out,)
    return outs, _real_tangents(outs if many else (outs,), listed)


def _real_tangents(outs: AnyValues, tangents: AnyTangents) -> list[AnyValue | None]:
    """Integers and bools never carry tangents."""
    return [t if differentiable(o) else None for o, t in zip(outs, tangents, strict=True)]


class Dual(Tracer):
    """A value and its tangent, while an eager `jvp` or `vjp` runs the user's function."""

    __slots__ = ("primal", "tangent")
    level: Forward
    primal: Any  # an array where Python asks for its value

    def __init__(self, level: Forward, primal: AnyValue, tangent: AnyValue) -> None:
        super().__init__(level, type_of(primal), location.current())
        self.weak = getattr(primal, "weak", False)
        self.primal = primal
        self.tangent = tangent

    def __bool__(self) -> bool:
        return bool(self.primal)

    def __int__(self) -> int:
        return int(self.primal)

    def __float__(self) -> float:
        return float(self.primal)

    def __complex__(self) -> complex:
        return complex(self.primal)

    def __index__(self) -> int:
        return int(self.primal.__index__())

    def item(self, *args: int) -> Any:
        """The element as a Python number (no derivative flows through it)."""
        return self.primal.item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python numbers (no derivative flows through them)."""
        return self.primal.tolist()

    def __repr__(self) -> str:
        return f"Dual<{self.primal!r}>"

    __str__ = __repr__


class Forward(Level):
    """Computes values at once and tangents beside them: eager forward mode."""

    def dual(self, primal: AnyValue, tangent: AnyValue | None) -> AnyValue:
        return primal if tangent is None else Dual(self, primal, tangent)

    def lower(self, value: AnyValue) -> tuple[AnyValue, AnyValue | None]:
        """A value's primal and tangent as seen from this level."""
        if isinstance(value, Dual) and value.level is self:
            return value.primal, value.tangent
        return value, None

    def process(self, op: Op, args: AnyValues, params: Params) -> Any:
        pairs = [self.lower(a) for a in args]
        primals = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        outs, tangents_out = apply_jvp(op, primals, tangents, params)
        if isinstance(outs, tuple):
            return tuple(self.dual(o, t) for o, t in zip(outs, tangents_out, strict=True))
        return self.dual(outs, tangents_out[0])


def forward_level(args: Sequence[object]) -> Forward | None:
    """The innermost eager forward level among the arguments' tracers, if any."""
    levels = [a.level for a in args if isinstance(a, Dual)]
    return max(levels, key=lambda level: level.depth, default=None)
