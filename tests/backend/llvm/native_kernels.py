"""Compile kernels with llvmlite, run them on arrays and compare with the reference.

check([Case(kernel, [x, y], [2.0])])     # all in one module
"""

import ctypes
import itertools
from dataclasses import dataclass, field

import numpy as np

from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.backend.reference import run_kernel
from fxad.ir.kernel import Kernel


@dataclass
class Case:
    kernel: Kernel
    arrays: list
    scalars: list = field(default_factory=list)
    ulp: float = 0.0  # 0: the same bits (any NaN equals any NaN)
    label: str = ""


def word(value, dtype, keep):
    value = np.asarray(value, dtype)
    keep.append(value)
    if dtype.kind == "c":
        return value.ctypes.data
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)


def call(module, emitted, kernel, arrays, scalars, parts=1):
    """Run all units, cut into `parts` calls."""
    keep = []
    words = [a.ctypes.data for a in arrays]
    words += [word(v, s.dtype, keep) for s, v in zip(kernel.scalars, scalars, strict=True)]
    args = (ctypes.c_int64 * max(1, len(words)))(*words)
    scratch = np.zeros(emitted.scratch_bytes + 64, np.uint8)
    start = scratch.ctypes.data + -scratch.ctypes.data % 64
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function = kind(module.address(emitted.name))
    bounds = [emitted.units * i // parts for i in range(parts + 1)]
    for low, high in itertools.pairwise(bounds):
        function(ctypes.addressof(args), low, high, start)


def compile_cases(cases, target):
    emitted = [emit(c.kernel, f"k{n}", target) for n, c in enumerate(cases)]
    declarations = frozenset().union(*(e.declarations for e in emitted))
    return emitted, compile_module([e.text for e in emitted], declarations, target)


def check(cases, target=None, parts=2, lines=False):
    """Compare every case with the reference; guard bytes round arrays must stay untouched.

    lines: every array begins at a cache line. Answers what was emitted for each.
    """
    target = target or host_target()
    emitted, module = compile_cases(cases, target)
    for case, e in zip(cases, emitted, strict=True):
        expected = [a.copy() for a in case.arrays]
        with np.errstate(all="ignore"):
            run_kernel(case.kernel, expected, case.scalars)
        padded = [pad(a, lines) for a in case.arrays]
        call(module, e, case.kernel, [a for a, _ in padded], case.scalars, parts)
        for (got, whole), want, buffer in zip(padded, expected, case.kernel.buffers, strict=True):
            message = f"{case.label or case.kernel.name}: buffer {buffer.name}"
            assert_same(got, want, case.ulp, message)
            size = got.nbytes
            assert (whole[:64] == 0xA5).all(), message
            assert (whole[64 + size :] == 0xA5).all(), message
    return emitted


def pad(array, lines=False):
    """A copy with 64 marked bytes before and after; at a cache line or wherever it happens."""
    whole = np.full(array.nbytes + 192, 0xA5, np.uint8)
    start = -whole.ctypes.data % 64 if lines else 0
    whole = whole[start : start + array.nbytes + 128]
    inside = whole[64 : 64 + array.nbytes].view(array.dtype)
    inside[:] = array
    return inside, whole


def assert_same(got, want, ulp, message):
    if got.dtype.kind == "c" and ulp:  # errors are seen against the whole number
        eps = np.finfo(got.dtype).eps
        same = (np.abs(got - want) <= ulp * eps * np.abs(want)) | (np.isnan(got) & np.isnan(want))
        assert same.all(), f"{message}: {got[~same][0]} is not {want[~same][0]}"
        return
    if got.dtype.kind == "c":
        part = np.dtype(f"f{got.dtype.itemsize // 2}")
        got, want = got.view(part), want.view(part)
    if ulp == 0:
        same = got.view(f"u{got.dtype.itemsize}") == want.view(f"u{got.dtype.itemsize}")
        if got.dtype.kind in "fV":
            with np.errstate(invalid="ignore"):
                same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        gap = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        if got.dtype == np.float64:
            gap = np.spacing(np.abs(want))
        elif got.dtype.itemsize == 2:
            gap = gap * (2**16 if got.dtype.name == "bfloat16" else 2**13)
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.abs(a - b) <= ulp * gap) | (np.isnan(a) & np.isnan(b))
    bad = np.flatnonzero(~same)
    assert not len(bad), (
        f"{message}: {len(bad)} of {len(got)} differ, first at {bad[0]}: "
        f"got {got[bad[0]]!r}, want {want[bad[0]]!r}"
    )
