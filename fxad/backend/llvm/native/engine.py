"""llvmlite at arm's length: LLVM IR text in, addresses of machine code out.

    module = compile_module([text], declarations, host_target())
    module.address("twice")

The only file that imports `llvmlite.binding`. A module's code lives as long as its `Module`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from fxad.backend.llvm.base.kinds import Kind, capabilities, for_cores, known, safe
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.native.caches import own_caches
from fxad.core import system
from fxad.core.cores import default_threads, logical_cores
from fxad.core.errors import CheckError
from fxad.core.interrupts import uninterrupted
from fxad.core.record import record, replace

# Blocks that make or free llvmlite's objects are `uninterrupted`: one between a call of LLVM and
# the note that an object is gone is freed twice, which ends the process.

# Serialises our use of llvmlite, but for questions and for what is freed.
lock = threading.RLock()


# A fork waits for it, and for the lock that llvmlite takes round every call, so that no child
# inherits one of them taken by a thread that the child does not have.
_inside_llvmlite = getattr(ffi.lib, "_lock", None) or contextlib.nullcontext()


def _before_fork() -> None:
    lock.acquire()
    _inside_llvmlite.__enter__()


def _after_fork() -> None:
    _inside_llvmlite.__exit__(None, None, None)
    lock.release()


system.at_fork(_before_fork, _after_fork, _after_fork)

# x86-64 levels to generate code for, with the features that the host has beyond its own.
_LEVELS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "generic": "x86-64"}
TILES = "amx_bf16"
PARTS = "amx_float32"  # asked for: products of float32 on tiles, in parts
_ARM = ("aarch64", "arm64")  # how triples name it
_WIDTHS = {"avx512": 512, "avx2": 256}


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def host_features() -> frozenset[str]:
    """LLVM's names of the host CPU's features, such as `avx512f` or `fma`."""
    _initialize()
    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


def host_identity() -> str:
    """What machine code depends on besides its text: LLVM, the processor's features, those of them
    that this process may use."""
    _initialize()
    extras = ",".join(sorted(host_target().features))
    return f"{llvm_version()} {','.join(sorted(host_features()))} {extras}"


def llvm_version() -> str:
    """LLVM's, and what it compiles for."""
    return f"LLVM {'.'.join(map(str, llvm.llvm_version_info))} {llvm.get_process_triple()}"


def host_cpu_name() -> str:
    """What LLVM takes the processor for; nothing is chosen by it."""
    _initialize()
    return llvm.get_host_cpu_name()


def library_path() -> str:
    """The file of the library that holds LLVM."""
    return str(ffi.lib._name)


def host_isa() -> str:
    """The widest instruction set this machine runs: avx512, avx2, neon or generic."""
    if llvm.get_process_triple().startswith(_ARM):
        return "neon"  # part of every AArch64, also where the system tells no features
    features = host_features()
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"} <= features:
        return "avx512"
    if {"avx2", "fma", "f16c"} <= features:
        return "avx2"
    return "generic"


@functools.cache
def host_target(isa: str | None = None) -> Target:
    """The Target of this machine, or of a lower instruction set that it also runs.

    "amx" is avx512 with tiles for products of bf16, which the best has too, and for attention's of
    float32. Raises CheckError if this machine cannot run `isa`.
    """
    best = host_isa()
    order = ["generic", "avx2", "avx512"] if best in _LEVELS else ["generic", best]
    order = order[: order.index(best) + 1]
    kind = host_kind()
    extras = capabilities(kind, "amx" in kind.extras and _may_use_tiles())
    tuning = for_cores(known(kind) or safe(kind), default_threads())
    host = Target(best, extras, tuning=tuning)
    if TILES in extras:
        order.append("amx")
    if isa is None:
        return host
    if isa not in order:
        raise CheckError(f"this machine runs {', '.join(order)}; got {isa!r}")
    if isa == "amx":
        return replace(host, features=extras | {PARTS})
    return replace(host, features=extras - {TILES}) if isa == best else Target(isa)


@functools.cache
def host_kind() -> Kind:
    """What kind of processor this is."""
    return Kind.of(host_features(), host_isa(), *own_caches())


def _may_use_tiles() -> bool:
    """Ask Linux to save the tiles' contents for all threads of this process, now and later."""
    arch_prctl, request, tile_data = {"x86_64": 158}, 0x1023, 18
    return system.linux_call(arch_prctl, request, tile_data) == 0


