"""Python source, written line by line and compiled: what everything here that writes Python uses.

    source = Source()
    with source.block("def add(a):"):
        source.line(f"return a + {source.constant(1.5)}")      # return a + c0
    add = source.function("add", "an example")
    add(1.0)                                                   # 2.5

Tracebacks show the lines of what was compiled, under a file name like <fxad an example 5ae31f02>.
"""

from __future__ import annotations

import functools
import linecache
import math
import os
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

INDENT = "    "
# What the names of our files begin with, as frames know them: of modules, which are not where they
# lie if byte code alone was installed, and of compiled source.
_PLACE = os.path.dirname(os.path.dirname((lambda: None).__code__.co_filename))
PACKAGE = (_PLACE or "<no package>") + os.sep
FILES = "<fxad "


class Source:
    """Lines at an indentation, names that are not taken, and the objects that constants name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._indent = ""
        self._counts: dict[str, int] = {}

    def line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def extend(self, lines: Iterable[str]) -> None:
        """Append lines written elsewhere, indented as much further as this source is now."""
        self.lines += [self._indent + line for line in lines]

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block below its header; an empty one is `pass`."""
        self.line(header)
        outer, self._indent = self._indent, self._indent + INDENT
        begun = len(self.lines)
        yield
        if len(self.lines) == begun:
            self.line("pass")
        self._indent = outer

    def fresh(self, prefix: str) -> str:
        """The next of prefix0, prefix1, ..."""
        count = self._counts.get(prefix, 0)
        self._counts[prefix] = count + 1
        return f"{prefix}{count}"

    def define(self, value: str, prefix: str = "v") -> str:
        """A fresh variable of this value."""
        name = self.fresh(prefix)
        self.line(f"{name} = {value}")
        return name

    def constant(self, value: Any) -> str:
        """A name for an object that the function finds among its globals."""
        name = self.fresh("c")
        self.constants[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def function(self, name: str, title: str) -> Any:
        """The function `name` that the lines define, made once. title: for tracebacks."""
        return defined(self.text, title, self.constants)[name]


def defined(text: str, title: str, scope: dict[str, Any]) -> dict[str, Any]:
    """What the text defines, by name; its globals are `scope`."""
    made: dict[str, Any] = {}
    exec(compiled(text, title), scope, made)
    return made


@functools.lru_cache(maxsize=1 << 10)
def compiled(text: str, title: str) -> CodeType:
    """Code of the text, compiled once; tracebacks show its lines for as long as it is cached."""
    file = f"{FILES}{title} {zlib.crc32(text.encode()):08x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code = compile(text, file, "exec")
    weakref.finalize(code, linecache.cache.pop, file, None)
    return code


# ---------------------------------------------------------------- expressions and names


def tupled(parts: Sequence[str]) -> str:
    """A tuple of expressions."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def number(value: complex) -> str:
    """An expression of exactly this number (or bool)."""
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, complex):
        return f"complex({number(value.real)}, {number(value.imag)})"
    if math.isfinite(value):
        return repr(value)
    return f'float("{value}")'


def close_to(hint: str, taken: set[str]) -> str:
    """A name that is not among those taken, which it then is: hint, hint_, hint1, hint2, ..."""
    name, count = hint, 1
    while name in taken:
        name = f"{hint}_" if count == 1 and f"{hint}_" not in taken else f"{hint}{count}"
        count += 1
    taken.add(name)
    return name
