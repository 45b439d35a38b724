"""`plan`: what runs when, and where every byte lives.

    plan(block, in_types, out_types, frozenset({0}))   # argument 0's storage may become a result's

Storage is given out in execution order: a value gets its place where it is first written and
gives it back after its last use. A result is written straight into its own buffer. A kernel whose
operand dies may write into the operand's storage where `overlap` allows it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxad.core.arena import Arena
from fxad.core.record import replace
from fxad.core.types import ArrayType
from fxad.ir.block import (
    Block,
    Branching,
    HostStep,
    Launch,
    Looping,
    LoweredStep,
    TapeStep,
    Transfer,
    Whiling,
    reads_of,
    writes_of,
)
from fxad.ir.kernel import Buffer, Kernel
from fxad.ir.plan import Copy, Host, Plan, Run, Slot, Step, Taping
from fxad.ir.program import Var
from fxad.plan import control
from fxad.plan.donate import AccessesOf, donations, first_writes, last_uses, may_take_over, updated
from fxad.plan.late import late
from fxad.plan.layout import Fixed, Recording, packed
from fxad.plan.lending import Lending, lendings
from fxad.plan.order import ordered
from fxad.plan.overlap import Accesses, merged
from fxad.plan.places import Place

HOLES = 1 << 20  # bytes of the arena that nothing ever needs: worth a second plan


def plan(
    block: Block,
    in_types: Sequence[ArrayType],
    out_types: Sequence[ArrayType],
    donate: frozenset[int] = frozenset(),
) -> Plan:
    """Plan a lowered program with the given argument and result types. donate: numbers of
    arguments whose storage may be taken over."""
    accesses = functools.cache(Accesses)
    arena, block = Recording(), ordered(block, donate, accesses)
    made = Planner(arena, accesses).plan(block, in_types, out_types, donate)
    if arena.peak - arena.fullest > HOLES:
        other = packed(arena.stays)
        if other.peak < arena.peak:
            return Planner(other, accesses).plan(block, in_types, out_types, donate)
    return made


@dataclass(eq=False, slots=True)
class Frame:
    """One block being planned: where its values are, when they die, where its outputs must be.

    borrowed: values whose places belong to whoever planned the block. lent: values whose memory
    is that in which they wait when they are put aside. late: those that are read late.
    """

    places: dict[Var, Place]
    borrowed: frozenset[Var]
    required: dict[Var, Place]
    first: dict[Var, int]
    last: dict[Var, int]
    lent: dict[Var, Lending]
    late: set[Var]


class Planner:
    """Gives every value its place while walking the blocks in execution order."""

    def __init__(self, arena: Arena | Fixed, accesses: AccessesOf) -> None:
        self.depth = 0  # loops around the step being planned
        self.arena = arena
        self._taken: dict[int, int] = {}  # result number -> argument number
        self.slots: list[Slot] = []
        self._slot_of: dict[tuple[Place, ArrayType | None], Slot] = {}
        self._kernels: dict[tuple, Kernel] = {}
        self.accesses = accesses

    def plan(
        self,
        block: Block,
        in_types: Sequence[ArrayType],
        out_types: Sequence[ArrayType],
        donate: frozenset[int],
    ) -> Plan:
        inputs = {
            v: Place("argument", t.nbytes, n)
            for n, (v, t) in enumerate(zip(block.inputs, in_types, strict=True))
        }
        outputs: dict[Var, Place] = {}
        for number, var in enumerate(block.outputs):
            if var not in inputs and var not in outputs:
                outputs[var] = Place("result", var.type.nbytes, number)
        # An argument or result seen under several shapes has the slot of its own type first.
        for var, type_ in zip(block.inputs, in_types, strict=True):
            self.slot(inputs[var], type_)
        for number, (var, type_) in enumerate(zip(block.outputs, out_types, strict=True)):
            if var in outputs and outputs[var].number == number:
                self.slot(outputs[var], type_)
        donated = donations(block, outputs, donate, self.accesses)
        self._taken = {outputs[var].number: argument for var, argument in donated.items()}
        first, last = first_writes(block), last_uses(block)
        for result, place in list(outputs.items()):
            outputs.update(dict.fromkeys(updated(block, result, first, last), place))
        steps = self.block(block, inputs, outputs)
        for argument in donated.values():  # executors find the storage through its slot
            var = block.inputs[argument]
            self.slot(inputs[var], var.type)
        results, copies = self._results(block, out_types, inputs | outputs)
        steps += copies
        return Plan(
            tuple(self.slots), tuple(steps), (), tuple(results), self.arena.peak, self._taken
        )

    def _results(
        self, block: Block, out_types: Sequence[ArrayType], places: dict[Var, Place]
    ) -> tuple[list[Slot], list[Step]]:
        """Slots of the results, and copies of those that lie elsewhere under another type."""
        results: list[Slot] = []
        copies: list[Step] = []
        for number, (var, type_) in enumerate(zip(block.outputs, out_types, strict=True)):
            place = places[var]
            own = place.kind == "result" and place.number == number
            if own or var.type == type_:
                results.append(self.slot(place, type_))
            else:
                results.append(self.slot(Place("result", type_.nbytes, number), type_))
                copies.append(Copy(results[-1], self.slot(place, var.type)))
        return results, copies

    # ------------------------------------------------------------ slots and places

    def slot(self, place: Place, type_: ArrayType) -> Slot:
        """The slot of a place and a type; a moving place has one, the one that its loop moves,
        whatever shape its bytes are seen under."""
        key = place, None if place.moving else type_
        found = self._slot_of.get(key)
        if found is None:
            found = self._slot_of[key] = self.fresh(place, type_)
        return found

    def fresh(self, place: Place, type_: ArrayType) -> Slot:
        """A slot of its own, so that a loop may move or exchange it."""
        slot = Slot(len(self.slots), type_, place.kind, place.number, place.offset)
        self.slots.append(slot)
        return slot

    def take(self, nbytes: int) -> Place:
        return Place("arena", nbytes, offset=self.arena.take(nbytes))

    def release(self, place: Place) -> None:
        place.users -= 1
        if place.kind == "arena" and place.users == 0:
            self.arena.give(place.offset)

    # ------------------------------------------------------------ blocks

    def block(
        self, block: Block, inputs: dict[Var, Place], outputs: dict[Var, Place]
    ) -> list[Step]:
        """Steps of a block whose inputs lie in `inputs`; it writes `outputs` where they say."""
        first, last = first_writes(block), last_uses(block)
        lent = {v: how for v, how in lendings(block, first, last).items() if v not in outputs}
        frame = Frame(dict(inputs), frozenset(inputs), outputs, first, last, lent, late(block))
        instead = {how.instead for how in lent.values()}
        steps: list[Step] = []
        for number, step in enumerate(block.steps):
            touched = dict.fromkeys((*reads_of(step), *writes_of(step)))
            steps += self._place_results(frame, step, number)
            steps += [] if step in instead else self._step(frame, step)
            for var in touched:
                if frame.last[var] == number and var not in frame.borrowed:
                    steps += self._returned(frame, var)
                    self.release(frame.places[var])
        return steps

    def _place_results(self, frame: Frame, step: LoweredStep, number: int) -> list[Step]:
        """Give places to the values that a step is the first to write; steps that lend memory."""
        steps: list[Step] = []
        for var in writes_of(step):
            if var in frame.places:
                continue
            place = frame.required.get(var)
            if place is not None:
                place.users += 1
            elif var in frame.lent:
                place = self.take(var.type.nbytes)
                place.moving = True  # to what is lent
                lending = frame.lent[var]
                steps.append(
                    Host(lending.begin, (), (self.slot(place, var.type),), "lend", lends=True)
                )
            else:
                place = self._inherited(frame, step, var, number) or self.take(var.type.nbytes)
            frame.places[var] = place
        return steps

    def _returned(self, frame: Frame, var: Var) -> list[Step]:
        """The step after the last use of a value whose memory is lent."""
        if var not in frame.lent:
            return []
        lending = frame.lent[var]
        inputs = (self.slot_of(frame, var),) if lending.puts else ()
        return [Host(lending.end, inputs, (), "put" if lending.puts else "give_back")]

    def _inherited(self, frame: Frame, step: LoweredStep, result: Var, number: int) -> Place | None:
        """The place of an operand that dies here and may be overwritten."""
        for operand in dict.fromkeys(reads_of(step)):
            place = frame.places.get(operand)
            if place is None or place.kind != "arena" or place.users != 1 or place.moving:
                continue
            if operand in frame.borrowed or frame.last[operand] != number:
                continue
            if may_take_over(step, result, operand, self.accesses):
                place.users += 1
                return place
        return None

    def place(self, frame: Frame, var: Var) -> Place:
        found = frame.places.get(var)
        if found is None:  # of size 0: nothing writes it
            found = frame.places[var] = frame.required.get(var) or self.take(0)
        return found

    def slot_of(self, frame: Frame, var: Var) -> Slot:
        return self.slot(self.place(frame, var), var.type)

    def shared(self, result: Place, source: Place) -> bool:
        """Whether a result's place is that of a value before it (donated, for instance)."""
        if result.kind == "result" and source.kind == "argument":
            return self._taken.get(result.number) == source.number
        return result.same(source)

    def nested(
        self,
        block: Block,
        inputs: Sequence[Place],
        targets: Sequence[Place],
        kept: set[int],
        inner: Mapping[Var, Place] | None = None,
    ) -> list[Step]:
        """Steps of a block inside another one, with its outputs copied where they could not be
        written in the first place. Outputs numbered in `kept` are there already; `inner` says
        where some values inside must lie."""
        places = dict(zip(block.inputs, inputs, strict=True))
        outputs: dict[Var, Place] = dict(inner or {})
        copies: list[Step] = []
        for number, (var, target) in enumerate(zip(block.outputs, targets, strict=True)):
            if number in kept:
                continue
            source = places.get(var) or outputs.get(var)
            if source is None:
                outputs[var] = target
            else:
                copies.append(Copy(self.slot(target, var.type), self.slot(source, var.type)))
        return [*self.block(block, places, outputs), *copies]

    def _step(self, frame: Frame, step: LoweredStep) -> list[Step]:
        match step:
            case Launch():
                return self._launch(frame, step)
            case Transfer():
                return [Copy(self.slot_of(frame, step.dst), self.slot_of(frame, step.src))]
            case HostStep():
                return self._host(frame, step)
            case TapeStep():
                inputs = tuple([self.slot_of(frame, v) for v in step.operands])
                outputs = tuple([self.slot_of(frame, v) for v in step.results])
                return [Taping(step.kind, step.type, inputs, outputs)]
            case Branching():
                return control.branch(self, frame, step)
            case Looping():
                return control.loop(self, frame, step)
            case Whiling():
                return control.while_loop(self, frame, step)
        raise TypeError(f"not a lowered step: {step!r}")

    def _host(self, frame: Frame, step: HostStep) -> list[Step]:
        """A call whose results get their own shapes, also where a loop moves another's slot."""
        inputs = tuple([self.slot_of(frame, v) for v in step.operands])
        targets = [self.slot_of(frame, v) for v in step.results]
        spare = {
            target: self.take(var.type.nbytes)
            for var, target in zip(step.results, targets, strict=True)
            if target.type != var.type
        }
        outputs = [
            self.slot(spare[target], var.type) if target in spare else target
            for var, target in zip(step.results, targets, strict=True)
        ]
        for place in spare.values():
            self.release(place)
        copies = [Copy(t, o) for t, o in zip(targets, outputs, strict=True) if t is not o]
        return [Host(step.function, inputs, tuple(outputs), step.name), *copies]

    def _launch(self, frame: Frame, step: Launch) -> list[Step]:
        steps: list[Step] = []
        for result, operand in step.replaces:
            if not self.shared(self.place(frame, result), self.place(frame, operand)):
                steps.append(Copy(self.slot_of(frame, result), self.slot_of(frame, operand)))
        kernel, args = step.kernel, step.args
        pairs = self._shared_pairs(frame, step) if kernel.kind == "contract" else {}
        if pairs:
            args = tuple([v for v in args if v not in pairs])
            of = dict(zip(step.args, kernel.buffers, strict=True))
            kernel = self._changed(kernel, {of[x]: of[y] for x, y in pairs.items()})
        elif kernel.kind == "contract" and frame.late.issuperset(step.writes):
            kernel = self._changed(kernel, {})
        slots = tuple([self.slot_of(frame, v) for v in args])
        return [*steps, Run(kernel, slots, step.scalars)]

    def _changed(self, kernel: Kernel, pairs: dict[Buffer, Buffer]) -> Kernel:
        """A product's kernel working in place (see `merged`), or without pairs one that stores past
        the caches. The same object for launches of one kernel."""
        key = (kernel, *pairs.items())
        if key not in self._kernels:
            self._kernels[key] = merged(kernel, pairs) if pairs else _past(kernel)
        return self._kernels[key]

    def _shared_pairs(self, frame: Frame, step: Launch) -> dict[Var, Var]:
        """Operand -> result where both have one place."""
        return {
            operand: result
            for result in step.writes
            for operand in step.args
            if operand is not result
            and self.shared(self.place(frame, result), self.place(frame, operand))
        }


def _past(kernel: Kernel) -> Kernel:
    """A product's kernel storing past the caches."""
    (stage,) = kernel.body
    return replace(kernel, body=(replace(stage, past=True),))
