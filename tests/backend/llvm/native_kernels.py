"""Compile kernels with llvmlite, run them on arrays and compare with the reference.

check([Case(kernel, [x, y], [2.0])])     # all in one module
"""

import ctypes
import itertools
from dataclasses import dataclass, field

import numpy as np
from guarded import MARK, around, guarded

from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.backend.reference import run_kernel
from fxad.core.aligned import to_line
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
    scratch = guarded(np.zeros(to_line(emitted.scratch_bytes), np.uint8))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function = kind(module.address(emitted.name))
    bounds = [emitted.units * i // parts for i in range(parts + 1)]
    for low, high in itertools.pairwise(bounds):
        function(ctypes.addressof(args), low, high, scratch.ctypes.data)


def compile_cases(cases, target):
    emitted = [emit(c.kernel, f"k{n}", target) for n, c in enumerate(cases)]
    declarations = frozenset().union(*(e.declarations for e in emitted))
    return emitted, compile_module([e.text for e in emitted], declarations, target)


def check(cases, target=None, parts=2, lines=False):
    """Compare every case with the reference; nothing round arrays may be read or written.

    lines: every array begins at a cache line. Answers what was emitted for each.
    """
    target = target or host_target()
    emitted, module = compile_cases(cases, target)
    for case, e in zip(cases, emitted, strict=True):
        expected = [a.copy() for a in case.arrays]
        with np.errstate(all="ignore"):
            run_kernel(case.kernel, expected, case.scalars)
        arrays = [guarded(a, 0 if lines else None) for a in case.arrays]
        call(module, e, case.kernel, arrays, case.scalars, parts)
        for got, want, buffer in zip(arrays, expected, case.kernel.buffers, strict=True):
            message = f"{case.label or case.kernel.name}: buffer {buffer.name}"
            assert_same(got, want, case.ulp, message)
            assert all((bytes_ == MARK).all() for bytes_ in around(got)), message
    return emitted


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
