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
    """Kernels that become one module. there: common functions that modules before it define."""

    def __init__(self, target: Target, there: set[str]) -> None:
        self.kernels: list[tuple[Key, Kernel, Emitted]] = []
        self.size = 0
        self.defines: set[str] = set()
        self._target, self._there = target, there
        self._calls: set[str] = set()
        self._functions: list[str] = []
        self._declarations: set[str] = set()

    def add(self, key: Key, kernel: Kernel) -> None:
        emitted = emit.emit(kernel, f"{kernel.kind}_{key[0][:16]}", self._target)
        own, common = taken_apart(emitted.text, self._target)
        for name, function in common.items():
            if name in self._there:
                self._calls.add(name)
                self._declarations.add(function.declaration)
            elif name not in self.defines:
                self.defines.add(name)
                self._append(function.definition)
        self._append(own)
        self._declarations |= emitted.declarations
        self.kernels.append((key, kernel, replace(emitted, text="", declarations=frozenset())))

    def _append(self, function: str) -> None:
        self._functions.append(function)
        self.size += len(function)

    def text(self) -> ModuleText:
        text = compose(self._functions, self._declarations, self._target)
        return ModuleText(text, frozenset(self.defines), frozenset(self._calls))


def _batches(
    todo: Sequence[tuple[Key, Kernel]], target: Target, known: Iterable[str]
) -> Iterator[_Batch]:
    """The kernels emitted, in modules of about equal size. known: common functions that there
    are already."""
    there = {*known}
    batch = _Batch(target, there)
    for key, kernel in todo:
        batch.add(key, kernel)
        if batch.size > _MODULE:
            yield batch
            there |= batch.defines
            batch = _Batch(target, there)
    if batch.kernels:
        yield batch


class KernelCache:
    """Compiled kernels by structure and target, least recently used forgotten first."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.compiled = 0  # kernels compiled so far
        self._codes: OrderedDict[Key, Code] = OrderedDict()
        self._common: WeakValueDictionary[str, Module] = WeakValueDictionary()
        self._guard = threading.Lock()

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
        known = dict(self._common)  # keeps these modules until others do
        batches: list[_Batch] = []

        def texts() -> Iterator[ModuleText]:
            for batch in _batches(todo, target, known):
                batches.append(batch)
                yield batch.text()

        built: Codes = {}
        modules = compile_modules(texts(), target, known)
        for batch, module in zip(batches, modules, strict=True):
            self._common.update(dict.fromkeys(batch.defines, module))
            for key, kernel, one in batch.kernels:
                built[key] = Code(one, module, module.address(one.name), kernel)
        self.compiled += len(built)
        self.adopt(built)
        return built

    def adopt(self, codes: Mapping[Key, Code]) -> None:
        """Take in kernels that are compiled already."""
        with self._guard:
            self._codes.update(codes)
            while len(self._codes) > self.bound:
                self._codes.popitem(last=False)

    def clear(self) -> None:
        """Forget everything; code in use by an Executable stays alive with it."""
        with self._guard:
            self._codes.clear()
            self._common.clear()

    def __len__(self) -> int:
        return len(self._codes)


kernels = KernelCache()
compile_kernels = functools.partial(KernelCache.compile, kernels)
