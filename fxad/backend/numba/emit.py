"""Kernel -> Python source for numba: loops on the CPU, threads in CUDA.

    emitted = emit(kernel, "cpu")
    print(emitted.source)      # def kernel(b0, b1, s0): ...

Arguments are flat arrays in storage dtypes (see `formats`), one per buffer, then the scalars,
then scratch arrays of `emitted.scratch`. Styles of a CUDA kernel:
- thread: one thread per grid point (scans, scatters, sorts, elementwise grids);
- block: one block of 64 threads per grid point, a thread per lane of a "lanes" reduction;
- tile: one block of 256 threads per tile of a matrix product, 16 x 16 or 64 x 64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fxad.backend.numba.blocks import BlockStages
from fxad.backend.numba.stages import Stages
from fxad.core.source import Source
from fxad.ir.kernel import Contract, Kernel, Map, Reduce

SCRATCH_LIMIT = 1 << 26  # bytes of scratch that one launch may take
MAX_BLOCKS = 4096
MANY_TILES = 64
THREADS = 128
TILE_SIDE = 16  # a tile of a product has as many threads squared


@dataclass(frozen=True, slots=True)
class Emitted:
    """Source of `def kernel(*buffers, *scalars, *scratch)`.

    scratch: (storage dtype, elements) of the arrays to bring. blocks, threads: CUDA's launch.
    """

    source: str
    scratch: tuple[tuple[np.dtype, int], ...]
    blocks: int = 1
    threads: int = 1


def emit(kernel: Kernel, target: str) -> Emitted:
    """Source of the kernel for "python", "cpu" (the same text) or "cuda"."""
    if target in ("python", "cpu"):
        return _loops(kernel)
    if target != "cuda":
        raise ValueError(f"unknown numba target {target!r}; try 'python', 'cpu' or 'cuda'")
    style = cuda_style(kernel)
    return _threads(kernel) if style == "thread" else _blocks(kernel, style)


def cuda_style(kernel: Kernel) -> str:
    """thread, block or tile."""
    stages = kernel.body
    if len(stages) == 1 and isinstance(stages[0], Contract):
        return "tile"
    if not all(isinstance(s, Map | Reduce | Contract) for s in stages):  # in sequence
        return "thread"
    wide = any(
        isinstance(s, Contract)
        or (isinstance(s, Reduce) and s.order == "lanes")
        or (isinstance(s, Map) and math.prod(a.extent for a in s.axes) >= 64)
        for s in stages
    )
    return "block" if wide else "thread"


def _loops(kernel: Kernel) -> Emitted:
    code = Stages(kernel)
    with code.loops(kernel.grid):
        for stage in kernel.body:
            code.stage(stage)
    scratch = tuple((dtype, size) for _, dtype, size in code.scratch)
    return Emitted(_source(code, [*code.header, *code.lines]), scratch)


def _threads(kernel: Kernel) -> Emitted:
    """One thread per grid point, the stages in sequence."""
    code = Stages(kernel, local="cuda.local.array")
    threads = min(THREADS, -(-max(kernel.points, 1) // 32) * 32)
    code.offset_scratch("lane")
    code.split("point", kernel.grid)
    for stage in kernel.body:
        code.stage(stage)
    return _launch(
        code, kernel.points, "cuda.grid(1)", "lane", "cuda.gridsize(1)", threads, threads
    )


def _blocks(kernel: Kernel, style: str) -> Emitted:
    """One block per grid point, or per tile of a grid point's matrix product."""
    side = TILE_SIDE if style == "tile" else 8
    code = BlockStages(kernel, side, _elements_each(kernel, style, side))
    code.offset_scratch("cuda.blockIdx.x")
    points, first = kernel.points, kernel.body[0]
    if style == "tile" and isinstance(first, Contract):
        tiles = code.tiles(first)
        points *= tiles
        code.line(f"tile = point % {max(tiles, 1)}")
        code.split(code.define(f"point // {max(tiles, 1)}"), kernel.grid)
        code.tile(first, "tile")
    else:
        code.split("point", kernel.grid)
        for stage in kernel.body:
            code.stage(stage)
    return _launch(
        code, points, "cuda.threadIdx.x", "cuda.blockIdx.x", "cuda.gridDim.x", side * side, 1
    )


def _elements_each(kernel: Kernel, style: str, side: int) -> int:
    """Rows and columns of a tile that a thread computes. With more of them less is read; with few
    tiles most of a GPU's processors would have none."""
    first = kernel.body[0]
    if style != "tile" or not isinstance(first, Contract):
        return 1
    edge = 4 * side
    tiles = -(-first.m.extent // edge) * -(-first.n.extent // edge) * kernel.points
    fills = min(first.m.extent, first.n.extent) >= edge
    return 4 if fills and tiles >= MANY_TILES else 1


def _launch(
    code: Stages, points: int, lane: str, first: str, step: str, threads: int, per_block: int
) -> Emitted:
    """Wrap the body in the loop over points; `per_block` scratch copies in every block."""
    block_points = threads if first == "lane" else 1
    blocks = min(MAX_BLOCKS, max(1, -(-points // block_points)))
    one = per_block * sum(dtype.itemsize * size for _, dtype, size in code.scratch)
    if one:
        blocks = max(1, min(blocks, SCRATCH_LIMIT // one))
    body = Source()
    body.line(f"lane = {lane}")
    body.extend(code.header)
    with body.block(f"for point in range({first}, {points}, {step}):"):
        body.extend(code.lines)
    scratch = tuple((d, size * per_block * blocks) for _, d, size in code.scratch)
    return Emitted(_source(code, body.lines), scratch, blocks, threads)


def _source(code: Stages, body: Sequence[str]) -> str:
    """The kernel as a function with these lines."""
    kernel = code.kernel
    names = [code.names[b] for b in kernel.buffers] + [code.names[s] for s in kernel.scalars]
    names += [name for name, _, _ in code.scratch]
    source = Source()
    with source.block(f"def kernel({', '.join(names)}):"):
        source.extend(body)
        source.line("return")
    return source.text
