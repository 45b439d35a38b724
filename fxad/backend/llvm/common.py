"""Functions that kernels have in common, compiled once for all of them.

    own, common = taken_apart(emitted.text, target)
    own                     # calls @common.3f0c..., which another module may define
    common                  # {"common.3f0c...": Common(...)}

A product copies its factors into panels and adds up tiles of its result in functions of its own,
which are told all strides and lengths that the tile itself does not fix: of 39 products of a
training step most have the same ones, a third of the code. What such a function is called does not
matter, so equal texts get one name, a hash of the text and of what it is compiled for.
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
    """The functions of a kernel, of which those that others may have too stand apart, by name.

    These are functions that must stay functions and call none but LLVM's intrinsics.
    """
    own: list[str] = []
    names: dict[str, str] = {}
    common: dict[str, Common] = {}
    made_for = f"{target.isa} {attribute_groups(target)}"
    for function in f"{text}\n".split(_END)[:-1]:
        head = _HEAD.match(function)
        body = function[head.end() :] if head else "@"
        if head is None or "@" in body.replace("@llvm.", ""):
            own.append(function)
            continue
        before, name, after = head.groups()
        said = hashlib.sha256(f"{after}\n{body}\n{made_for}".encode()).hexdigest()
        names[name] = new = f"common.{said[:32]}"
        common[new] = Common(
            f"define {before}{new}{after} {{\n{body}\n}}",
            f"declare {before}{new}{_PARAMETER.sub('', after)}",
        )
    left = "".join(function + _END for function in own)
    for name, new in names.items():
        left = left.replace(f"@{name}(", f"@{new}(")
    return left, common
