"""Names of values in the text of a Program.

    params.blocks[0].qkv.weight      an input, by its place in the arguments
    d_params.blocks[0].qkv.weight    a result of a gradient
    b, mean[3], x[i+1]               values of equations; those of repeated stretches by the copy

A label is a word and a path of `.word`, `[0]` and `["any text"]`. Whatever a user's dictionary
holds becomes one: what is no identifier is quoted, with control characters escaped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fxad.core.record import record, valued
from fxad.ir.program import KEYWORDS, Atom, Eqn, Program, Var

_DTYPE = re.compile(r"(?:bool|[iu]\d+|f\d+(?:e\dm\d\w*)?|bf16|c\d+)\Z")
_INDEX = re.compile(r"\[(\d+)\]")


def label(root: str, path: Iterable[object]) -> str:
    """The label of a leaf: the name of an argument, and the path in it (keys as `pytree` has
    them: with a `name`, an `idx` or a `key`)."""
    word = root if root.isidentifier() else "_"
    if word in KEYWORDS or _DTYPE.match(word):
        word += "_"
    return word + "".join([_step(key) for key in path])


def _step(key: Any) -> str:
    for attribute in ("idx", "name", "key"):
        value = getattr(key, attribute, None)
        if value is not None:
            break
    if type(value) is int and value >= 0:
        return f"[{value}]"
    text = value if isinstance(value, str) else str(value)
    return f".{text}" if text.isidentifier() else f"[{json.dumps(text)}]"


def labelled(variables: Sequence[Any], labels: Iterable[str]) -> None:
    """Give values that have none these labels; literals among them have no names."""
    for var, text in zip(variables, labels, strict=True):
        if isinstance(var, Var) and not var.label:
            var.label = text


def label_captured(program: Program) -> None:
    """Have what the bodies of loops and branches take from around them go by the same labels
    inside, where a body stands in one equation alone."""
    bodies = [each for eqn in program.eqns if eqn.op.higher for each in _bodies(eqn)]
    used = Counter([id(body) for body, _ in bodies])
    for body, operands in bodies:
        if used[id(body)] == 1:
            labels = [a.label if isinstance(a, Var) else "" for a in operands]
            own = {v.label for v in body.inputs}
            fresh = [t if t not in own and labels.count(t) == 1 else "" for t in labels]
            labelled(body.inputs[: len(operands)], fresh)
            label_captured(body)


def _bodies(eqn: Eqn) -> Iterator[tuple[Program, Sequence[Atom]]]:
    """The programs of a loop or of branches, with the operands that their first inputs are."""
    params, operands = eqn.params, eqn.inputs
    match eqn.op.name:
        case "scan":
            yield params["body"], operands[: params["consts"]]
        case "while":
            first, second = params["cond_consts"], params["body_consts"]
            yield params["cond"], operands[:first]
            yield params["body"], operands[first : first + second]
        case "cond":
            for branch in params["branches"]:
                yield branch, operands[1:]


@record
class Numbered:
    """The names of one value of a repeated stretch: `before`, the copy's index + shift, `after`."""

    before: str
    shift: int
    after: str

    def name(self, index: int) -> str:
        """Of the copy with this index."""
        return f"{self.before}{index + self.shift}{self.after}"

    def text(self) -> str:
        """Of the copy `i`."""
        shift = f"{self.shift:+d}" if self.shift else ""
        return f"{self.before}i{shift}{self.after}"


def _indices(name: str) -> list[re.Match[str]]:
    """The numbers of a label; none where a user's own text could look like one."""
    return [] if '"' in name else list(_INDEX.finditer(name))


def numbered(names: Sequence[str], indices: Sequence[int]) -> Numbered | None:
    """What gives these names for these indices, if one of their numbers grows with the index."""
    first = names[0]
    for match in _indices(first):
        before, after = first[: match.start(1)], first[match.end(1) :]
        found = Numbered(before, int(match[1]) - indices[0], after)
        if all(found.name(i) == name for i, name in zip(indices, names, strict=True)):
            return found
    return None


def sequence(names: Sequence[str]) -> tuple[int, int] | None:
    """(first, +1 or -1) where a number in the names grows or falls by one from each to the next."""
    first = names[0]
    for match in _indices(first):
        start = int(match[1])
        for step in (1, -1):
            indices = range(start, start + step * len(names), step)
            if numbered(names, indices):
                return start, step
    return None


@valued
class Group:
    """Names that are printed as one: prefix[first..last].{after, ...}."""

    prefix: str
    first: int
    last: int
    after: tuple[str, ...]

    def text(self, marks: Sequence[str] = ()) -> str:
        """The text, with a mark (a type) behind each item or behind the whole."""
        inner = [a + m for a, m in zip(self.after, marks or [""] * len(self.after), strict=True)]
        head = f"{self.prefix}[{self.first}..{self.last}]"
        if self.after == ("",):
            return head + inner[0]
        return f"{head}.{{{', '.join(inner)}}}"


def grouped(names: Sequence[str], marks: Sequence[str]) -> Iterator[str]:
    """Names with their marks, those of equal branches of a tree as one.

    x[0].a: f32, x[0].b: f32, x[1].a: f32, x[1].b: f32    ->  x[0..1].{a: f32, b: f32}
    """
    at = 0
    while at < len(names):
        group = _group(names, marks, at)
        if group is None:
            yield names[at] + marks[at]
            at += 1
            continue
        size = len(group.after)
        yield group.text(marks[at : at + size])
        at += size * (abs(group.last - group.first) + 1)


def _group(names: Sequence[str], marks: Sequence[str], at: int) -> Group | None:
    """The group that begins at a place, if at least two branches are equal."""
    match = next(iter(_indices(names[at])), None)
    if match is None:
        return None
    prefix, first = names[at][: match.start()], int(match[1])
    head = f"{prefix}[{first}]"
    size = 1
    while at + size < len(names) and names[at + size].startswith(head):
        size += 1
    after = [name[len(head) :] for name in names[at : at + size]]
    whole = after == [""]
    if not whole and not all(re.match(r"\.[^\W\d]", text) for text in after):
        return None
    for step in (1, -1):
        copies = _copies(names, marks, at, prefix, first, step, after)
        if copies > 1:
            items = ("",) if whole else tuple([text[1:] for text in after])
            return Group(prefix, first, first + step * (copies - 1), items)
    return None


def _copies(
    names: Sequence[str],
    marks: Sequence[str],
    at: int,
    prefix: str,
    first: int,
    step: int,
    after: Sequence[str],
) -> int:
    """How many equal branches follow each other from a place."""
    size, copies = len(after), 1
    wanted = list(marks[at : at + size])
    while first + step * copies >= 0:
        begin = at + size * copies
        branch = [f"{prefix}[{first + step * copies}]{text}" for text in after]
        if list(names[begin : begin + size]) != branch:
            break
        if list(marks[begin : begin + size]) != wanted:
            break
        copies += 1
    return copies