def _machine(target: Target) -> llvm.TargetMachine:
    """A fresh TargetMachine: an execution engine takes ownership of its own."""
    _initialize()
    native = target.isa == host_isa()
    cpu = "generic" if host_isa() == "neon" else _LEVELS[target.isa]
    features = _features() if native else ""
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="default", codemodel="jitdefault", jit=True
    )


@functools.cache
def _features() -> str:
    """The host's features as LLVM reads them; asking takes two thirds of making a machine."""
    return llvm.get_host_cpu_features().flatten()


def attribute_groups(target: Target) -> str:
    """#0: every function; #1: functions that must stay functions. No fast math anywhere."""
    width, cpu = _WIDTHS.get(target.isa), target.tuning.cpu
    said = f' "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"' if width else ""
    if cpu:  # whose latencies to order by; which instructions there are, features alone say
        said += f' "tune-cpu"="{cpu}"'
    return f"attributes #0 = {{ nounwind{said} }}\nattributes #1 = {{ nounwind noinline{said} }}\n"


class Module:
    """Compiled code, its text and its addresses. Keep it as long as any address is in use."""

    def __init__(
        self, text: str, target: Target, image: bytes, calls: Mapping[str, Module] | None = None
    ) -> None:
        """text: LLVM IR, or empty where the machine code alone is kept. calls: the functions of
        other modules that this one calls, by name; it keeps those modules."""
        self.text = text
        self.target = target
        self.image = image
        self.calls = dict(calls or {})
        with lock, uninterrupted():
            _initialize()
            for name, other in self.calls.items():
                llvm.add_symbol(name, other.address(name))
            _resolve(_undefined_symbols(image) - self.calls.keys())
            container = llvm.parse_assembly("")
            container.triple = llvm.get_process_triple()
            self._engine = llvm.create_mcjit_compiler(container, _machine(target))
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(image))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where function `name` starts. Raises CheckError for a name the module lacks."""
        with lock:
            address = self._engine.get_function_address(name)
        if not address:
            raise CheckError(f"the module defines no function {name!r}")
        return address

    def assembly(self, text: str | None = None) -> str:
        """Assembler text of this module, or of another text for the same target."""
        with lock, uninterrupted():
            return _machine(self.target).emit_assembly(_parse(text or self.text))

    def immortal(self) -> Module:
        """Never free the code: threads may still be inside it when the interpreter exits."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))
        return self


def compose(functions: Sequence[str], declarations: Iterable[str], target: Target) -> str:
    """The text of a module: sorted declarations, functions, attribute groups."""
    return "\n".join([*sorted(set(declarations)), "", *functions, "", attribute_groups(target)])


def compile_module(
    functions: Sequence[str],
    declarations: Iterable[str],
    target: Target,
    passes: int | None = None,
) -> Module:
    """Compose, verify and compile one module.

    functions: `define` texts. declarations: `declare` lines, in any order, repeats allowed.
    passes: an optimisation level 0..3 for LLVM's IR passes; None runs no passes.
    Raises CheckError for text LLVM rejects (showing the lines) and for unknown external symbols.
    """
    text = compose(functions, declarations, target)
    with lock, uninterrupted():
        parsed = _parse(text)
        if passes is not None:
            _optimize(parsed, target, passes)
            text = str(parsed)
        return Module(text, target, _machine(target).emit_object(parsed))


@record
class ModuleText:
    """The text of a module (`compose`). defines: its functions that later modules may call.
    calls: the functions that it calls of modules before it."""

    text: str
    defines: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()


def compile_modules(
    texts: Iterable[ModuleText], target: Target, known: Mapping[str, Module] | None = None
) -> list[Module]:
    """Compile modules, several at once; they keep no text.

    The texts may be made while earlier ones are compiled. known: functions of existing modules that
    they may call, by name. Raises what `compile_module` raises.
    """
    turns = threading.Semaphore(logical_cores())
    started: list[_Compiling] = []
    with lock:
        _initialize()
        try:
            for one in texts:
                started.append(_Compiling(one, target, turns))
                started[-1].begin()
        finally:  # nothing runs on when the lock is given back
            for compiling in started:
                compiling.join()
        modules, defined = [], dict(known or {})
        for compiling in started:
            module = compiling.module({name: defined[name] for name in sorted(compiling.calls)})
            modules.append(module)
            defined |= dict.fromkeys(compiling.defines, module)
        return modules


