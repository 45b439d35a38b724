"""LLVM IR with its local names replaced by numbers, so that only what it does can differ.

    %sum7 = fadd float %x3, %x3        ->        %1 = fadd float %0, %0

Values are numbered in the order in which a function's text names them, and so are its blocks.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"%([\w.]+)")
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)
_INSTRUCTION = re.compile(r"^  \S", re.MULTILINE)


def normalised(text: str) -> str:
    """The text of LLVM functions with the names inside each one numbered."""
    return "\n}\n".join([_numbered(function) for function in text.split("\n}\n")])


def _numbered(function: str) -> str:
    parts = _NAME.split(function)  # every other one is a name
    labels = [n for n in range(0, len(parts), 2) if ":" in parts[n]]
    named: list[str] = []
    blocks: set[str] = set()
    done = 0
    for n in labels:
        found = _LABEL.findall(parts[n])
        named += [*parts[done + 1 : n : 2], *found]
        blocks.update(found)
        done = n
    order = dict.fromkeys([*named, *parts[done + 1 :: 2]])
    of_block = {name: f"b{n}" for n, name in enumerate(x for x in order if x in blocks)}
    numbers = {name: f"%{n}" for n, name in enumerate(x for x in order if x not in blocks)}
    numbers |= {name: f"%{number}" for name, number in of_block.items()}
    parts[1::2] = map(numbers.__getitem__, parts[1::2])
    for n in labels:
        parts[n] = _LABEL.sub(lambda found: f"{of_block[found[1]]}:", parts[n])
    return "".join(parts)


def instructions(text: str) -> int:
    """How many instructions functions have."""
    return len(_INSTRUCTION.findall(text))
