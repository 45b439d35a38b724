"""How a step fits into the memory that a run may take: the option `memory`, such as 8GiB.

    chosen = choose(options, task, params, state)
    chosen.options          # with micro-batches, recomputation, offloading as they must be
    chosen.line             # "memory: 8 GiB allowed, about 6.9 GiB taken: ..."

Candidates are tried from the fastest to the slowest. Each is traced and planned, which takes about
a second and makes no machine code, and the first one whose plan fits is taken. What a run takes is
what the process holds already (parameters and the optimizer's state among it), what the largest of
a step and a validation needs beside these, copies for checkpoints in the background, and the
compiler. Adapters that are merged in the end take the memory of another model then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import fxad
from fxad.core.sizes import parse_bytes
from fxad.core.system import physical_bytes, resident_now
from fxad_nn.errors import ConfigError
from fxad_nn.recipe import RunOptions, optimizer_of
from fxad_nn.task import Task

COMPILER = 96 << 20
"""Bytes that LLVM and the code it makes take; see docs/log.md."""

CHECKPOINTS = ("kept", "recomputed", "offloaded")
"""What becomes of what blocks keep for their gradient, from the fastest to the slowest."""

Options = TypeVar("Options", bound=RunOptions)


@dataclass(frozen=True)
class Chosen(Generic[Options]):
    """The options to run with, and what there is to say of them."""

    options: Options
    line: str
    predicted: int
    warnings: list[str]


@dataclass(frozen=True)
class Prediction:
    """Bytes of a process: what is held before the first step, and what a step adds at most."""

    held: int
    step: int
    copies: int

    @property
    def total(self) -> int:
        return self.held + self.step + self.copies + COMPILER

    def __str__(self) -> str:
        parts = {"before the first step": self.held, "the step": self.step}
        parts |= {"copies to save": self.copies} if self.copies else {}
        parts["the compiler"] = COMPILER
        return ", ".join(f"{name} {shown(nbytes)}" for name, nbytes in parts.items())


def choose(options: Options, task: Task, params: Any, state: Any) -> Chosen[Options]:
    """The fastest way to do a step within `options.memory`.

    Ways that `options` take already, such as `recompute`, are taken in any case. Raises
    ConfigError, with the least that would do, where none fits.
    """
    assert options.memory is not None
    allowed = parse_bytes(options.memory, "memory")
    least, tried = None, set()
    for candidate in _candidates(options):
        how = task.changed(candidate)
        way = how.parts, candidate.recompute, candidate.offload
        if way in tried:
            continue
        tried.add(way)
        found = predicted(candidate, how, params, state)
        if found.total <= allowed:
            line = f"{shown(allowed)} allowed, about {shown(found.total)} taken ({found})"
            line = f"memory: {line}, with {described(candidate, how)}"
            return Chosen(candidate, line, found.total, _beyond(allowed))
        if least is None or found.total < least[0].total:
            least = found, described(candidate, how)
    assert least is not None
    raise ConfigError(
        f"`memory={options.memory!r}` is too little: the least that a run takes is about "
        f"{shown(least[0].total)} ({least[0]}), with {least[1]}; allow that much, or give a "
        "smaller `batch` or `context`"
    )


def _beyond(allowed: int) -> list[str]:
    """A warning where more is allowed than there is."""
    there = physical_bytes()
    if there is None or allowed <= there:
        return []
    return [f"`memory` allows {shown(allowed)}, and this machine has {shown(there)}"]


def predicted(options: RunOptions, task: Task, params: Any, state: Any) -> Prediction:
    """What a run with these options takes, by the plans of its programs."""
    programs = task.largest(optimizer_of(options), params, state)
    added = max(low.planned_bytes(arguments=False) for low in programs)
    return Prediction(resident_now(), added, copies(options, params, state))


def copies(options: RunOptions, params: Any, state: Any) -> int:
    """Bytes of the copy that a checkpoint in the background is written from."""
    return _bytes(params) + _bytes(state) if options.background_saves else 0


def needed(*functions: Any) -> int:
    """Bytes that jitted functions need at most beside their arguments, by the plans of those of
    their programs that have run: nothing is traced or planned for it."""
    return max((trace.needed_bytes for f in functions for trace in f.traces()), default=0)


def _candidates(options: Options) -> Iterator[Options]:
    """The ways to do a step, from the fastest to the slowest."""
    given = "offloaded" if options.offload else "recomputed" if options.recompute else "kept"
    counts = [n for n in range(options.micro_batches, options.batch + 1) if options.batch % n == 0]
    for how in CHECKPOINTS[CHECKPOINTS.index(given) :]:
        flags: dict[str, Any] = {"recompute": how == "recomputed", "offload": how == "offloaded"}
        for count in counts if options.micro_batches == 1 else counts[:1]:
            yield replace(options, micro_batches=count, **flags)


def described(options: RunOptions, task: Task) -> str:
    """How a step is done, in words."""
    parts, rows = task.parts
    batch = f"{parts} micro-batches of {rows} rows" if parts > 1 else f"{rows} rows at once"
    how = "offloaded" if options.offload else "recomputed" if options.recompute else "kept"
    return f"{batch} and what blocks compute {how}"


def shown(nbytes: int) -> str:
    """A size as people read it: "6.9 GiB", "512 MiB", "40 KiB"."""
    for unit, shift, digits in (("GiB", 30, 1), ("MiB", 20, 0)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.{digits}f} {unit}"
    return f"{nbytes / (1 << 10):.0f} KiB"


def _bytes(tree: Any) -> int:
    return sum(int(leaf.nbytes) for leaf in fxad.tree.leaves(tree) if hasattr(leaf, "nbytes"))
