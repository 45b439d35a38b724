"""Matrices in few bits unpacked into AMX's tiles, on any machine: tiles are multiplied by loops.

Everything is the code for AMX but its micro-kernel, which stands here once more as scalar code, and
the instructions that set up tiles. Bits are those of the same code with the matrix in memory.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from native_kernels import call
from test_contract_unpack import factor, packed

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_micro_kernel import AmxMicroKernel
from fxad.backend.llvm.contract.amx_tiles import LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.ir.packed import CODES, unpacked
from fxad.nn import dequantize

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
TARGET = Target(host_target().isa, frozenset({"amx_bf16"}))
# Rows and columns of the matrix, rows of the other factor. Few of those keep it packed, many the
# matrix; K of one block and of several, ragged edges.
SIZES = [(96, 256, 64), (70, 200, 40), (64, 2048, 33), (2048, 320, 33), (150, 1000, 1100)]

pytestmark = pytest.mark.skipif(host_target().isa == "neon", reason="x86 compiles this code")


def scalar_loops(kernel: AmxMicroKernel, lanes: object) -> str:
    """The micro-kernel, element by element: sums over even and odd k in order."""
    f = Function(kernel.name, "void", kernel.parameters, "internal", "#1")

    zero = f.op("alloca float, align 4")
    f.line(f"store float 0.0, ptr {zero}, align 4")

    def value(at: str, half: int) -> str:
        bits = f.op(f"load i16, ptr {f.offset(at, 2 * half)}, align 2")
        bits = f.op(f"shl i32 {f.op(f'zext i16 {bits} to i32')}, 16")
        return f.op(f"bitcast i32 {bits} to float")

    def start(operand: str, number: str, apart: int) -> str:
        """Of row or column `number` in packed tiles, whose lines are so far apart."""
        tile = f.mul(f.op(f"udiv i64 {number}, {LINES}"), kernel.pitch)
        return f.offset(operand, f.add(tile, f.mul(f.op(f"urem i64 {number}, {LINES}"), apart)))

    def element(i: str, j: str) -> None:
        a, b = start("%a", i, LINE_BYTES), start("%b", j, 4)
        to = f.offset("%to", f.add(f.mul(i, "%stride"), f.mul(j, 4)))
        resumes = f.op("icmp ne ptr %from, null")
        before = f.offset("%from", f.add(f.mul(i, kernel.wide * LINE_BYTES), f.mul(j, 4)))
        before = f.op(f"select i1 {resumes}, ptr {before}, ptr {zero}")
        total = f.op(f"load float, ptr {before}, align 4")

        def pair(number: str, totals: list[str]) -> list[str]:
            tile = f.mul(f.op(f"udiv i64 {number}, {LINES}"), TILE_BYTES)
            inside = f.op(f"urem i64 {number}, {LINES}")
            left = f.offset(a, f.add(tile, f.mul(inside, 4)))
            right = f.offset(b, f.add(tile, f.mul(inside, LINE_BYTES)))
            (total,) = totals
            for half in (0, 1):
                product = f.op(f"fmul float {value(left, half)}, {value(right, half)}")
                total = f.op(f"fadd float {total}, {product}")
            return [total]

        pairs = f.mul("%iterations", LINES)
        (total,) = f.loop(0, pairs, 1, pair, [("float", total)])
        f.line(f"store float {total}, ptr {to}, align 4")

    def row(i: str, _: list[str]) -> None:
        f.loop(0, LINES * kernel.wide, 1, lambda j, _: element(i, j))

    f.loop(0, LINES * kernel.high, 1, row)
    f.ret()
    return str(f)


def run(kernel, arrays, monkeypatch):
    """The result of a product of kernel arguments, in the last array."""
    monkeypatch.setattr(AmxMicroKernel, "emit", scalar_loops)
    emitted = emit(kernel, "product", TARGET)
    assert "ldtilecfg" in emitted.text
    lines = emitted.text.splitlines()
    text = "\n".join(x for x in lines if "ldtilecfg" not in x and "tilerelease" not in x)
    declarations = {x for x in emitted.declarations if "llvm.x86.t" not in x and "ldtile" not in x}
    found = np.full(kernel.buffers[-1].size, np.nan, kernel.buffers[-1].dtype)
    module = compile_module([text], declarations, Target(TARGET.isa))
    call(module, emitted, kernel, [*arrays, found], [], parts=2)
    return found


CASES = [  # every two of the three together
    (format, size, axis)
    for i, size in enumerate(SIZES)
    for j, format in enumerate(CODES)
    for axis in (1, 0)
    if (i + j + axis) % 2
]


@pytest.mark.parametrize(("format", "size", "axis"), CASES, ids=str)
def test_tiles_are_filled_as_from_memory(format, size, axis, monkeypatch):
    rows, columns, others = size
    codes, scales = packed(format, rows, columns)
    x = factor(others, (rows, columns)[axis], BF16)

    def product(x, w):
        axes = (((1,), (axis,)), ((), ()))
        return fxad.lax.dot_general(x, w, axes, preferred_element_type=jnp.float32)

    def unpacking(x, codes, scales):
        return product(x, dequantize(codes, scales, columns, format, BF16))

    whole = unpacked(codes, scales, format, columns).astype(BF16)
    (kernel,) = fxad.jit(unpacking).lower(x, codes, scales).kernels
    (other,) = fxad.jit(product).lower(x, whole).kernels
    found = run(kernel, [x.ravel(), codes.ravel(), scales.ravel()], monkeypatch)
    expected = run(other, [x.ravel(), whole.ravel()], monkeypatch)
    assert found.tobytes() == expected.tobytes()
    wide = x.astype(np.float64) @ (whole.T if axis else whole).astype(np.float64)
    np.testing.assert_allclose(found.reshape(wide.shape), wide, atol=1e-3 * np.abs(wide).max())
