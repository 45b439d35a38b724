"""Compiled programs kept on disk, so that the next process need not plan and compile them again.

    executable = disk.recall(key)           # None: not there
    disk.keep(key, executable, seconds)

An entry is a plan as JSON (`ir/wire.py`) and machine code; its key is a hash of all that it depends
on (`fxad.cache_key`).
`FXAD_CACHE=0` turns all this off.
"""

from __future__ import annotations

import functools
import json
import struct
from typing import Any

from fxad.backend.llvm import cache
from fxad.backend.llvm.base.schedule import Emitted
from fxad.backend.llvm.cache import Code
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.measured import target_of
from fxad.backend.llvm.native import engine, entries
from fxad.backend.llvm.numerics import bits_depend_on
from fxad.backend.llvm.sequence.choose import sequences as sequences_of
from fxad.backend.llvm.sequence.emit import SequenceCode
from fxad.cache_key import sources
from fxad.core import schema
from fxad.core.config import config
from fxad.ir import wire
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Kernel

WORTH_SECONDS = 0.1  # programs that compile faster than this are not kept
OWN_SOURCES = ("backend/hosts.py", "backend/llvm")


def identity() -> str | None:
    """What code depends on beside the program and the plan; None if our sources cannot be read."""
    own = _own()
    if own is None:
        return None
    target = target_of(config.isa)
    tuned = f"{target.choices.digest} {target.tuning.digest}"
    bits = sorted(bits_depend_on(target).items())
    return f"{own} {config.isa} {tuned} {bits}"


@functools.cache
def _own() -> str | None:
    ours = sources(OWN_SOURCES)
    return None if ours is None else f"{ours} {engine.host_identity()}"


# ---------------------------------------------------------------- entries

_COUNT, _COST = schema.integer(), schema.number()
_CODE = schema.row(schema.string(), _COUNT, schema.string(), _COUNT, _COUNT, _COST)
_HEAD = schema.record(
    {
        "plan": schema.string(most=wire.LIMITS.size),
        "codes": schema.mapping(_CODE, key=schema.string("[0-9]+")),  # by number of content
        "sequences": schema.array(schema.row(_COUNT, _COST)),
        # Of each its size, and by name of what it calls the number of the earlier one with that.
        "images": schema.array(schema.row(_COUNT, schema.mapping(_COUNT, key=schema.string()))),
    }
)


def recall(name: str) -> Executable | None:
    """The program of an entry, if there is a whole and private one."""
    body = entries.read(name)
    if body is None:
        return None
    try:
        return _unpacked(body)
    except Exception as error:  # whatever is in there, we can still compile
        entries.damaged(name, error)
        return None


def keep(name: str, executable: Executable, seconds: float) -> None:
    """Write an entry, if it took long to make. Never raises for a disk that does not take it."""
    if seconds < WORTH_SECONDS:
        return
    try:
        body = _packed(executable)
    except wire.NotPlain:
        return
    entries.write(name, body)


def _packed(executable: Executable) -> bytes:
    text, numbers = wire.dumps(executable.plan, executable.codes)
    images = _Images()
    codes: dict[int, list] = {}
    for kernel, number in numbers.items():
        code = executable.codes.get(kernel)  # None: only inside sequences
        if number in codes or code is None:
            continue
        one = code.emitted
        facts = [one.name, one.units, one.scratch_bytes, float(one.cost)]
        codes[number] = [kernel_key(kernel), images.add(code.module), *facts]
    sequences = [[images.add(one.module), float(one.cost)] for one in executable.sequences]
    head = {"plan": text, "codes": codes, "sequences": sequences, "images": images.rows}
    written = json.dumps(head).encode()
    return b"".join([struct.pack("<Q", len(written)), written, *images.bytes])


class _Images:
    """Modules as an entry holds them: each once, after those that it calls."""

    def __init__(self) -> None:
        self.bytes: list[bytes] = []
        self.rows: list[tuple[int, dict[str, int]]] = []
        self._numbers: dict[int, int] = {}

    def add(self, module: engine.Module) -> int:
        """The module's number; it is added if it is new."""
        if id(module) not in self._numbers:
            calls = {name: self.add(other) for name, other in module.calls.items()}
            self._numbers[id(module)] = len(self.rows)
            self.rows.append((len(module.image), calls))
            self.bytes.append(module.image)
        return self._numbers[id(module)]


def _head(body: bytes) -> tuple[dict[str, Any], int]:
    """What an entry says of its images, and where the first one begins. Raises ValueError."""
    length = int.from_bytes(body[:8], "little")
    head = schema.parse(body[8 : 8 + length], _HEAD, "its head", ValueError, wire.LIMITS)
    if 8 + length + sum(size for size, _ in head["images"]) != len(body):
        raise ValueError("its machine code has another size than its head says")
    return head, 8 + length


def _unpacked(body: bytes) -> Executable:
    head, at = _head(body)
    contents = wire.loads(head["plan"])
    target = target_of(config.isa)
    modules: list[engine.Module] = []
    for size, calls in head["images"]:
        others = {name: modules[number] for name, number in calls.items()}
        modules.append(engine.Module("", target, body[at : at + size], others))
        at += size
    of_number: dict[int, Code] = {}
    adopted = {}
    codes: dict[Kernel, Code] = {}
    for kernel, number in contents.kernels:
        if number not in of_number:
            if str(number) not in head["codes"]:
                continue
            key, module, name, units, scratch_bytes, cost = head["codes"][str(number)]
            one = Emitted(name, "", frozenset(), units, scratch_bytes, cost)
            code = Code(one, modules[module], modules[module].address(name), kernel)
            of_number[number] = adopted[key, target] = code
        codes[kernel] = of_number[number]
    cache.kernels.adopt(adopted)
    found = sequences_of(contents.plan, target.tuning.sequences)
    sequences = [
        SequenceCode(sequence, modules[module], cost)
        for sequence, (module, cost) in zip(found, head["sequences"], strict=True)
    ]
    return Executable(contents.plan, codes=codes, sequences=sequences)
