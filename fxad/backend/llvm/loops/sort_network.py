"""Stable sorting of short rows by a network: comparisons that are the same for any numbers.

    numbers 7 2 7 5, with their positions: 70 21 72 53
    exchanged so that the less come first: 21 70 53 72, 21 53 70 72: positions 1 3 0 2

A key of up to 32 bits and its position make one 64-bit number, so that no two are equal and of
equal keys the first stays first. The merges are Batcher's bitonic ones (Knuth, vol. 3, 5.3.4): of
two runs, the second one backwards, the lesser of each pair go to one half, the larger to the other,
and so on with halves; an exchange is a minimum and a maximum of vectors. A block of eight vectors
is sorted in registers; more blocks, a power of two of them, are merged in memory, a loop over pairs
of vectors for each step, until the pairs are of one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.loops.sort_radix import ordered
from fxad.ir import kernel as ir

LANES = 8
BYTES = 8 * LANES  # of a vector
BLOCK = 8  # vectors


def sorts(extent: int, keys: Sequence[ir.Buffer], target: Target) -> bool:
    """Are so many elements sorted by a network faster than in other ways?"""
    if target.isa != "avx512" or len(keys) != 1 or keys[0].dtype.itemsize > 4:
        return False
    tuning = target.tuning.sorts  # of one byte each: digits are sorted in one pass
    most = tuning.network_bytes if keys[0].dtype.itemsize == 1 else tuning.network_most
    return tuning.network_least <= extent <= most


class Network:
    """The code that finds the order of `extent` elements.

    column: address and dtype of the key; it may be read up to the end of a cache line. take: gives
    the address of so many bytes of scratch. descending: the largest first; of equals the first
    stays the first.
    """

    def __init__(
        self,
        code: Code,
        column: tuple[str, np.dtype],
        extent: int,
        take: Callable[[int], str],
        descending: bool = False,
    ) -> None:
        self.code, self.f, self.extent, self.descending = code, code.function, extent, descending
        self.column, self.take = column, take

    def sort(self, order: str) -> None:
        """Write the positions (i32) in order, up to a whole vector."""
        count = -(-self.extent // LANES)
        if count <= BLOCK:
            vectors = [self._numbers(LANES * i) for i in range(count)]
            self._sort(vectors)
            for i, vector in enumerate(vectors):
                self._put(order, 4 * LANES * i, vector.convert("trunc", "i32"))
            return
        table = self._table(count)

        def put(i: str, _: object) -> None:
            narrow = self._get(table, i).convert("trunc", "i32")
            self._put(order, self.f.mul(i, 4 * LANES), narrow)

        self.f.loop(0, count, 1, put)

    # ---------------------------------------------------------------- numbers in memory

    def _get(self, table: str, i: str) -> Vec:
        place = self.f.offset(table, self.f.mul(i, BYTES))
        return self.code.op("i64", LANES, f"load <{LANES} x i64>, ptr {place}, align {BYTES}")

    def _put(self, array: str, offset: str | int, value: Vec) -> None:
        align = value.width * (4 if value.kind == "i32" else 8)
        place = self.f.offset(array, offset)
        self.f.line(f"store {value.type} {value.text}, ptr {place}, align {align}")

    def _numbers(self, start: str | int) -> Vec:
        """A vector of keys above their positions; past the end the largest number."""
        address, dtype = self.column
        kind, size = f"i{8 * dtype.itemsize}", dtype.itemsize
        place = self.f.offset(address, self.f.mul(start, size))
        text = f"load <{LANES} x {kind}>, ptr {place}, align {LANES * size}"
        key = ordered(self.code.op(kind, LANES, text), dtype)
        wide = (~key if self.descending else key).convert("zext", "i64") << 32
        first = Vec(self.code, "i64", 1, str(start)).splat(LANES)
        positions = self.code.iota("i64", LANES) + first
        return positions.compare("ult", self.extent).where(wide | positions, -1)

    def _table(self, count: int) -> str:
        """All numbers, sorted, in scratch."""
        f, merges = self.f, (-(-count // BLOCK) - 1).bit_length()
        most = BLOCK << merges
        table = self.take(most * BYTES)
        f.loop(0, count, 1, lambda i, _: self._put(
            table, f.mul(i, BYTES), self._numbers(f.mul(i, LANES))))  # fmt: skip
        last = self.code.const("i64", -1, LANES)
        f.loop(count, most, 1, lambda i, _: self._put(table, f.mul(i, BYTES), last))
        self._each_block(table, most, self._sort)

        def merge(number: str, _: object) -> None:
            self._merge_blocks(table, most // 2, number)
            self._each_block(table, most, lambda vectors: self._halve(vectors, BLOCK // 2 * LANES))

        f.loop(0, merges, 1, merge)
        return table

    def _each_block(self, table: str, most: int, change: Callable[[list[Vec]], None]) -> None:
        def block(start: str, _: object) -> None:
            places = [self.f.add(start, i) for i in range(BLOCK)]
            vectors = [self._get(table, i) for i in places]
            change(vectors)
            for i, vector in zip(places, vectors, strict=True):
                self._put(table, self.f.mul(i, BYTES), vector)

        self.f.loop(0, most, BLOCK, block)

    def _merge_blocks(self, table: str, pairs: int, number: str) -> None:
        """Exchanges of the merge of this number between vectors of different blocks."""
        f = self.f
        half = f.op(f"shl i64 {BLOCK}, {number}")  # vectors of a run

        def of_runs(first: str, within: str) -> str:
            last = f.add(first, f.add(f.mul(half, 2), -1))
            return f.op(f"sub i64 {last}, {within}")

        self._pairs(table, pairs, half, of_runs, backwards=True)

        def step(j: str, _: object) -> None:
            far = f.op(f"lshr i64 {half}, {f.add(j, 1)}")
            self._pairs(table, pairs, far, lambda first, within: f.add(f.add(first, within), far))

        f.loop(0, number, 1, step)

    def _pairs(
        self,
        table: str,
        pairs: int,
        far: str,
        partner: Callable[[str, str], str],
        backwards: bool = False,
    ) -> None:
        """Exchange the vectors of the lower `far` of every 2 * `far` with their partners."""
        f = self.f
        mask = f.add(far, -1)

        def pair(number: str, _: object) -> None:
            within = f.op(f"and i64 {number}, {mask}")
            first = f.mul(f.op(f"sub i64 {number}, {within}"), 2)
            low, high = f.add(first, within), partner(first, within)
            a, b = self._get(table, low), self._get(table, high)
            b = b.shuffle(range(LANES - 1, -1, -1)) if backwards else b
            self._put(table, f.mul(low, BYTES), _least(a, b))
            self._put(table, f.mul(high, BYTES), _most(a, b))

        f.loop(0, pairs, 1, pair)

    # ---------------------------------------------------------------- in registers

    def _sort(self, vectors: list[Vec]) -> None:
        size = 2
        while size < 2 * LANES * len(vectors):
            self._exchange(vectors, size - 1)
            self._halve(vectors, size // 4)
            size *= 2

    def _halve(self, vectors: list[Vec], distance: int) -> None:
        """The rest of a merge, from exchanges of numbers so far apart on."""
        while distance:
            self._exchange(vectors, distance)
            distance //= 2

    def _exchange(self, vectors: list[Vec], other: int) -> None:
        """Exchange numbers i and i ^ other so that the less comes first; the numbers of vectors
        that are not there are larger than all.

        Of two vectors, one of which is reversed, what is larger stays so: each vector is then
        merged within itself, whatever the direction.
        """
        far, near = divmod(other, LANES)
        partners = [lane ^ near for lane in range(LANES)]
        if not far:
            first = self.code.consts("i1", [lane < partners[lane] for lane in range(LANES)])
            for i, vector in enumerate(vectors):
                turned = vector.shuffle(partners)
                vectors[i] = first.where(_least(vector, turned), _most(vector, turned))
            return
        for i, vector in enumerate(vectors):
            if i < i ^ far < len(vectors):
                turned = vectors[i ^ far].shuffle(partners) if near else vectors[i ^ far]
                vectors[i], vectors[i ^ far] = _least(vector, turned), _most(vector, turned)


def _least(a: Vec, b: Vec) -> Vec:
    return a.code.intrinsic("umin", a, b)


def _most(a: Vec, b: Vec) -> Vec:
    return a.code.intrinsic("umax", a, b)
