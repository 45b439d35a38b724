"""Plan: what runs when, and where every byte lives. Built before anything runs.

A plan is a tree of steps over numbered slots; an executor walks it (natively for LLVM, in Python
for the oracle backends). Storage of a slot: an argument, a constant, a result buffer, a place in
the arena, or a view that a loop moves along another slot. As text:

    plan  arena 3072 bytes
      %0 argument 0: f32[4,8]
      %1 result 0: f32[4]
      run exp_sum(%0 -> %1)
      return %1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fxad.core.record import record
from fxad.core.types import TapeType, Type
from fxad.core.views import html_of
from fxad.ir.kernel import Kernel


@record
class Slot:
    """One piece of storage.

    place: "argument" (number = index into the call's flat arguments), "constant" (index into
    Plan.constants), "result" (index into the results; allocated by the executor, 64-byte
    aligned), "arena" (offset = byte offset, multiple of 64), "view" (pointer set by a loop).
    """

    id: int
    type: Type
    place: str
    number: int = 0
    offset: int = 0


@record
class Run:
    """Run a kernel on slots (in the order of kernel.buffers) and scalar values."""

    kernel: Kernel
    slots: tuple[Slot, ...]
    scalars: tuple[bool | int | float | complex, ...] = ()


@record
class Copy:
    """Copy all bytes of src into dst (same type)."""

    dst: Slot
    src: Slot


@record
class View:
    """At iteration i, `slot` points at element block i of `base` (leading axis)."""

    slot: Slot
    base: Slot


@record
class Loop:
    """Run `body` `trips` times; iteration i is trips-1-i if `reverse`.

    Before each iteration every view is moved. After each iteration every pair of `swaps`
    exchanges the storage the two slots point at (carried state and its successor), and slots
    stay exchanged after the loop; what the successor then holds is undefined. `frees`: no tape
    written in an iteration is used after it.
    """

    trips: int
    reverse: bool
    views: tuple[View, ...]
    body: tuple[Step, ...]
    swaps: tuple[tuple[Slot, Slot], ...]
    frees: bool = False


@record
class While:
    """Run `cond`; while the bool at `predicate` is true run `body`, swap, run `cond` again.

    `frees` as in Loop.
    """

    cond: tuple[Step, ...]
    predicate: Slot
    body: tuple[Step, ...]
    swaps: tuple[tuple[Slot, Slot], ...]
    frees: bool = False


@record
class Taping:
    """Act on tapes, whose handles (int64, 0: empty) are what their slots hold.

    write: (handles, slot numbers, *blocks) -> (handles,); read: (handles, slot numbers) ->
    (*blocks,); span: (handles,) -> (first written slot numbers, ends). Reading a slot that was
    never written gives zeros; writing one with a negative number does nothing.
    """

    kind: str
    type: TapeType
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]


@record
class Branch:
    """Run branches[clamp(index, 0, n-1)]; the slot holds one i32 or bool."""

    index: Slot
    branches: tuple[tuple[Step, ...], ...]


@record
class Host:
    """Call a Python function: function(*input arrays) -> sequence of output arrays.

    Inputs are read-only NumPy views of the slots; outputs are checked and copied into theirs.
    acquires: the function is given the one output's own storage as an array and answers an offload
    buffer that holds the value, or is to hold it, from now on, or None: the storage itself does.
    """

    function: Callable[..., object]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    name: str = "host"
    acquires: bool = False


Step = Run | Copy | Loop | While | Branch | Host | Taping


@record
class Plan:
    """Steps, their slots, and the arena's size.

    constants: arrays baked into the plan (small lookup tables; captured arrays are arguments).
    results: for every result of the program, the slot that holds it when the steps have run (a
    result slot, or an argument or constant slot that is passed through and must be copied by the
    executor). donated: result number -> argument number whose storage it took over.
    """

    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    constants: tuple[object, ...]
    results: tuple[Slot, ...]
    arena_bytes: int
    donated: dict[int, int]

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__
    _repr_html_ = html_of("plan")


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, loop and branch bodies included, in program order."""
    for step in steps:
        yield step
        match step:
            case Loop():
                yield from walk(step.body)
            case While():
                yield from walk(step.cond)
                yield from walk(step.body)
            case Branch():
                for branch in step.branches:
                    yield from walk(branch)
            case _:
                pass


def _text(plan: Plan) -> str:
    lines = [f"plan  arena {plan.arena_bytes} bytes"]
    lines += [f"  {_name(s)} {_where(s, plan)}: {s.type}" for s in plan.slots]
    lines += [f"  {line}" for line in _lines(plan.steps)]
    lines.append(f"  return {_names(plan.results)}")
    return "\n".join(lines)


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
