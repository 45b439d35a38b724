"""Build and run Contract kernels on NumPy arrays of any strides; operands, error bounds."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from guarded import MARK, around, guarded

from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.aligned import to_line
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Contract,
    Expr,
    Get,
    Index,
    Kernel,
    Operand,
    Scalar,
    Store,
    at,
)

Epilogue = Callable[["Sketch"], list[Store]]
F32 = np.dtype("float32")
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p])


def walk_index(array: np.ndarray, base: np.ndarray, axes: Sequence[Axis]) -> Index:
    """Index of the view `array` of the contiguous `base`, one axis per dimension."""
    size = base.itemsize
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    index = Index(start // size)
    for axis, stride in zip(axes, array.strides, strict=True):
        index = index + at(axis) * (stride // size)
    return index


def pair(view: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A contiguous array or the transpose of one, with the array that it is a view of."""
    return (view, view) if view.flags.c_contiguous else (view, view.T)


def targets() -> list[Target]:
    """The host and the instruction sets below it that it runs."""
    names = ["generic"] if host_target().isa in ("generic", "neon") else ["avx2", "generic"]
    return [host_target(), *(host_target(name) for name in names if name != host_target().isa)]


def random(*shape: int, dtype=F32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def assert_product(found, a, b, epsilon: float | None = None, scale: float = 1.0) -> None:
    """|error| of a sum of K products is at most about (K + 1) * eps/2 * sum |a||b|.

    FMA in blocks does better, and the bound is generous by nothing but a factor of 2.
    """
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    epsilon = epsilon or np.finfo(found.dtype).eps
    bound = (a.shape[-1] + 2) * epsilon * (np.abs(a) @ np.abs(b)) * scale + 1e-30
    assert np.all(np.abs(found - a @ b) <= bound)


class Sketch:
    """A product a[..., m, k] @ b[..., k, n] under construction; views of contiguous arrays.

    Each argument is a pair (view, the whole contiguous array it is a view of) or an array.
    """

    def __init__(
        self,
        a,
        b,
        out,
        accumulator: np.dtype | None = None,
        streaming: bool = False,
        rounded: np.dtype | None = None,
    ) -> None:
        self.streaming = streaming
        (a, a_base), (b, b_base), (out, out_base) = (
            x if isinstance(x, tuple) else (x, x) for x in (a, b, out)
        )
        batch = a.shape[:-2]
        self.grid = tuple(Axis(f"g{i}", e) for i, e in enumerate(batch))
        self.m, self.k = Axis("m", a.shape[-2]), Axis("k", a.shape[-1])
        self.n = Axis("n", b.shape[-1])
        self.cell = Cell("sum", accumulator or out.dtype)
        self.buffers: list[Buffer] = []
        self.arrays: list[np.ndarray] = []
        self.scalars: list[Scalar] = []
        self.values: list[float] = []
        index = walk_index(a, a_base, (*self.grid, self.m, self.k))
        self.a = Operand(self.buffer(a_base), index, rounded)
        index = walk_index(b, b_base, (*self.grid, self.k, self.n))
        self.b = Operand(self.buffer(b_base), index, rounded)
        self.out = self.buffer(out_base, "out")
        self.out_index = walk_index(out, out_base, (*self.grid, self.m, self.n))

    def buffer(self, array: np.ndarray, role: str = "in") -> Buffer:
        assert array.flags.c_contiguous
        self.arrays.append(array)
        self.buffers.append(Buffer(f"{role}{len(self.buffers)}", array.dtype, array.size, role))
        return self.buffers[-1]

    def scalar(self, value: float, dtype: str = "float32") -> Scalar:
        self.values.append(value)
        self.scalars.append(Scalar(f"s{len(self.scalars)}", np.dtype(dtype)))
        return self.scalars[-1]

    def store(self, value: Expr | None = None) -> Store:
        return Store(self.out, self.out_index, value or Get(self.cell))

    def kernel(self, stores: Sequence[Store] = ()) -> Kernel:
        stores = tuple(stores) or (self.store(),)
        sides = self.m, self.n, self.k, self.a, self.b
        stage = Contract(*sides, self.cell, stores, streaming=self.streaming)
        return Kernel("product", tuple(self.buffers), tuple(self.scalars), self.grid, (stage,))

    def run(self, stores: Sequence[Store] = (), target: Target | None = None, cuts=()) -> Emitted:
        """Compile, then run the units as one range, or as ranges ending at `cuts` backwards.

        On copies before pages that nobody may touch; results begin in a line as given.
        """
        target = target or host_target()
        emitted = emit_contract(self.kernel(stores), "product", target)
        module = compile_module([emitted.text], emitted.declarations, target)
        entry = _ENTRY(module.address("product"))
        words = (ctypes.c_uint64 * (len(self.arrays) + len(self.values)))()
        copies = [self._guarded(*each) for each in zip(self.arrays, self.buffers, strict=True)]
        for i, array in enumerate(copies):
            words[i] = _address(array)
        for i, (value, scalar) in enumerate(zip(self.values, self.scalars, strict=True)):
            raw = np.zeros(8, np.uint8)
            raw[: scalar.dtype.itemsize] = np.array([value], scalar.dtype).view(np.uint8)
            words[len(self.arrays) + i] = int(raw.view(np.uint64)[0])
        # Filled with NaN: nothing may depend on what scratch memory held before.
        scratch = guarded(np.full(to_line(emitted.scratch_bytes), 0xFF, np.uint8))
        ends = sorted({0, emitted.units, *(min(c, emitted.units) for c in cuts)})
        for begin, end in reversed(list(itertools.pairwise(ends))):
            entry(ctypes.addressof(words), begin, end, _address(scratch))
        for array, copy, buffer in zip(self.arrays, copies, self.buffers, strict=True):
            assert all((bytes_ == MARK).all() for bytes_ in around(copy)), f"around {buffer.name}"
            if buffer.role != "in":
                array[...] = copy
        return emitted

    @staticmethod
    def _guarded(array: np.ndarray, buffer: Buffer) -> np.ndarray:
        return guarded(array, _address(array) % 64 if buffer.role != "in" else None)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
