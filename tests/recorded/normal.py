"""LLVM IR with its local names replaced by numbers, so that only what it does can differ.

    %sum7 = fadd float %x3, %x3        ->        %1 = fadd float %0, %0

Values are numbered in the order in which a function's text names them, and so are its blocks.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^define .*?^}$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)
_NAME = re.compile(r"%[\w.]+|^[\w.]+(?=:)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^  \S", re.MULTILINE)


def normalised(text: str) -> str:
    """The text of LLVM functions with the names inside each one numbered."""
    return _FUNCTION.sub(lambda found: _numbered(found[0]), text)


def _numbered(function: str) -> str:
    blocks = set(_LABEL.findall(function))
    names: dict[str, str] = {}
    values = 0

    def number(found: re.Match[str]) -> str:
        nonlocal values
        old = found[0]
        marked = old.startswith("%")
        bare = old[1:] if marked else old
        new = names.get(bare)
        if new is None:
            if bare in blocks:
                new = f"b{len(names) - values}"
            else:
                new, values = str(values), values + 1
            names[bare] = new
        return f"%{new}" if marked else new

    return _NAME.sub(number, function)


def instructions(text: str) -> int:
    """How many instructions functions have."""
    return len(_INSTRUCTION.findall(text))
