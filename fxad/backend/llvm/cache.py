"""Compiled kernels, shared by every program of the process.

    codes = compile_kernels(plan_kernels, host_target())
    codes[0].address, codes[0].units

Equal kernels (`kernel_key`) are compiled once, however many layers or functions use them, and so
are the functions that different kernels have in common (`common.py`).
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.common import taken_apart
from fxad.backend.llvm.native.engine import Module, ModuleText, compile_modules, compose, lock
from fxad.core import system
from fxad.core.lazy import later
from fxad.core.record import record, replace
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Kernel

if TYPE_CHECKING:
    from fxad.backend.llvm import emit
else:
    emit = later("fxad.backend.llvm.emit")

BOUND = 4096  # compiled kernels kept beyond the ones in use
_MODULE = 200_000  # characters of a module's text: several are compiled at once, freed one by one


@record
class Code:
    """One compiled kernel; keeps its machine code alive."""

    emitted: Emitted  # without its text: megabytes for a large model, and soon made again
    module: Module
    address: int
    kernel: Kernel

    @property
    def name(self) -> str:
        return self.emitted.name

    @property
    def units(self) -> int:
        return self.emitted.units

    @property
    def scratch_bytes(self) -> int:
        return self.emitted.scratch_bytes

    @property
    def cost(self) -> float:
        """Rough nanoseconds on one core."""
        return self.emitted.cost

    @property
    def llvm(self) -> str:
        """LLVM IR of a module with this kernel alone."""
        target = self.module.target
        emitted = emit.emit(self.kernel, self.name, target)
        return compose([emitted.text], emitted.declarations, target)

    @property
    def asm(self) -> str:
        """Assembler text of this kernel alone."""
        return self.module.assembly(self.llvm)


Key = tuple[str, Target]
Codes = dict[Key, Code]


class _Batch:
    """Kernels that are compiled together.

    defined: names of the common functions that there are; those of this batch are added. They make
    a module of their own, which is all that others keep of it.
    """

    def __init__(self, target: Target, defined: set[str]) -> None:
        self.size = 0
        self._target, self._defined = target, defined
        self._kernels: list[tuple[Key, Kernel, Emitted]] = []
        self._functions: list[str] = []
        self._common: dict[str, str] = {}
        self._calls: set[str] = set()
        self._declarations: set[str] = set()

    def add(self, key: Key, kernel: Kernel) -> None:
        emitted = emit.emit(kernel, f"{kernel.kind}_{key[0][:16]}", self._target)
        own, common = taken_apart(emitted.text, self._target)
        for name, function in common.items():
            self._calls.add(name)
            self._declarations.add(function.declaration)
            if name not in self._defined:
                self._defined.add(name)
                self._common[name] = function.definition
                self.size += len(function.definition)
        self._functions.append(own)
        self.size += len(own)
        self._declarations |= emitted.declarations
        self._kernels.append((key, kernel, replace(emitted, text="", declarations=frozenset())))

    def modules(self) -> Iterator[tuple[ModuleText, list[tuple[Key, Kernel, Emitted]]]]:
        """The texts of its modules, and which kernels are in each."""
        if self._common:
            declared = (line for line in self._declarations if line.startswith("declare "))
            intrinsics = {line for line in declared if "@llvm." in line}
            text = compose([*self._common.values()], intrinsics, self._target)
            yield ModuleText(text, defines=frozenset(self._common)), []
        text = compose(self._functions, self._declarations, self._target)
        yield ModuleText(text, calls=frozenset(self._calls)), self._kernels


def _batches(
    todo: Sequence[tuple[Key, Kernel]], target: Target, known: Iterable[str]
) -> Iterator[_Batch]:
    """The kernels emitted, in parts of about equal size. known: names of common functions that
    there are already."""
    defined = {*known}
    batch = None
    for key, kernel in todo:
        batch = batch or _Batch(target, defined)
        batch.add(key, kernel)
        if batch.size > _MODULE:
            yield batch
            batch = None
    if batch:
        yield batch


class KernelCache:
    """Compiled kernels by structure and target, least recently used forgotten first."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.compiled = 0  # kernels compiled so far
        self._codes: OrderedDict[Key, Code] = OrderedDict()
        self._common: WeakValueDictionary[str, Module] = WeakValueDictionary()
        self._guard = system.free_in_children(threading.Lock())

    def compile(self, kernels: Sequence[Kernel], target: Target) -> list[Code]:
        """Code for every kernel, in order. Raises CheckError if the emitted code is not valid."""
        keys = [(kernel_key(kernel), target) for kernel in kernels]
        with lock:  # two threads that want the same kernel compile it once
            ready = self._find(keys)
            wanted = dict(zip(keys, kernels, strict=True))
            todo = [(key, kernel) for key, kernel in wanted.items() if key not in ready]
            if todo:
                ready |= self._build(todo, target)
        return [ready[key] for key in keys]

    def _find(self, keys: Sequence[Key]) -> Codes:
        found = {}
        with self._guard:
            for key in keys:
                code = self._codes.get(key)
                if code is not None:
                    self._codes.move_to_end(key)
                    found[key] = code
        return found

    def _build(self, todo: list[tuple[Key, Kernel]], target: Target) -> Codes:
        common = [(found.key, found()) for found in self._common.valuerefs()]
        known = {name: module for name, module in common if module is not None}
        kernels: list[list[tuple[Key, Kernel, Emitted]]] = []

        def texts() -> Iterator[ModuleText]:
            for batch in _batches(todo, target, known):
                for text, compiled in batch.modules():
                    kernels.append(compiled)
                    yield text

        modules = compile_modules(texts(), target, known)
        built = {
            key: Code(one, module, module.address(one.name), kernel)
            for module, compiled in zip(modules, kernels, strict=True)
            for key, kernel, one in compiled
        }
        self.compiled += len(built)
        self.adopt(built)
        return built

    def adopt(self, codes: Mapping[Key, Code]) -> None:
        """Take in kernels that are compiled already, and the common functions that they call."""
        with lock:
            for code in codes.values():
                self._common.update(code.module.calls)
        with self._guard:
            self._codes.update(codes)
            while len(self._codes) > self.bound:
                self._codes.popitem(last=False)

    def clear(self) -> None:
        """Forget everything; code in use by an Executable stays alive with it."""
        with lock:
            self._common.clear()
        with self._guard:
            self._codes.clear()

    def __len__(self) -> int:
        return len(self._codes)


kernels = KernelCache()
compile_kernels = functools.partial(KernelCache.compile, kernels)
