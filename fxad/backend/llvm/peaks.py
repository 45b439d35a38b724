"""The units that multiply and add: which one a kernel uses, and a loop that keeps it busy.

    unit_of(kernel, target)          # "float32", "float64", "bf16 pairs" or "AMX"
    loop_of("AMX", target)           # on registers alone; `ceilings.py` times it

A product of bf16 factors through `dpbf16ps` or in AMX tiles does two to eight times as much as
multiply-adds of float32 can, so each kernel is to be held against the unit that it uses.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.attention.problem import uses_bf16x6
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_tiles import DECLARATIONS, configure_tiles
from fxad.backend.llvm.contract.autotune import table_of
from fxad.backend.llvm.contract.bf16_dot import Bf16DotLanes
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.problem import Problem
from fxad.ir.kernel import Attention, AttentionGrad, Contract, Kernel

F32, F64 = np.dtype("float32"), np.dtype("float64")
UNITS = ("float32", "float64", "bf16 pairs", "AMX")
_BY_TABLE = {"amx": "AMX", "avx512_bf16": "bf16 pairs"}
_CHAINS = 12  # sums side by side: more than the latency of a multiply-add times its rate
_SUMS, _FACTORS = 4, (4, 6)  # tiles of sums, and where those of A and B begin
_TILE_BYTES, _TILE_FLOPS = 1024, 2 * 16 * 16 * 32
OPERAND_BYTES = _SUMS * _TILE_BYTES  # of `x` and of `out`; registers take less


def unit_of(kernel: Kernel, target: Target) -> str:
    """The unit that does most of a kernel's arithmetic."""
    match kernel.body:
        case (Contract() as stage,):
            table = table_of(Problem.of(kernel), target)
            return _BY_TABLE.get(table) or _plain(stage.cell.dtype)
        case (Attention() as stage,) if uses_bf16x6(stage, target):
            return "AMX"
        case (AttentionGrad() as grad,) if uses_bf16x6(grad.forward, target):
            return "AMX"
    wide = any(b.dtype in (F64, np.dtype("complex128")) for b in kernel.buffers)
    return _plain(F64 if wide else F32)


def _plain(dtype: np.dtype) -> str:
    return "float64" if dtype == F64 else "float32"


def loop_of(unit: str, target: Target) -> tuple[str, set[str], float]:
    """A function `peak(x, begin, end, out)` that keeps a unit busy, its declarations, and the
    floating-point operations of one turn. x, out: 64 bytes for each of its registers, or tiles."""
    params = (("ptr", "x"), ("i64", "begin"), ("i64", "end"), ("ptr", "out"))
    f = Function("peak", "void", params)
    if unit == "AMX":
        return _tiles(f)
    dtype = F64 if unit == "float64" else F32
    width = target.lanes(dtype)
    lanes = Bf16DotLanes(dtype, width) if unit == "bf16 pairs" else Lanes(dtype, width)
    x = f.op(f"load {lanes.vector}, ptr %x, align 4")

    def body(_: str, sums: list[str]) -> list[str]:
        return [lanes.multiply_add(f, x, x, s) for s in sums]

    zeros = [(lanes.vector, "zeroinitializer")] * _CHAINS
    for i, total in enumerate(f.loop("%begin", "%end", 1, body, zeros, at_least_once=True)):
        f.line(f"store {lanes.vector} {total}, ptr {f.offset('%out', 64 * i)}, align 4")
    f.ret()
    steps = 2 if unit == "bf16 pairs" else 1
    return str(f), lanes.declarations, 2.0 * steps * width * _CHAINS


def _tiles(f: Function) -> tuple[str, set[str], float]:
    """Two tiles of A by two of B, loaded once."""
    configure_tiles(f)
    for tile in range(_SUMS):
        f.line(f"call void @llvm.x86.tilezero(i8 {tile})")
    for tile in range(_SUMS, 8):
        f.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr %x, i64 64)")

    def body(_: str, __: list[str]) -> None:
        for tile in range(_SUMS):
            a, b = _FACTORS[0] + tile // 2, _FACTORS[1] + tile % 2
            f.line(f"call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {a}, i8 {b})")

    f.loop("%begin", "%end", 1, body, at_least_once=True)
    for tile in range(_SUMS):
        at = f.offset("%out", _TILE_BYTES * tile)
        f.line(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {at}, i64 64)")
    f.line("call void @llvm.x86.tilerelease()")
    f.ret()
    return str(f), set(DECLARATIONS), float(_SUMS * _TILE_FLOPS)
