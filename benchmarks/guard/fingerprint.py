"""A hash of a program's plan and machine code: what is equal on both sides need not be timed.

    fingerprint(fxad.jit(f).lower(x))     # 64 hexadecimal digits, or None

It looks inside the compiler, as that is since the commit 3ae05e4. Where something is not there the
answer is None, and the case is timed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import struct
from typing import Any

try:
    from fxad.backend.llvm import cache, runner
    from fxad.backend.llvm.native import library, memory, pool, pool_code, tape_code, walk_code

    _RUNTIME: tuple[Any, ...] = (runner, library, memory, pool, pool_code, tape_code, walk_code)
except ImportError:  # another commit's compiler
    _RUNTIME = ()

_CODE, _SYMBOLS, _LOADED = 1, 3, 2  # ELF: SHT_PROGBITS, SHT_STRTAB, SHF_ALLOC
# Kernels, and functions that they have in common, are named after a hash of their text.
_NAMED = re.compile(rb"_[0-9a-f]{16}|common\.[0-9a-f]{32}")


def fingerprint(lowered: Any) -> str | None:
    """Of a `Lowered` that was not compiled before; None where it cannot be had."""
    if not _RUNTIME:
        return None
    try:
        cache.kernels.clear()  # or what other programs share with it would not be in its modules
        executable = lowered.executable
        found = hashlib.sha256(f"{_runtime()} {executable.plan}".encode())
        for code in executable.codes.values():
            found.update(f"{code.units} {code.scratch_bytes} {code.cost!r}".encode())
        codes = [*executable.codes.values(), *executable.sequences]
        for module in {id(code.module): code.module for code in codes}.values():
            found.update(machine_code(module.image))
    except AttributeError:
        return None
    return found.hexdigest()


def machine_code(image: bytes) -> bytes:
    """What of an object file decides how it runs: code, constants, and the functions it calls,
    without the hashes in names."""
    if image[:6] != b"\x7fELF\x02\x01":  # only Linux's format is taken apart
        return _NAMED.sub(b"_", image)
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    parts, names = [], set()
    for at in range(table, table + size * count, size):
        _, kind, flags, _, start, length = struct.unpack_from("<IIQQQQ", image, at)
        contents = image[start : start + length]
        if kind == _CODE and flags & _LOADED:
            parts.append(contents)
        elif kind == _SYMBOLS:
            names |= set(_NAMED.sub(b"_", contents).split(b"\0"))
    return b"".join([*parts, *sorted(names)])


@functools.cache
def _runtime() -> str:
    """The sources of what runs plans, without comments and layout: they decide how work is shared
    among threads and where memory comes from, and all of it may matter to any program."""
    texts = [ast.dump(ast.parse(inspect.getsource(module))) for module in _RUNTIME]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
