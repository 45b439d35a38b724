"""Stable sorting of positions by their keys' digits, the lowest first, without a comparison.

    keys 0x21 0x12 0x11    by the last digit: 0x21 0x11 0x12    by the first: 0x11 0x12 0x21

    radix = radix_of(scope, keys)
    array = sort_by_digits(scope, radix, order, other)  # order: 0, 1, 2 ...

A key becomes an unsigned integer of the same order: NaN the largest, both zeros one number. One
pass over the keys counts all their digits; then a pass for each digit moves keys and positions to
where their digit begins. A digit that is the same in all keys costs nothing but its counting.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Scope
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_keys import (
    Column,
    Keys,
    load_integers,
    ordered,
    store_integers,
)
from fxad.backend.llvm.loops.sort_positions import position_at
from fxad.core.record import record

COUNTERS = 16  # set to zero at once


@record
class Radix:
    """What sorts up to `keys.extent` positions, kept as i32.

    arrays: two arrays of one column as integers, before and after a pass. counters: of the digits
    of any column.
    """

    keys: Keys
    arrays: tuple[str, str]
    counters: str


@record
class _Digits:
    """How the keys of a column are cut into digits. bits: of a digit; the counters of one digit's
    values lie together, those of the lowest digit first."""

    column: Column
    bits: int
    counters: str

    @property
    def type(self) -> str:
        """Of a key as an integer."""
        return f"i{8 * self.column.size}"

    @property
    def count(self) -> int:
        """Digits of a key."""
        return -(-8 * self.column.size // self.bits)

    @property
    def counter_bytes(self) -> int:
        """Of the counters of one digit."""
        return 4 << self.bits


@record
class _Counter:
    """Where a digit's counter is, and what it holds."""

    address: str
    held: str


def radix_of(scope: Scope, keys: Keys) -> Radix:
    """With arrays in scratch, at places of their own."""
    take, target, most = scope.context.scratch.take, scope.code.target, keys.extent
    widest = max(column.size for column in keys.columns)
    arrays = take(most * widest), take(most * widest)
    counters = take(max(4 * _counters(most, column.dtype, target) for column in keys.columns))
    return Radix(keys, arrays, counters)


def sort_by_digits(
    scope: Scope, radix: Radix, order: str, other: str, count: str | int | None = None
) -> str:
    """Sort the positions in `order` (its first `count`, at least one); the array they are then in
    is one of the two given."""
    keys, target = radix.keys, scope.code.target
    for column in reversed(keys.columns):
        digits = _Digits(column, _digit(keys.extent, column.dtype, target), radix.counters)
        extent = keys.extent if count is None else count
        order, other = _sort_by_key(scope, radix, digits, extent, (order, other))
    return order


def _sort_by_key(
    scope: Scope, radix: Radix, d: _Digits, extent: str | int, orders: tuple[str, str]
) -> tuple[str, str]:
    """The arrays of the positions, as they lie after the passes of one column's digits."""
    f, keys = scope.f, radix.arrays[0]
    zero = f"store <{COUNTERS} x i32> zeroinitializer, ptr"

    def clear(start: str, _: Texts) -> None:
        f.line(f"{zero} {f.offset(d.counters, f.mul(start, 4))}, align 64")

    def count(place: str, _: Texts) -> None:
        _count_digits(scope, d, place, keys, orders[0], radix.keys.descending)

    f.loop(0, d.count << d.bits, COUNTERS, clear, at_least_once=True)
    f.loop(0, extent, 1, count, (), True)
    start = [("ptr", array) for array in (*radix.arrays, *orders)]
    found = f.loop(
        0, d.count, 1, lambda digit, arrays: _move(scope, d, extent, digit, arrays), start, True
    )
    return found[2], found[3]


