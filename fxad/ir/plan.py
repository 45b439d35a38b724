"""Plan: what runs when, and where every byte lives. Built before anything runs.

A plan is a tree of steps over numbered slots; an executor walks it (natively for LLVM, in Python
for the oracle backends). Storage of a slot: an argument, a constant, a result buffer, a place in
the arena, or a view that a loop moves along another slot.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.core.record import record
from fxad.core.types import ArrayType, TapeType
from fxad.ir.kernel import Kernel


@record
class Slot:
    """One piece of storage.

    place: "argument" (number = index into the call's flat arguments), "constant" (index into
    Plan.constants), "result" (index into the results; allocated by the executor, 64-byte
    aligned), "arena" (offset = byte offset, multiple of 64), "view" (pointer set by a loop).
    """

    id: int
    type: ArrayType
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
    stay exchanged after the loop. `frees`: no tape written in an iteration is used after it.
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
    """

    function: Callable[..., object]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    name: str = "host"


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


def walk(steps: tuple[Step, ...]):
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
