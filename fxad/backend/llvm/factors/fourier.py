"""Fourier transforms in native code: as many transforms at once as a vector has lanes.

    write_fourier(library, (8, 4))      # functions called like kernels: rows, columns, steps

`rows` transforms the last axis, a row in each lane; `columns` another axis, whose lanes are side by
side; `steps` one long transform after the other, of n = rows * columns elements: columns are
transformed, turned by exp(-2 pi i k j / n), and rows transformed (Bailey 1990, "FFTs in external or
hierarchical memory"). A result is written after all that a unit reads was read, so it may lie where
the operand does.

Real numbers of even length n are transformed as n / 2 complex ones (fourier_real.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fxad.backend.llvm.factors.code import Code, Library, name_of
from fxad.backend.llvm.factors.fourier_memory import transfer, write_transfers
from fxad.backend.llvm.factors.fourier_passes import (
    TRANSFORM,
    Complex,
    element,
    get,
    pair,
    product,
    put,
    write_transform,
)
from fxad.backend.llvm.factors.fourier_real import call_real, tangled, untangled, write_real
from fxad.core.record import record

# What is done with elements before the passes, and after them.
BEFORE = ("none", "zeros", "tangle", "mirror")
AFTER = ("none", "untangle", "reals")


@record
class Shape:
    """What is the same for all transforms of a call, as text: indices in BEFORE and AFTER, whether
    the inverse, elements of the passes and their plan, factors of real transforms, and bytes of
    one of the two buffers in scratch."""

    before: str
    after: str
    inverse: str
    length: str
    plan: str
    roots: str
    room: str


def write_fourier(library: Library, radices: Sequence[int]) -> None:
    """All functions of a dtype, for plans with these radices."""
    write_transform(library, radices)
    write_transfers(library)
    write_real(library)
    _write_rows(library)
    _write_columns(library)
    _write_steps(library)


def _write_rows(library: Library) -> None:
    """Operands x, y; numbers: rows, real numbers of a row of x and of y, a Shape. Units: groups of
    rows."""
    code, (x, y), (rows, taken, given, *rest) = library.kernel("fourier_rows", 2, 10)
    f, shape = code.f, Shape(*rest)

    def group(number: str, _: object) -> None:
        first = f.mul(number, code.width)
        lanes = f.least(f.op(f"sub i64 {rows}, {first}"), code.width)
        line = f.mul(taken, code.size)
        source = f.offset(x, f.mul(first, line))
        transfer(code, library, "read_rows", source, line, lanes, taken, "%scratch")
        result = _transformed(code, library, shape)
        line = f.mul(given, code.size)
        target = f.offset(y, f.mul(first, line))
        transfer(code, library, "write_rows", target, line, lanes, given, result)

    f.loop("%begin", "%end", 1, group)
    f.ret()


def _write_columns(library: Library) -> None:
    """Operands x, y; numbers: columns side by side, elements of a column of x and of y, real
    numbers of an element of x and of y, a Shape. Units: groups of columns."""
    code, (x, y), (columns, taken, given, parts_x, parts_y, *rest) = library.kernel(
        "fourier_columns", 2, 12
    )
    f, shape = code.f, Shape(*rest)
    groups = f.op(f"udiv i64 {f.add(columns, code.width - 1)}, {code.width}")

    def move(read: bool, array: str, unit: str, count: str, parts: str, scratch: str) -> None:
        outer = f.op(f"udiv i64 {unit}, {groups}")
        first = f.mul(f.op(f"urem i64 {unit}, {groups}"), code.width)
        lanes = f.least(f.op(f"sub i64 {columns}, {first}"), code.width)
        size = f.mul(parts, code.size)
        line = f.mul(columns, size)
        start = f.add(f.mul(f.mul(outer, count), line), f.mul(first, size))
        for number, kind in ((1, "real"), (2, "complex")):
            kind = f"{'read' if read else 'write'}_columns_{kind}"
            args = (f.offset(array, start), line, lanes, count, scratch)
            f.when(
                f.op(f"icmp eq i64 {parts}, {number}"),
                partial(transfer, code, library, kind, *args),
            )

    def group(number: str, _: object) -> None:
        move(True, x, number, taken, parts_x, "%scratch")
        result = _transformed(code, library, shape)
        move(False, y, number, given, parts_y, result)

    f.loop("%begin", "%end", 1, group)
    f.ret()


def _write_steps(library: Library) -> None:
    """Operands x, y; numbers: real numbers of a transform in x and in y, indices in BEFORE and
    AFTER, factors of real transforms, rows, columns, whether the inverse, plans of a column and of
    a row, factors between the steps, bytes of a buffer. Units: transforms."""
    code, (x, y), numbers = library.kernel("fourier_steps", 2, 12)
    taken, given, before, after, half_roots, rows, columns, inverse, *numbers = numbers
    plan_column, plan_row, roots, room = numbers
    f = code.f
    pair_bytes = 2 * code.size
    count = f.mul(rows, columns)
    nbytes = f.mul(count, pair_bytes)
    between = f.offset("%scratch", f.mul(room, 2))  # [rows, columns] after the first step
    spare = f.offset(between, nbytes)  # half a spectrum
    tangle = f.op(f"icmp eq i64 {before}, {BEFORE.index('tangle')}")
    untangle = f.op(f"icmp eq i64 {after}, {AFTER.index('untangle')}")
    down, across = f.mul(columns, pair_bytes), f.mul(rows, pair_bytes)
    half = f.mul(count, code.size)  # from real to imaginary parts of the factors

    def groups(count: str, body: Callable[[str, str], None]) -> None:
        def group(first: str, _: object) -> None:
            body(first, f.least(f.op(f"sub i64 {count}, {first}"), code.width))

        f.loop(0, count, code.width, group)

    def one(number: str, _: object) -> None:
        operand = f.offset(x, f.mul(number, f.mul(taken, code.size)))
        whole = f.offset(y, f.mul(number, f.mul(given, code.size)))
        source = f.op(f"select i1 {tangle}, ptr {spare}, ptr {operand}")
        target = f.op(f"select i1 {untangle}, ptr {spare}, ptr {whole}")
        args = (_pointer(code, half_roots), count)
        f.when(tangle, partial(call_real, code, library, "tangle", operand, spare, *args))

        def column(first: str, lanes: str) -> None:
            at = f.mul(first, pair_bytes)
            start = f.offset(source, at)
            transfer(code, library, "read_columns_complex", start, down, lanes, rows, "%scratch")
            result = _passes(code, library, plan_column, inverse, "%scratch", room)
            _turn(
                code,
                result,
                inverse,
                f.offset(_pointer(code, roots), f.mul(first, code.size)),
                half,
                rows,
                columns,
                lanes,
            )
            to = f.offset(between, at)
            transfer(code, library, "write_columns_complex", to, down, lanes, rows, result)

        def row(first: str, lanes: str) -> None:
            start, taken = f.offset(between, f.mul(first, down)), f.mul(columns, 2)
            transfer(code, library, "read_rows", start, down, lanes, taken, "%scratch")
            result = _passes(code, library, plan_row, inverse, "%scratch", room)
            to = f.offset(target, f.mul(first, pair_bytes))
            transfer(code, library, "write_columns_complex", to, across, lanes, columns, result)

        groups(columns, column)
        groups(rows, row)
        f.when(untangle, partial(call_real, code, library, "untangle", spare, whole, *args))

    f.loop("%begin", "%end", 1, one)
    f.ret()


# ---------------------------------------------------------------- in scratch


def _sides(code: Code, inverse: str) -> tuple[str, str]:
    """Bytes from an element to the part that counts as real, and from there to the other."""
    to = code.f.mul(inverse, code.step)
    return to, code.f.op(f"sub i64 {code.step}, {code.f.mul(to, 2)}")


def _passes(
    code: Code, library: Library, plan: str, inverse: str, source: str, room: str, other: str = ""
) -> str:
    """Where the transform of the elements at `source` is; the other buffer follows it, if it is
    not given."""
    f = code.f
    other = other or f.offset(source, room)
    start, off = _sides(code, inverse)
    given = f"ptr {_pointer(code, plan)}, ptr {f.offset(source, start)}"
    given += f", ptr {f.offset(other, start)}, i64 {off}"
    f.line(f"call void @{name_of(TRANSFORM, library.dtype)}({given})")
    passes = f.op(f"load i64, ptr {_pointer(code, plan)}")
    odd = f.op(f"trunc i64 {passes} to i1")
    return f.op(f"select i1 {odd}, ptr {other}, ptr {source}")


def _pointer(code: Code, number: str) -> str:
    """An address that is given as a number."""
    return code.f.op(f"inttoptr i64 {number} to ptr")


def _turn(
    code: Code,
    result: str,
    inverse: str,
    roots: str,
    half: str,
    rows: str,
    columns: str,
    lanes: str,
) -> None:
    """Multiply element k of every lane by the factors of row k and the lane's column."""
    f = code.f
    start, off = _sides(code, inverse)
    mask = code.values.first_lanes(code.width, lanes)

    def one(k: str, _: object) -> None:
        at = f.offset(element(code, result, k), start)
        row = f.offset(roots, f.mul(f.mul(k, columns), code.size))
        factor = code.load(row, 0, mask), code.load(f.offset(row, half), 0, mask)
        put(code, at, off, product(get(code, at, off), factor))

    f.loop(0, rows, 1, one)


