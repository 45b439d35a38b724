"""Stable sorting of positions by their keys' digits, the lowest first, without a comparison.

    keys 0x21 0x12 0x11    by the last digit: 0x21 0x11 0x12    by the first: 0x11 0x12 0x21

A key becomes an unsigned integer of the same order: NaN the largest, both zeros one number. One
pass over the keys counts all their digits; then a pass for each digit moves keys and positions to
where their digit begins. A digit that is the same in all keys costs nothing but its counting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.core import dtypes

COUNTERS = 16  # set to zero at once


class Radix:
    """The code that sorts up to `most` positions, kept as i32.

    columns: address and dtype of every key, the most important first. take: gives the address of
    so many bytes of scratch. descending: the largest first; of equals the first stays the first.
    """

    def __init__(
        self,
        code: Code,
        columns: Sequence[tuple[str, np.dtype]],
        most: int,
        take: Callable[[int], str],
        descending: bool = False,
    ) -> None:
        self.code, self.f = code, code.function
        self.columns, self.most, self.descending = columns, most, descending
        widest = max(dtype.itemsize for _, dtype in columns)
        self.keys = take(most * widest), take(most * widest)
        self.counters = take(max(4 * _counters(most, dtype, code.target) for _, dtype in columns))

    def sort(self, order: str, other: str, count: str | int | None = None) -> str:
        """Sort the positions in `order` (its first `count`, at least one); the array they are then
        in is one of the two given."""
        for at, dtype in reversed(self.columns):
            made = _Digits(self, self.most if count is None else count, dtype)
            order, other = made.sort(at, self.keys, (order, other))
        return order


class _Digits:
    """One key of every element."""

    def __init__(self, radix: Radix, extent: str | int, dtype: np.dtype) -> None:
        self.code, self.f = radix.code, radix.f
        self.counters, self.descending = radix.counters, radix.descending
        self.extent, self.dtype = extent, dtype
        self.bits = 8 * dtype.itemsize
        self.type, self.size = f"i{self.bits}", dtype.itemsize
        self.digit = _digit(radix.most, dtype, self.code.target)
        self.digits = -(-self.bits // self.digit)

    def sort(self, at: str, keys: tuple[str, str], order: tuple[str, str]) -> tuple[str, str]:
        f = self.f
        total = self.digits << self.digit
        zero = f"store <{COUNTERS} x i32> zeroinitializer, ptr"

        def clear(start: str, _: list[str]) -> None:
            f.line(f"{zero} {f.offset(self.counters, f.mul(start, 4))}, align 64")

        f.loop(0, total, COUNTERS, clear, at_least_once=True)
        f.loop(0, self.extent, 1, lambda i, _: self.count(at, i, keys[0], order[0]), (), True)
        start = [("ptr", p) for p in (*keys, *order)]
        found = f.loop(0, self.digits, 1, lambda d, arrays: self.move(d, arrays), start, True)
        return found[2], found[3]

    def count(self, at: str, place: str, keys: str, order: str) -> None:
        """Write the key of the element at a place; count its digits."""
        f = self.f
        bits = Vec(self.code, self.type, 1, self.load(at, self.position(order, place)))
        made = ordered(bits, self.dtype)
        key = (~made if self.descending else made).text
        self.store(key, keys, place)
        for number in range(self.digits):
            digit = self.digit_of(key, str(number * self.digit))
            f.line(f"store i32 {f.op(f'add i32 {digit.held}, 1')}, ptr {digit.counter}, align 4")

    def move(self, number: str, arrays: list[str]) -> list[str]:
        """Sort by one digit, from the first arrays into the second; both change places then."""
        f, (keys, keys_to, order, order_to) = self.f, arrays
        shift = f.mul(number, self.digit)
        shift = shift if self.bits == 64 else f.op(f"trunc i64 {shift} to {self.type}")
        begin = f.offset(self.counters, f.mul(number, 4 << self.digit))
        first = self.digit_of(self.load(keys, "0"), shift, begin)
        held = f.op(f"zext i32 {first.held} to i64")
        mixed = f.op(f"icmp ne i64 {held}, {self.extent}")

        def sums(value: str, before: list[str]) -> list[str]:
            counter = f.offset(begin, f.mul(value, 4))
            count = f.op(f"load i32, ptr {counter}, align 4")
            f.line(f"store i32 {before[0]}, ptr {counter}, align 4")
            return [f.op(f"add i32 {before[0]}, {count}")]

        def one(place: str, _: list[str]) -> None:
            key = self.load(keys, place)
            digit = self.digit_of(key, shift, begin)
            f.line(f"store i32 {f.op(f'add i32 {digit.held}, 1')}, ptr {digit.counter}, align 4")
            to = f.op(f"zext i32 {digit.held} to i64")
            self.store(key, keys_to, to)
            moved = f.op(f"load i32, ptr {f.offset(order, f.mul(place, 4))}, align 4")
            f.line(f"store i32 {moved}, ptr {f.offset(order_to, f.mul(to, 4))}, align 4")

        def both() -> None:
            f.loop(0, 1 << self.digit, 1, sums, [("i32", "0")], at_least_once=True)
            f.loop(0, self.extent, 1, one, at_least_once=True)

        f.when(mixed, both)
        pairs = [(keys, keys_to), (keys_to, keys), (order, order_to), (order_to, order)]
        return [f.op(f"select i1 {mixed}, ptr {b}, ptr {a}") for a, b in pairs]

    def digit_of(self, key: str, shift: str, counters: str = "") -> _Digit:
        """The counter of a key's digit, among those of this digit (of all, if not given)."""
        f = self.f
        value = f.op(f"lshr {self.type} {key}, {shift}")
        value = f.op(f"and {self.type} {value}, {(1 << self.digit) - 1}")
        value = value if self.bits == 64 else f.op(f"zext {self.type} {value} to i64")
        begin = counters or f.offset(self.counters, int(shift) // self.digit * (4 << self.digit))
        counter = f.offset(begin, f.mul(value, 4))
        return _Digit(counter, f.op(f"load i32, ptr {counter}, align 4"))

    def position(self, order: str, place: str) -> str:
        loaded = self.f.op(f"load i32, ptr {self.f.offset(order, self.f.mul(place, 4))}, align 4")
        return self.f.op(f"zext i32 {loaded} to i64")

    def load(self, array: str, place: str) -> str:
        address = self.f.offset(array, self.f.mul(place, self.size))
        return self.f.op(f"load {self.type}, ptr {address}, align {self.size}")

    def store(self, key: str, array: str, place: str) -> None:
        address = self.f.offset(array, self.f.mul(place, self.size))
        self.f.line(f"store {self.type} {key}, ptr {address}, align {self.size}")


def ordered(bits: Vec, dtype: np.dtype) -> Vec:
    """The unsigned integers that stand for keys, given by their bits; NaN is the largest, both
    zeros are one number."""
    if dtype.kind in "ub":
        return bits
    sign = bits.like(-(1 << 8 * dtype.itemsize - 1))
    if not dtypes.is_float(dtype):
        return bits ^ sign
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    size = bits & ~(-(1 << 8 * dtype.itemsize - 1))
    flipped = bits ^ (bits.binary("ashr", 8 * dtype.itemsize - 1) | sign)
    flipped = size.equals(0).where(sign, flipped)
    return size.compare("ugt", infinity).where(bits.like(-1), flipped)


class _Digit(NamedTuple):
    """Where a digit's counter is, and what it holds."""

    counter: str
    held: str


def _digit(extent: int, dtype: np.dtype, target: Target) -> int:
    """Bits of a digit: the counters of 11 take 8 KiB."""
    return min(11 if extent >= target.tuning.sorts.radix_long else 8, 8 * dtype.itemsize)


def _counters(extent: int, dtype: np.dtype, target: Target) -> int:
    digit = _digit(extent, dtype, target)
    return -(-8 * dtype.itemsize // digit) << digit
