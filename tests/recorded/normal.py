"""LLVM IR with its local names replaced by numbers, so that only what it does can differ.

    %sum7 = fadd float %x3, %x3        ->        %1 = fadd float %0, %0

Values are numbered in the order in which a function's text names them, and so are its blocks.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^define .*?^}$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)
_NAME = re.compile(r"(%[\w.]+|^[\w.]+(?=:))", re.MULTILINE)
_INSTRUCTION = re.compile(r"^  \S", re.MULTILINE)


def normalised(text: str) -> str:
    """The text of LLVM functions with the names inside each one numbered."""
    return _FUNCTION.sub(lambda found: _numbered(found[0]), text)


def _numbered(function: str) -> str:
    parts = _NAME.split(function)  # every other one is a name
    blocks = set(_LABEL.findall(function))
    order = dict.fromkeys([name.removeprefix("%") for name in dict.fromkeys(parts[1::2])])
    values = [name for name in order if name not in blocks]
    numbers = {f"%{name}": f"%{n}" for n, name in enumerate(values)}
    for n, name in enumerate(name for name in order if name in blocks):
        numbers[name], numbers[f"%{name}"] = f"b{n}", f"%b{n}"
    parts[1::2] = [numbers[name] for name in parts[1::2]]
    return "".join(parts)


def instructions(text: str) -> int:
    """How many instructions functions have."""
    return len(_INSTRUCTION.findall(text))