def _transformed(code: Code, library: Library, shape: Shape) -> str:
    """Where what is to be written is, of what was read to scratch."""
    f = code.f
    first, second = "%scratch", f.offset("%scratch", shape.room)
    raw = f.op(f"icmp eq i64 {shape.before}, 0")
    for kind, write in (("zeros", _zeros), ("tangle", _tangle), ("mirror", _mirror)):
        test = f.op(f"icmp eq i64 {shape.before}, {BEFORE.index(kind)}")
        f.when(test, partial(write, code, first, second, shape))
    source = f.op(f"select i1 {raw}, ptr {first}, ptr {second}")
    other = f.op(f"select i1 {raw}, ptr {second}, ptr {first}")
    result = _passes(code, library, shape.plan, shape.inverse, source, shape.room, other)
    at_source = f.op(f"icmp eq ptr {result}, {source}")
    spare = f.op(f"select i1 {at_source}, ptr {other}, ptr {source}")
    for kind, write in (("untangle", _untangle), ("reals", _reals)):
        test = f.op(f"icmp eq i64 {shape.after}, {AFTER.index(kind)}")
        f.when(test, partial(write, code, result, spare, shape))
    plain = f.op(f"icmp eq i64 {shape.after}, 0")
    return f.op(f"select i1 {plain}, ptr {result}, ptr {spare}")


