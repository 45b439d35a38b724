"""AMX's tiles: their sizes, their instructions, and what sets them up.

configure_tiles(f)                            # eight tiles of 16 lines of 64 bytes
f.line("call void @llvm.x86.tilezero(i8 0)")  # needs DECLARATIONS
f.line("call void @llvm.x86.tilerelease()")
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.ir.orders import TILE_DEPTH

LINES = 16  # of a tile
DEPTH = TILE_DEPTH
LINE_BYTES = 64
TILE_BYTES = LINES * LINE_BYTES
DECLARATIONS = {
    "declare void @llvm.x86.ldtilecfg(ptr)",
    "declare void @llvm.x86.tilerelease()",
    "declare void @llvm.x86.tilezero(i8)",
    "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
    "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
    "declare void @llvm.x86.tdpbf16ps(i8, i8, i8)",
}


def configure_tiles(f: Function) -> None:
    """Eight tiles of 16 lines of 64 bytes, until tilerelease."""
    block = np.zeros(64, np.uint8)
    block[0] = 1
    block[16:32].view(np.uint16)[:] = LINE_BYTES
    block[48:56] = LINES
    shapes, numbers = f.op("alloca [64 x i8], align 64"), ", ".join(f"i8 {x}" for x in block)
    f.line(f"store <64 x i8> <{numbers}>, ptr {shapes}, align 64")
    f.line(f"call void @llvm.x86.ldtilecfg(ptr {shapes})")
