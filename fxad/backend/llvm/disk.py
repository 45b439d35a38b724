"""Compiled programs kept on disk, so that the next process need not plan and compile them again.

    address = disk.address(program, donate, fusion)   # None: not to be cached
    executable = disk.recall(address)                 # None: not there
    disk.keep(address, executable, seconds)

An entry is a plan as JSON (`ir/wire.py`) and machine code; its address is a hash of the program,
of this package's sources, and of the compiler, processor and settings it was made for. Entries are
machine code, so they are read only from a directory that nobody else may write to. `FXAD_CACHE=0`
turns all this off, `FXAD_CACHE_DIR` says where it is.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import struct
import sys
import tempfile
import time
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np

from fxad.backend.llvm import cache, engine
from fxad.backend.llvm.cache import Code
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.schedule import Emitted
from fxad.backend.llvm.sequence import sequences as sequences_of
from fxad.backend.llvm.sequence_emit import SequenceCode
from fxad.core.config import config
from fxad.core.errors import CacheWarning
from fxad.ir import wire
from fxad.ir.digest import digest
from fxad.ir.kernel import Kernel
from fxad.ir.kernel_text import kernel_key
from fxad.ir.program import Program
from fxad.ops import OWN

BOUND = 1 << 29  # bytes of entries kept, the least recently used go first
WORTH_SECONDS = 0.1  # programs that compile faster than this are not kept
_MAGIC = b"fxad compiled 1\n"
_PACKAGE = Path(__file__).parent.parent.parent
_DECIDING = ("core", "ir", "ops", "passes", "lower", "plan", "backend/llvm")  # what code depends on


def directory() -> Path:
    """Where entries are."""
    if config.cache_dir:
        return Path(config.cache_dir)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "fxad"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "fxad"


def address(program: Program, donate: frozenset[int], fusion: bool) -> str | None:
    """The name of a program's entry. None if caching is off, the program is being watched by a
    setting, or it holds something that only this process knows."""
    if not config.cache or config.check or config.show or config.fuel is not None:
        return None
    own = digest(program, OWN)
    if own is None:
        return None
    text = f"{own} {sorted(donate)} {fusion} {config.isa} {_surroundings()}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _surroundings() -> str:
    """Everything beside the program that code and plan depend on."""
    versions = f"{platform.python_version()} {np.__version__} {ml_dtypes.__version__}"
    return f"{_sources()} {versions} {engine.host_identity()}"


def _sources() -> str:
    found = hashlib.sha256()
    for part in _DECIDING:
        for path in sorted((_PACKAGE / part).glob("*.py")):
            found.update(f"{part}/{path.name}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


# ---------------------------------------------------------------- entries


def recall(name: str) -> Executable | None:
    """The program of an entry, if there is a whole and private one."""
    path = directory() / name
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if not _private(path.parent):
        return None
    try:
        body = raw[len(_MAGIC) + 32 :]
        if not raw.startswith(_MAGIC + hashlib.sha256(body).digest()):
            raise ValueError("the digest does not match")
        made = _unpacked(body)
    except Exception as error:  # whatever is in there, we can still compile
        _warn_once(f"ignoring the damaged cache entry {path}: {error}")
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return made


def keep(name: str, executable: Executable, seconds: float) -> None:
    """Write an entry, if it took long to make. Never raises for a disk that does not take it."""
    if seconds < WORTH_SECONDS:
        return
    try:
        body = _packed(executable)
    except wire.NotPlain:
        return
    where = directory()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(where):
            return
        handle, temporary = tempfile.mkstemp(dir=where, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, where / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _trim(where)
    except OSError as error:
        if config.cache_dir:
            _warn_once(f"cannot write to the cache directory {where}: {error}")


def _packed(executable: Executable) -> bytes:
    text, numbers = wire.dumps(executable.plan)
    modules: dict[int, int] = {}
    images: list[bytes] = []
    codes: dict[int, list] = {}
    for kernel, number in numbers.items():
        code = executable.codes.get(kernel)  # None: only inside sequences
        if number in codes or code is None:
            continue
        if id(code.module) not in modules:
            modules[id(code.module)] = len(images)
            images.append(code.module.image)
        one = code.emitted
        facts = [one.name, one.units, one.scratch_bytes, float(one.cost).hex()]
        codes[number] = [kernel_key(kernel), modules[id(code.module)], *facts]
    sequences = []
    for whole in executable.sequences:
        sequences.append([len(images), float(whole.cost).hex()])
        images.append(whole.module.image)
    sizes = [len(image) for image in images]
    head = {"plan": text, "codes": codes, "sequences": sequences, "images": sizes}
    written = json.dumps(head).encode()
    return b"".join([struct.pack("<Q", len(written)), written, *images])


def _unpacked(body: bytes) -> Executable:
    (length,) = struct.unpack_from("<Q", body)
    head = json.loads(body[8 : 8 + length])
    contents = wire.loads(head["plan"])
    target = engine.host_target(config.isa)
    modules, at = [], 8 + length
    for size in head["images"]:
        modules.append(engine.Module("", target, body[at : at + size]))
        at += size
    of_number: dict[int, Code] = {}
    adopted = {}
    codes: dict[Kernel, Code] = {}
    for kernel, number in contents.kernels:
        if number not in of_number:
            if str(number) not in head["codes"]:
                continue
            key, module, name, units, scratch_bytes, cost = head["codes"][str(number)]
            one = Emitted(name, "", frozenset(), units, scratch_bytes, float.fromhex(cost))
            code = Code(one, modules[module], modules[module].address(name), kernel)
            of_number[number] = adopted[key, target] = code
        codes[kernel] = of_number[number]
    cache.kernels.adopt(adopted)
    found = sequences_of(contents.plan)
    sequences = [
        SequenceCode(sequence, modules[module], float.fromhex(cost))
        for sequence, (module, cost) in zip(found, head["sequences"], strict=True)
    ]
    return Executable(contents.plan, codes=codes, sequences=sequences)


# ---------------------------------------------------------------- the directory


def _private(where: Path) -> bool:
    """Whether nobody but this user can have written what is in a directory."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = where.stat()
    except OSError:
        return False
    if found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return True
    _warn_once(f"the cache directory {where} belongs to others or they may write to it; not used")
    return False


def _trim(where: Path) -> None:
    """Delete entries beyond BOUND, and what killed processes left behind."""
    entries = []
    for path in where.iterdir():
        with contextlib.suppress(OSError):  # another process deletes too
            facts = path.stat()
            if path.suffix == ".tmp":
                if time.time() - facts.st_mtime > 3600:
                    path.unlink()
            elif len(path.name) == 64:
                entries.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= BOUND:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    kind = message.split(":")[0].split("/")[0]
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, CacheWarning, stacklevel=2)
