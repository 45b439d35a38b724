"""What a kernel is compiled for, and how its grid is cut up.

    target = Target("avx512", frozenset({"avx512_bf16"}))
    target.lanes(np.dtype("float32")) == 16

A schedule decides which axis becomes vector lanes and how many grid points make one unit of
work. It never changes a result: the bits depend on the kernel alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "generic": 16}
_REGISTERS = {"avx512": 32, "avx2": 16, "neon": 32, "generic": 16}


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set (avx512, avx2, neon or generic) and extras such as avx512_bf16."""

    isa: str
    features: frozenset[str] = frozenset()

    @property
    def vector_bytes(self) -> int:
        """Width of one vector register."""
        return _BYTES[self.isa]

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return _REGISTERS[self.isa]

    def lanes(self, dtype: np.dtype) -> int:
        """Elements of `dtype` in one vector register; half-width floats compute as float32."""
        size = 4 if dtype.name in ("float16", "bfloat16") else dtype.itemsize
        return max(1, self.vector_bytes // size)


@dataclass(frozen=True, slots=True)
class Emitted:
    """LLVM IR of one kernel, ABI `void (ptr args, i64 begin, i64 end, ptr scratch)`.

    text: the function and its private helpers (named `<name>.*`), no declarations, no attribute
    groups. declarations: the `declare` lines it needs. units: independent pieces of work that a
    call can do any range of. scratch_bytes: private storage each calling thread brings, 64-byte
    aligned. cost: rough nanoseconds of the whole kernel on one core.
    """

    name: str
    text: str
    declarations: frozenset[str]
    units: int
    scratch_bytes: int
    cost: float
