"""Interleaved instructions: pieces of code do one each in turn, and wait less for each other.

    interleaved([["  %a = fadd float %x, %x", ...], ["  %b = fadd float %y, %y", ...]], fresh)

A processor looks ahead over about two hundred instructions: one after the other, long pieces leave
it little to do while each waits for itself. A path that is seldom taken is a `ColdPath`; pieces
come to theirs together, by one branch for all. With a branch for each, LLVM would move what the
later pieces compute behind the branches of the earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_NAME = re.compile(r"%[\w.]+")
_SETS = re.compile(r"  (%[\w.]+) =")
_LANES = re.compile(r"<(\d+) x i1>")


@dataclass(frozen=True, slots=True)
class Choice:
    """The value `name` of LLVM type `type`: `usual`, or `repaired` on a cold path."""

    name: str
    type: str
    usual: str
    repaired: str


@dataclass(frozen=True, slots=True)
class ColdPath:
    """Code that runs only where some lane of `mask`, of LLVM type `type`, is true.

    some: a name for whether any is. The code begins the block `inside`; both ways meet in `after`.
    """

    type: str
    mask: str
    some: str
    inside: str
    after: str
    lines: tuple[str | ColdPath, ...]
    choices: tuple[Choice, ...]

    def text(self, block: str) -> list[str]:
        """Its lines, at the end of `block`."""
        lanes = _LANES.match(self.type)
        any_lane = f"@llvm.vector.reduce.or.v{lanes[1]}i1" if lanes else ""
        lines, last = text_of(self.lines, self.inside)
        return [
            *([f"  {self.some} = call i1 {any_lane}({self.type} {self.mask})"] if lanes else []),
            f"  br i1 {self.some if lanes else self.mask}, "
            f"label %{self.inside}, label %{self.after}",
            f"{self.inside}:",
            *lines,
            f"  br label %{self.after}",
            f"{self.after}:",
            *[
                f"  {c.name} = phi {c.type} [ {c.usual}, %{block} ], [ {c.repaired}, %{last} ]"
                for c in self.choices
            ],
        ]


Step = str | ColdPath


def text_of(steps: Sequence[Step], block: str) -> tuple[list[str], str]:
    """The lines of code that goes on in `block`, and the block that it ends in."""
    lines: list[str] = []
    for step in steps:
        if isinstance(step, ColdPath):
            lines += step.text(block)
            block = step.after
        else:
            lines.append(step)
            block = step[:-1] if step.endswith(":") else block
    return lines, block


def interleaved(pieces: Sequence[Sequence[Step]], fresh: Callable[[str], str]) -> list[Step]:
    """The steps of all pieces, one of each in turn unless it waits for another's.

    A piece that comes to a cold path waits until all others do. fresh: a new name with a prefix.
    """
    read = [[_reads(step) for step in piece] for piece in pieces]
    waiting = {name for piece in pieces for step in piece for name in _sets(step)}
    places = [0] * len(pieces)
    order: list[Step] = []

    def ready(n: int, cold_path: bool) -> bool:
        at = places[n]
        return (
            at < len(pieces[n])
            and isinstance(pieces[n][at], ColdPath) == cold_path
            and waiting.isdisjoint(read[n][at])
        )

    def take(n: int) -> Step:
        step = pieces[n][places[n]]
        waiting.difference_update(_sets(step))
        places[n] += 1
        return step

    while any(at < len(piece) for at, piece in zip(places, pieces, strict=True)):
        before = len(order)
        for n in range(len(pieces)):
            if ready(n, cold_path=False):
                order.append(take(n))
        if len(order) == before:
            there = [n for n in range(len(pieces)) if ready(n, cold_path=True)]
            cold_paths = [step for step in map(take, there) if isinstance(step, ColdPath)]
            order += _together(cold_paths, fresh)
    return order


def _sets(step: Step) -> list[str]:
    """Names of the values that later steps may read."""
    if isinstance(step, ColdPath):
        return [c.name for c in step.choices]
    found = _SETS.match(step)
    return [found[1]] if found else []


def _reads(step: Step) -> list[str]:
    """Names that a step reads, among others that mean nothing outside of it."""
    if isinstance(step, ColdPath):
        inside = "\n".join(text_of(step.lines, "")[0])
        return [step.mask, *[c.usual for c in step.choices], *_NAME.findall(inside)]
    return _NAME.findall(step)[len(_sets(step)) :]


def _together(cold_paths: Sequence[ColdPath], fresh: Callable[[str], str]) -> list[Step]:
    """The same with one branch past all of them, where their masks are alike."""
    first, others = cold_paths[0], cold_paths[1:]
    if not others or any(a.type != first.type for a in others):
        return list(cold_paths)
    steps: list[Step] = []
    mask = first.mask
    for cold_path in others:
        both = fresh("v")
        steps.append(f"  {both} = or {first.type} {mask}, {cold_path.mask}")
        mask = both
    inner = [
        replace(p, choices=tuple([replace(c, name=fresh("v")) for c in p.choices]))
        for p in cold_paths
    ]
    choices = [
        replace(c, repaired=i.name)
        for a, b in zip(cold_paths, inner, strict=True)
        for c, i in zip(a.choices, b.choices, strict=True)
    ]
    inside, after = fresh("rare")[1:], fresh("usual")[1:]
    return [
        *steps,
        ColdPath(first.type, mask, fresh("v"), inside, after, tuple(inner), tuple(choices)),
    ]