class _Compiling(threading.Thread):
    """The text of a module on its way to machine code, in an LLVM context of its own."""

    def __init__(self, one: ModuleText, target: Target, turns: threading.Semaphore) -> None:
        super().__init__(name="fxad compiling", daemon=True)
        self.defines, self.calls = one.defines, one.calls
        self._text, self._target, self._turns = one.text, target, turns
        self._image = b""
        self._error: Exception | None = None

    def begin(self) -> None:
        """Start, in this thread if there can be no other, as when the interpreter exits."""
        try:
            self.start()
        except RuntimeError:
            self.run()

    def join(self, timeout: float | None = None) -> None:
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        with self._turns:
            try:
                parsed = _parse(self._text, llvm.create_context())
                self._image = _object(parsed, _machine(self._target))
            except Exception as error:
                self._error = error
        self._text = ""

    def module(self, calls: Mapping[str, Module]) -> Module:
        """The module, or the error that there was."""
        if self._error is not None:
            raise self._error
        return Module("", self._target, self._image, calls)


def _object(parsed: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """What `machine.emit_object(parsed)` returns, without keeping other threads from compiling."""
    emit = _emit_unlocked()
    if emit is None:
        return machine.emit_object(parsed)
    with ffi.OutputString() as said:
        buffer = emit(machine, parsed, 1, said)
        if not buffer:
            raise CheckError(f"LLVM cannot compile the generated code: {said}")
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@functools.cache
def _emit_unlocked() -> Any:
    """llvmlite's code generation without the lock that it takes round every call. LLVM needs none
    where modules have contexts of their own. None if llvmlite has the function elsewhere."""
    name = "LLVMPY_TargetMachineEmitToMemory"
    try:
        emit, locked = getattr(ctypes.CDLL(ffi.lib._name), name), getattr(ffi.lib, name)
        emit.argtypes, emit.restype = locked.argtypes, locked.restype
    except (OSError, AttributeError):
        return None
    return emit


def _parse(text: str, context: Any = None) -> llvm.ModuleRef:
    _initialize()
    try:
        parsed = llvm.parse_assembly(text, context)
        parsed.verify()
    except RuntimeError as error:
        raise CheckError(
            f"LLVM rejects the generated code: {error}{_excerpt(text, str(error))}"
        ) from None
    parsed.triple = llvm.get_process_triple()
    return parsed


def _excerpt(text: str, message: str) -> str:
    """The lines round the `<string>:LINE:COLUMN` or the instruction that LLVM complains about."""
    lines = text.split("\n")
    found = re.search(r"<string>:(\d+):", message)
    if found:
        number = int(found[1]) - 1
    else:
        said = {line.strip() for line in message.split("\n")[1:]} - {""}
        number = next((i for i, line in enumerate(lines) if line.strip() in said), -1)
        if number < 0:
            return ""
    first = max(number - 3, 0)
    shown = (
        f"{'>' if i == number else ' '}{i + 1:6d} {lines[i]}"
        for i in range(first, min(number + 4, len(lines)))
    )
    return "\n" + "\n".join(shown)


def _optimize(parsed: llvm.ModuleRef, target: Target, level: int) -> None:
    machine = _machine(target)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)


# MCJIT calls address 0 for a symbol it cannot find, so every symbol is looked up beforehand.


@functools.cache
def symbol_address(name: str) -> int | None:
    """Address of a C function of this process, or None."""
    for library in system.libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


def _resolve(names: Iterable[str]) -> None:
    missing = []
    for name in sorted(names):
        address = symbol_address(name)
        if address is None:
            missing.append(name)
        else:
            llvm.add_symbol(name, address)
    if missing:
        raise CheckError(
            f"generated code calls {', '.join(missing)}, which no loaded library provides; "
            "an emitter must define it or use another instruction sequence"
        )


def _undefined_symbols(image: bytes) -> set[str]:
    """External symbols of a 64-bit little-endian ELF object; other formats tell none."""
    if image[:6] != b"\x7fELF\x02\x01":
        return set()
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    names = set()
    for _, kind, _, _, start, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(start + entry, start + length, entry):
            name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", image, at)
            if section == 0 and name:
                end = image.index(b"\0", strings + name)
                names.add(image[strings + name : end].decode())
    return names