def _each(code: Code, low: str | int, high: str, body: Callable[[str], object]) -> None:
    def one(k: str, _: object) -> None:
        body(k)

    code.f.loop(low, high, 1, one)


def _zeros(code: Code, source: str, target: str, shape: Shape) -> None:
    """Real numbers as complex ones."""
    f, off, zero = code.f, str(code.step), code.splat(0.0)

    def one(k: str) -> None:
        value = code.load(f.offset(source, f.mul(k, code.step)))
        put(code, element(code, target, k), off, (value, zero))

    _each(code, 0, shape.length, one)


def _reals(code: Code, source: str, target: str, shape: Shape) -> None:
    """The real parts."""
    f = code.f

    def one(k: str) -> None:
        value = code.load(element(code, source, k))
        code.put(f.offset(target, f.mul(k, code.step)), value)

    _each(code, 0, shape.length, one)


def _mirror(code: Code, source: str, target: str, shape: Shape) -> None:
    """A whole spectrum of an odd number of elements from its half: element n - k is the conjugate
    of element k, and the first is real."""
    f, off, n = code.f, str(code.step), shape.length
    first, _ = get(code, source, off)
    put(code, target, off, (first, code.splat(0.0)))

    def one(k: str) -> None:
        real, imaginary = get(code, element(code, source, k), off)
        put(code, element(code, target, k), off, (real, imaginary))
        back = element(code, target, f.op(f"sub i64 {n}, {k}"))
        put(code, back, off, (real, -imaginary))

    _each(code, 1, f.add(f.op(f"lshr i64 {n}, 1"), 1), one)


def _mirrored(code: Code, source: str, k: str, shape: Shape, wrap: bool) -> tuple[Complex, Complex]:
    """Elements k and, conjugated, h - k, where h is the number of elements; wrap: element h is
    the first."""
    f, off, h = code.f, str(code.step), shape.length
    back = f.op(f"sub i64 {h}, {k}")
    if wrap:
        first, last = (f.op(f"icmp eq i64 {k}, {end}") for end in ("0", h))
        back = f.op(f"select i1 {first}, i64 0, i64 {back}")
        k = f.op(f"select i1 {last}, i64 0, i64 {k}")
    real, imaginary = get(code, element(code, source, back), off)
    return get(code, element(code, source, k), off), (real, -imaginary)


def _factor(code: Code, shape: Shape, k: str) -> Complex:
    f = code.f
    return pair(code, f.offset(_pointer(code, shape.roots), f.mul(k, 2 * code.size)))


def _untangle(code: Code, source: str, target: str, shape: Shape) -> None:
    """The half spectrum of real numbers, h + 1 elements, from that of h pairs of them."""
    off = str(code.step)

    def one(k: str) -> None:
        here, there = _mirrored(code, source, k, shape, wrap=True)
        value = untangled(here, there, _factor(code, shape, k))
        put(code, element(code, target, k), off, value)

    _each(code, 0, code.f.add(shape.length, 1), one)


def _tangle(code: Code, source: str, target: str, shape: Shape) -> None:
    """Its inverse, times 2. The imaginary parts of the first and the last element do not count."""
    f, off = code.f, str(code.step)
    for k in ("0", shape.length):
        code.put(f.offset(element(code, source, k), off), code.splat(0.0))

    def one(k: str) -> None:
        here, there = _mirrored(code, source, k, shape, wrap=False)
        value = tangled(here, there, _factor(code, shape, k))
        put(code, element(code, target, k), off, value)

    _each(code, 0, shape.length, one)