def _count_digits(
    scope: Scope, d: _Digits, place: str, keys: str, order: str, descending: bool
) -> None:
    """Write the key of the element at a place; count its digits."""
    f, column = scope.f, d.column
    bits = load_integers(scope, column.address, column.size, position_at(scope, order, place))
    key = ordered(bits, column.dtype, descending)
    store_integers(scope, key, keys, column.size, place)
    for number in range(d.count):
        value = _digit_of(scope, d, key, str(number * d.bits))
        _count_one(scope, _counter(scope, f.offset(d.counters, number * d.counter_bytes), value))


def _move(scope: Scope, d: _Digits, extent: str | int, number: str, arrays: Texts) -> Texts:
    """Sort by one digit, from the first arrays into the second; both change places then."""
    f, size, (keys, keys_to, order, order_to) = scope.f, d.column.size, arrays
    shift = f.mul(number, d.bits)
    shift = shift if size == 8 else f.op(f"trunc i64 {shift} to {d.type}")
    begin = f.offset(d.counters, f.mul(number, d.counter_bytes))

    def counter_of(key: Vec) -> _Counter:
        return _counter(scope, begin, _digit_of(scope, d, key, shift))

    first = counter_of(load_integers(scope, keys, size, "0"))
    held = f.op(f"zext i32 {first.held} to i64")
    mixed = f.op(f"icmp ne i64 {held}, {extent}")

    def sums(value: str, before: Texts) -> Texts:
        counter = f.offset(begin, f.mul(value, 4))
        count = f.op(f"load i32, ptr {counter}, align 4")
        f.line(f"store i32 {before[0]}, ptr {counter}, align 4")
        return [f.op(f"add i32 {before[0]}, {count}")]

    def one(place: str, _: Texts) -> None:
        key = load_integers(scope, keys, size, place)
        counter = counter_of(key)
        _count_one(scope, counter)
        to = f.op(f"zext i32 {counter.held} to i64")
        store_integers(scope, key, keys_to, size, to)
        moved = f.op(f"load i32, ptr {f.offset(order, f.mul(place, 4))}, align 4")
        f.line(f"store i32 {moved}, ptr {f.offset(order_to, f.mul(to, 4))}, align 4")

    def both() -> None:
        f.loop(0, 1 << d.bits, 1, sums, [("i32", "0")], at_least_once=True)
        f.loop(0, extent, 1, one, at_least_once=True)

    f.when(mixed, both)
    pairs = [(keys, keys_to), (keys_to, keys), (order, order_to), (order_to, order)]
    return [f.op(f"select i1 {mixed}, ptr {b}, ptr {a}") for a, b in pairs]


def _digit_of(scope: Scope, d: _Digits, key: Vec, shift: str) -> str:
    """The value of the digit of a key that begins at a bit, as i64."""
    f = scope.f
    value = f.op(f"lshr {d.type} {key.text}, {shift}")
    value = f.op(f"and {d.type} {value}, {(1 << d.bits) - 1}")
    return value if d.column.size == 8 else f.op(f"zext {d.type} {value} to i64")


def _counter(scope: Scope, counters: str, value: str) -> _Counter:
    """The counter of a value, among those of its digit."""
    f = scope.f
    address = f.offset(counters, f.mul(value, 4))
    return _Counter(address, f.op(f"load i32, ptr {address}, align 4"))


def _count_one(scope: Scope, counter: _Counter) -> None:
    """Add one to a counter."""
    f = scope.f
    f.line(f"store i32 {f.op(f'add i32 {counter.held}, 1')}, ptr {counter.address}, align 4")


def _digit(extent: int, dtype: np.dtype, target: Target) -> int:
    """Bits of a digit: the counters of 11 take 8 KiB."""
    return min(11 if extent >= target.tuning.sorts.radix_long else 8, 8 * dtype.itemsize)


def _counters(extent: int, dtype: np.dtype, target: Target) -> int:
    digit = _digit(extent, dtype, target)
    return -(-8 * dtype.itemsize // digit) << digit
