"""Packing: copy a part of an operand into the layout that the micro-kernels read.

    emit_pack_b("@name.pack48", Source(stride_n=1, stride_k=2304, dtype=f32), 48, lanes)

A packed panel of B holds, for every k, its columns side by side, padded with zeros to whole
vectors. A packed A is a dense copy in the accumulator's dtype, or panels of the rows
of a tile.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.core.record import valued

# Transposing more lanes than this in registers spills: a property of instruction sets, not tuned.
MOST_TRANSPOSED = 16
PARAMS_B = (("ptr", "source"), ("ptr", "panel"), ("i64", "depth"))
PARAMS_A = (("ptr", "source"), ("ptr", "copy"), ("i64", "depth"), ("i64", "rows"))
PARAMS_BLOCKS = (*PARAMS_A[:3], ("i64", "tall"), ("i64", "others"))


@valued
class Source:
    """An operand in memory: strides in elements along its outer axis (m or n) and along k."""

    outer: int
    k: int
    dtype: np.dtype


def emit_pack_b(name: str, source: Source, columns: int, lanes: Lanes) -> str:
    """Internal function packing `depth` steps of k of a panel of `columns` columns."""
    f = Function(name, "void", PARAMS_B, "internal", "#1")
    starts = range(0, columns, lanes.width)
    counts = [min(lanes.width, columns - start) for start in starts]
    if source.outer == 1:
        _pack_rows(f, source, counts, lanes)
    elif source.k == 1 and lanes.width <= MOST_TRANSPOSED:
        _pack_transposed(f, source, columns, lanes)
    else:
        _pack_elements(f, source, columns, len(counts), lanes, "0")
    f.ret()
    return str(f)


def _pack_rows(f: Function, source: Source, counts: list[int], lanes: Lanes) -> None:
    panel = len(counts) * lanes.width * lanes.bytes
    size = source.dtype.itemsize

    def body(_: str, pointers: list[str]) -> list[str]:
        at, to = pointers
        for j, count in enumerate(counts):
            value = lanes.load(f, f.offset(at, j * lanes.width * size), source.dtype, count)
            where = f.offset(to, j * lanes.width * lanes.bytes)
            lanes.store(f, value, where, lanes.width, lanes.width * lanes.bytes)
        return [f.offset(at, source.k * size), f.offset(to, panel)]

    f.loop(0, "%depth", 1, body, [("ptr", "%source"), ("ptr", "%panel")])


def _pack_transposed(f: Function, source: Source, columns: int, lanes: Lanes) -> None:
    """Squares of lanes x lanes through registers, then what is left of K by elements.

    One vector of columns after the other: few streams, which the hardware can prefetch.
    """
    width = lanes.width
    vectors = -(-columns // width)
    whole = f.op(f"and i64 %depth, {-width}")

    def vector(number: str, count: int) -> None:
        at = f.offset("%source", f.mul(number, width * source.outer * source.dtype.itemsize))
        to = f.offset("%panel", f.mul(number, width * lanes.bytes))
        f.loop(0, whole, width, lambda k, _: _square(f, source, (at, to), k, count, vectors, lanes))

    if columns >= width:
        f.loop(0, columns // width, 1, lambda n, _: vector(n, width), at_least_once=True)
    if columns % width:
        vector(str(vectors - 1), columns % width)
    _pack_elements(f, source, columns, vectors, lanes, whole)


def _square(
    f: Function,
    source: Source,
    pointers: tuple[str, str],
    k: str,
    count: int,
    vectors: int,
    lanes: Lanes,
) -> None:
    """Transpose `count` columns of lanes.width steps of k, from k on; columns beyond are 0."""
    size, panel = source.dtype.itemsize, vectors * lanes.width * lanes.bytes
    at, to = f.offset(pointers[0], f.mul(k, size)), f.offset(pointers[1], f.mul(k, panel))
    rows = [
        lanes.load(f, f.offset(at, i * source.outer * size), source.dtype, lanes.width)
        for i in range(count)
    ]
    rows += ["zeroinitializer"] * (lanes.width - count)
    for i, value in enumerate(lanes.transpose(f, rows)):
        lanes.store(f, value, f.offset(to, i * panel), lanes.width, lanes.width * lanes.bytes)


def _pack_elements(
    f: Function, source: Source, columns: int, vectors: int, lanes: Lanes, low: str
) -> None:
    """From k = low on, one element at a time."""
    size = source.dtype.itemsize
    panel = vectors * lanes.width * lanes.bytes

    def step(k: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(k, source.k * size))
        to = f.offset("%panel", f.mul(k, panel))
        if columns % lanes.width:
            last = f.offset(to, (vectors - 1) * lanes.width * lanes.bytes)
            lanes.store(f, "zeroinitializer", last, lanes.width)

        def column(n: str, _: list[str]) -> None:
            value = lanes.element(f, f.offset(at, f.mul(n, source.outer * size)), source.dtype)
            f.line(f"store {lanes.scalar} {value}, ptr {f.offset(to, f.mul(n, lanes.bytes))}")

        f.loop(0, columns, 1, column, at_least_once=True)

    f.loop(low, "%depth", 1, step)


def is_column_major(source: Source) -> bool:
    """Whether a packed A is kept with its rows side by side, as it lies in memory."""
    return source.outer == 1 and source.k != 1


def emit_pack_a(name: str, source: Source, stride: int, lanes: Lanes) -> str:
    """Internal function copying `rows` rows of `depth` elements of k.

    The copy has k contiguous, or m if A is column major; `stride` is its other stride, in elements.
    """
    f = Function(name, "void", PARAMS_A, "internal", "#1")
    size = source.dtype.itemsize
    column_major = is_column_major(source)
    lines, length = ("%depth", "%rows") if column_major else ("%rows", "%depth")
    line_step, step = (source.k, source.outer) if column_major else (source.outer, source.k)
    whole = f.op(f"and i64 {length}, {-lanes.width}") if step == 1 else "0"

    def line(number: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(number, line_step * size))
        to = f.offset("%copy", f.mul(number, stride * lanes.bytes))

        def vector(i: str, _: list[str]) -> None:
            value = lanes.load(f, f.offset(at, f.mul(i, size)), source.dtype, lanes.width)
            lanes.store(f, value, f.offset(to, f.mul(i, lanes.bytes)), lanes.width)

        def element(i: str, _: list[str]) -> None:
            value = lanes.element(f, f.offset(at, f.mul(i, step * size)), source.dtype)
            f.line(f"store {lanes.scalar} {value}, ptr {f.offset(to, f.mul(i, lanes.bytes))}")

        if whole != "0":
            f.loop(0, whole, lanes.width, vector)
        f.loop(whole, length, 1, element)

    f.loop(0, lines, 1, line)
    f.ret()
    return str(f)


def emit_pack_a_panels(
    name: str,
    source: Source,
    heights: tuple[int, int],
    panel: int,
    lanes: Lanes,
    prefetch_steps: int,
) -> str:
    """Internal function copying `depth` steps of k of A: first `tall` panels of heights[0] rows,
    then `others` of heights[1].

    A panel has its rows side by side for every k, as the micro-kernel reads them; `panel` is the
    bytes from one to the next. prefetch_steps: of k, between what is copied and what is prefetched.
    """
    f = Function(name, "void", PARAMS_BLOCKS, "internal", "#1")
    if source.outer == 1:
        _pack_m_contiguous(f, source, heights, panel, lanes, prefetch_steps)
    else:
        _pack_k_contiguous(f, source, heights, panel, lanes)
    f.ret()
    return str(f)


def _pack_k_contiguous(
    f: Function, source: Source, heights: tuple[int, int], panel: int, lanes: Lanes
) -> None:
    """Panels of rows that have k side by side: one after the other, transposed in registers."""
    size, step = source.dtype.itemsize, heights[0] * lanes.bytes
    whole = f.op(f"and i64 %depth, {-lanes.width}")

    def some(count: str, height: int, at: str, to: str) -> None:
        def square(k: str, at: str, to: str) -> None:
            at, to = f.offset(at, f.mul(k, size)), f.offset(to, f.mul(k, step))
            for first in range(0, height, lanes.width):
                rows = range(first, min(first + lanes.width, height))
                loads = [
                    lanes.load(f, f.offset(at, i * source.outer * size), source.dtype, lanes.width)
                    for i in rows
                ]
                loads += ["poison"] * (lanes.width - len(rows))
                for i, value in enumerate(lanes.transpose(f, loads)):
                    place = f.offset(to, i * step + first * lanes.bytes)
                    lanes.store_first(f, value, place, len(rows))

        def line(k: str, at: str, to: str) -> None:
            at, to = f.offset(at, f.mul(k, size)), f.offset(to, f.mul(k, step))
            for i in range(height):
                value = lanes.element(f, f.offset(at, i * source.outer * size), source.dtype)
                f.line(f"store {lanes.scalar} {value}, ptr {f.offset(to, i * lanes.bytes)}")

        def one(_: str, places: list[str]) -> list[str]:
            at, to = places
            f.loop(0, whole, lanes.width, lambda k, _: square(k, at, to))
            f.loop(whole, "%depth", 1, lambda k, _: line(k, at, to))
            return [f.offset(at, height * source.outer * size), f.offset(to, panel)]

        f.loop(0, count, 1, one, [("ptr", at), ("ptr", to)])

    some("%tall", heights[0], "%source", "%copy")
    if heights[1] != heights[0]:
        at = f.offset("%source", f.mul("%tall", heights[0] * source.outer * size))
        some("%others", heights[1], at, f.offset("%copy", f.mul("%tall", panel)))


def _pack_m_contiguous(
    f: Function,
    source: Source,
    heights: tuple[int, int],
    panel: int,
    lanes: Lanes,
    prefetch_steps: int,
) -> None:
    """Rows that lie side by side: for each k all of them, in order."""
    size, step = source.dtype.itemsize, heights[0] * lanes.bytes

    def panels(count: str, height: int, at: str, to: str) -> None:
        some = Lanes(lanes.dtype, height)

        def one(_: str, places: list[str]) -> list[str]:
            later = f.offset(places[0], prefetch_steps * source.k * size)
            prefetch_line(f, lanes.declarations, later, write=False, level=3)
            some.store(f, some.load(f, places[0], source.dtype, height), places[1], height)
            return [f.offset(places[0], height * size), f.offset(places[1], panel)]

        f.loop(0, count, 1, one, [("ptr", at), ("ptr", to)])

    def line(k: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(k, source.k * size))
        to = f.offset("%copy", f.mul(k, step))
        panels("%tall", heights[0], at, to)
        if heights[1] != heights[0]:
            at = f.offset(at, f.mul("%tall", heights[0] * size))
            to = f.offset(to, f.mul("%tall", panel))
            panels("%others", heights[1], at, to)

    f.loop(0, "%depth", 1, line)
