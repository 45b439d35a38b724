"""Functions that kernels have in common, compiled once for all of them.

    own, common = taken_apart(emitted.text, target)
    own                     # calls @common.3f0c..., which another module defines
    common                  # {"common.3f0c...": Common(...)}

Kernels of products and of attention copy their factors into panels and add up tiles of their
results in functions of their own. What such a function does follows from the strides and lengths
that it is written for, and many products agree in these: a quarter of the code of a training step
with 39 products had been there before. Equal texts get one name, a hash of the text and of what it
is compiled for.
"""

from __future__ import annotations

import hashlib
import re

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.native.engine import attribute_groups
from fxad.core.record import valued

_HEAD = re.compile(r"define internal (void @)([\w.]+)(\(.*\) #1) \{\n")
_END = "\n}\n"
_PARAMETER = re.compile(r" %\w+(?=[,)])")


@valued
class Common:
    """A function that one module defines and others call."""

    definition: str
    declaration: str


def taken_apart(text: str, target: Target) -> tuple[str, dict[str, Common]]:
    """A kernel's own functions, which call others by their new names, and these by name.

    Others are those that must stay functions (#1), return nothing and refer to nothing but LLVM's
    intrinsics. They can be called, but no pointer to one is renamed.
    """
    own: list[str] = []
    names: dict[str, str] = {}
    common: dict[str, Common] = {}
    settings = f"{target.isa} {attribute_groups(target)}"
    *functions, rest = f"{text}\n".split(_END)
    assert not rest.strip(), rest
    for function in functions:
        head = _HEAD.match(function)
        body = function[head.end() :] if head else "@"
        if head is None or "@" in body.replace("@llvm.", ""):
            own.append(function)
            continue
        before, name, after = head.groups()
        digest = hashlib.sha256(f"{after}\n{body}\n{settings}".encode()).hexdigest()
        names[name] = new = f"common.{digest[:32]}"
        common[new] = Common(
            f"define {before}{new}{after} {{\n{body}\n}}",
            f"declare {before}{new}{_PARAMETER.sub('', after)}",
        )
    left = "".join(function + _END for function in own)
    for name, new in names.items():
        left = left.replace(f"@{name}(", f"@{new}(")
    return left, common
