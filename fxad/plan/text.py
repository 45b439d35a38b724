"""Plans as text: a tree of steps with slots, bytes and kernels' names.

plan  arena 3072 bytes
  %0 argument 0: f32[4,8]
  %1 result 0: f32[4]
  run exp_sum(%0 -> %1)
  return %1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While


def plan_text(plan: Plan) -> str:
    """The plan as readable text."""
    lines = [f"plan  arena {plan.arena_bytes} bytes"]
    lines += [f"  {_name(s)} {_where(s, plan)}: {s.type}" for s in plan.slots]
    lines += [f"  {line}" for line in _lines(plan.steps)]
    lines.append(f"  return {_names(plan.results)}")
    return "\n".join(lines) + "\n"


def _name(slot: Slot) -> str:
    return f"%{slot.id}"


def _names(slots: Sequence[Slot]) -> str:
    return ", ".join(map(_name, slots))


def _where(slot: Slot, plan: Plan) -> str:
    match slot.place:
        case "arena":
            return f"arena +{slot.offset}"
        case "view":
            return "view"
        case "result" if slot.number in plan.donated:
            return f"result {slot.number} in argument {plan.donated[slot.number]}"
    return f"{slot.place} {slot.number}"


def _lines(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        match step:
            case Run():
                yield _run(step)
            case Copy():
                yield f"copy {_name(step.src)} -> {_name(step.dst)}"
            case Host():
                yield f"host {step.name}({_names(step.inputs)} -> {_names(step.outputs)})"
            case Taping():
                yield f"tape {step.kind} {_names(step.inputs)} -> {_names(step.outputs)}"
            case Loop():
                views = "".join(f" {_name(v.slot)}={_name(v.base)}[i]" for v in step.views)
                order = " reversed" if step.reverse else ""
                yield f"loop {step.trips}{order}{views}{_swaps(step.swaps)}{_freed(step)}"
                yield from _indented(step.body)
            case While():
                yield f"while {_name(step.predicate)}{_swaps(step.swaps)}{_freed(step)}"
                yield from _indented(step.cond)
                yield "do"
                yield from _indented(step.body)
            case Branch():
                yield f"branch {_name(step.index)}"
                for number, branch in enumerate(step.branches):
                    yield f"case {number}"
                    yield from _indented(branch)


def _run(step: Run) -> str:
    pairs = list(zip(step.kernel.buffers, step.slots, strict=True))
    inputs = [s for b, s in pairs if b.role == "in"]
    outputs = [s for b, s in pairs if b.role != "in"]
    scalars = "".join(f"; {value!r}" for value in step.scalars)
    return f"run {step.kernel.name}({_names(inputs)} -> {_names(outputs)}{scalars})"


def _indented(steps: Sequence[Step]) -> Iterator[str]:
    return (f"  {line}" for line in _lines(steps))


def _swaps(swaps: Sequence[tuple[Slot, Slot]]) -> str:
    return "".join(f" swap {_name(a)} {_name(b)}" for a, b in swaps)


def _freed(step: Loop | While) -> str:
    return " frees tapes" if step.frees else ""
