"""Between arrays and elements in lanes: what Fourier transforms read and write.

    write_transfers(library)
    transfer(code, library, "read_rows", memory, row, lanes, count, scratch)

Rows: a transform's numbers are side by side in memory, and `row` bytes on are those of the next
lane; squares of as many rows as lanes are transposed in registers. Columns: the lanes are side by
side, and `row` bytes on is the next element of all of them. `lanes` of them are there: the others
compute with numbers of the last row, or zeros, and are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.factors.code import Code, Library, name_of
from fxad.backend.llvm.loops.tiles import transpose

_PARAMS = (
    ("ptr", "memory"),
    ("i64", "row"),
    ("i64", "lanes"),
    ("i64", "count"),
    ("ptr", "scratch"),
)


def transfer(code: Code, library: Library, kind: str, *args: str) -> None:
    """Call one of the functions. count: real numbers of a row, or elements of a column."""
    types = [type for type, _ in _PARAMS]
    listed = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
    code.f.line(f"call void @{name_of(f'fourier_{kind}', library.dtype)}({listed})")


def write_transfers(library: Library) -> None:
    """All of them: rows, and columns of `real` or `complex` numbers."""
    _write_rows(library, True)
    _write_rows(library, False)
    for kind in ("real", "complex"):
        _write_columns(library, kind, True)
        _write_columns(library, kind, False)


def _begin(library: Library, kind: str) -> Code:
    return library.function(name_of(f"fourier_{kind}", library.dtype), _PARAMS, "internal")


def _write_rows(library: Library, read: bool) -> None:
    code = _begin(library, "read_rows" if read else "write_rows")
    f, width = code.f, code.width
    last = f.add("%lanes", -1)
    rows = [f.offset("%memory", f.mul(f.least(lane, last), "%row")) for lane in range(width)]
    present = [f.op(f"icmp slt i64 {lane}, %lanes") for lane in range(width)]
    whole = f.op(f"sub i64 %count, {f.op(f'urem i64 %count, {width}')}")
    if not read:  # rows that are not there are not written
        whole = f.op(f"select i1 {present[-1]}, i64 {whole}, i64 0")

    def squares(masked: bool) -> Callable[[str, list[str]], None]:
        def square(i: str, _: object) -> None:
            along, left = f.mul(i, code.size), f.op(f"sub i64 %count, {i}")
            start = f.offset("%scratch", f.mul(i, code.step))
            if read:
                mask = code.values.first_lanes(width, left) if masked else None
                vectors = [code.load(f.offset(row, along), 0, mask) for row in rows]
                for n, vector in enumerate(transpose(vectors)):
                    code.put(f.offset(start, n * code.step), vector)
                return
            vectors = transpose([code.load(start, n) for n in range(width)])
            for row, there, vector in zip(rows, present, vectors, strict=True):
                mask = None
                if masked:
                    count = f.op(f"select i1 {there}, i64 {left}, i64 0")
                    mask = code.values.first_lanes(width, count)
                code.store(f.offset(row, along), 0, vector, mask)

        return square

    f.loop(0, whole, width, squares(False))
    f.loop(whole, "%count", width, squares(True))
    f.ret()


def _write_columns(library: Library, kind: str, read: bool) -> None:
    code = _begin(library, f"{'read' if read else 'write'}_columns_{kind}")
    f, parts = code.f, 2 if kind == "complex" else 1

    def rows(masks: Sequence[Vec | None]) -> None:
        def row(j: str, _: object) -> None:
            at = f.offset("%memory", f.mul(j, "%row"))
            to = f.offset("%scratch", f.mul(j, parts * code.step))
            source = at if read else to
            vectors = [code.load(source, n, masks[n] if read else None) for n in range(parts)]
            if parts == 2:
                vectors = apart(vectors) if read else together(vectors)
            for n, vector in enumerate(vectors):
                code.store(to if read else at, n, vector, None if read else masks[n])

        f.loop(0, "%count", 1, row)

    numbers = f.mul("%lanes", parts)
    full = f.op(f"icmp sge i64 {numbers}, {parts * code.width}")
    lefts = [f.most(f.add(numbers, -n * code.width), 0) for n in range(parts)]
    masks = [code.values.first_lanes(code.width, left) for left in lefts]
    f.when(full, lambda: rows([None] * parts))
    f.when(f.op(f"xor i1 {full}, true"), lambda: rows(masks))
    f.ret()


def apart(vectors: Sequence[Vec]) -> list[Vec]:
    """Pairs of numbers in two vectors: all first ones, all second ones."""
    first, second = vectors
    lanes = range(first.width)
    return [first.shuffle([2 * i + part for i in lanes], second) for part in range(2)]


def together(vectors: Sequence[Vec]) -> list[Vec]:
    """The inverse."""
    first, second = vectors
    width = first.width
    mixed = [i // 2 + i % 2 * width for i in range(2 * width)]
    return [first.shuffle(mixed[:width], second), first.shuffle(mixed[width:], second)]
