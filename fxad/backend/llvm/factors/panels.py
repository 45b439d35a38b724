"""Some rows of a triangular system at a time, for some columns: the functions that all others call.

    x[i] = (b[i] - sum(c[i, p] * x[p] for p in range(i))) / c[i, i]

Four rows are computed at a time, so that a row of x is read once for all of them; sums run over p
in order, with fused multiply-adds, whatever the number of threads.

    panels = write_panels(library)
    call_panel(code, panels, 4, 2, arguments)         # four rows, two vectors of columns
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Vec, fma, type_of
from fxad.backend.llvm.factors.code import Code, Library
from fxad.core.record import record

ROWS = 4  # most rows at a time
_PARAMS = (
    ("ptr", "c"),  # coefficients of the first row
    ("i64", "down"),  # bytes to the next row's
    ("i64", "along"),  # bytes to the next coefficient of a row
    ("ptr", "b"),  # the first row of the right side
    ("ptr", "x"),  # row 0 of the result
    ("i64", "row"),  # bytes between rows of b and x
    ("i64", "done"),  # rows of x that are there
    ("i64", "count"),  # lanes of a panel of one vector
    ("i1", "unit"),  # whether the diagonal is ones
    (None, "nan"),  # -0.0, or NaN to make everything NaN
)


def panel_vectors(target: Target) -> int:
    """Vectors of a panel of columns."""
    return 4 if target.registers >= 32 else 2


@record
class Panels:
    """The functions: names by (rows, vectors, whether the columns hold the diagonal of a factor);
    most rows and vectors of one."""

    rows: int
    vectors: int
    names: dict[tuple[int, int, bool], str]


def write_panels(library: Library) -> Panels:
    """All that are called for a dtype."""
    rows, vectors = min(ROWS, library.width), panel_vectors(library.target)
    shapes = [
        (height, count, pivot)
        for height in dict.fromkeys((rows, 1))
        for count, pivot in ((vectors, False), (1, False), (1, True))
    ]
    names = {shape: _write_panel(library, *shape) for shape in shapes}
    return Panels(rows, vectors, names)


def call_panel(
    code: Code, panels: Panels, rows: int, count: int, args: Sequence[str], pivot: bool = False
) -> None:
    """Compute some rows of a panel of `count` vectors. args: see _PARAMS."""
    types = [kind or code.kind for kind, _ in _PARAMS]
    listed = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
    code.f.line(f"call void @{panels.names[rows, count, pivot]}({listed})")


def _write_panel(library: Library, rows: int, count: int, pivot: bool) -> str:
    """The function that computes some rows of a panel of `count` vectors, the last of which has
    `%count` lanes if it is alone. pivot: these columns hold the diagonal of a factor."""
    name = f"fx_panel_{library.dtype.name}_{rows}_{count}{'_pivot' if pivot else ''}"
    params = [(kind or library.kind, label) for kind, label in _PARAMS]
    code = library.function(name, params, "internal")
    f = code.f
    mask = code.values.first_lanes(code.width, "%count") if count == 1 else None
    nan = code.number("%nan")
    below = [f.mul(r, "%down") for r in range(rows)]
    starts = [f.offset("%b", f.mul(r, "%row")) for r in range(rows)]
    sums = [[code.load(at, v, mask) + nan for v in range(count)] for at in starts]

    def step(_: str, values: list[str]) -> list[str]:
        c, x, *rest = values
        read = [code.load(x, v, mask) for v in range(count)]
        following = []
        for r in range(rows):
            factor = -code.scalar(f.offset(c, below[r])).splat(code.width)
            for v in range(count):
                total = code.vector(rest[r * count + v])
                following.append(fma(factor, read[v], total).text)
        return [f.offset(c, "%along"), f.offset(x, "%row"), *following]

    vector = type_of(code.kind, code.width)
    carried = [("ptr", "%c"), ("ptr", "%x")]
    carried += [(vector, s.text) for row in sums for s in row]
    c, x, *found = f.loop(0, "%done", 1, step, carried)
    for i, text in enumerate(found):
        sums[i // count][i % count] = code.vector(text)
    corner = [
        [f.offset(f.offset(c, below[r]), f.mul(s, "%along")) for s in range(r + 1)]
        for r in range(rows)
    ]
    for r in range(rows):
        sums[r] = _finished_row(code, sums, r, corner[r], pivot)
        at = f.offset(x, f.mul(r, "%row"))
        for v in range(count):
            code.store(at, v, sums[r][v], mask)
    f.ret()
    return name


def _finished_row(
    code: Code, sums: list[list[Vec]], r: int, corner: list[str], pivot: bool
) -> list[Vec]:
    """Row r: what the rows above it among these add is subtracted, and it is divided."""
    row = sums[r]
    for s in range(r):
        factor = sums[s][0].lane(r) if pivot else code.scalar(corner[s])
        row = [fma(-factor.splat(code.width), x, y) for x, y in zip(sums[s], row, strict=True)]
    if pivot:
        size = row[0].lane(r)
        root = (size > 0.0).where(size.sqrt(), size.like(float("nan")))
        return [(row[0] / root).with_lane(r, root)]
    size = code.scalar(corner[r])
    size = code.flag("%unit").where(size.like(1.0), size)
    return [y / size for y in row]


# ---------------------------------------------------------------- which rows and columns


def each_rows(
    code: Code, panels: Panels, n: str, body: Callable[[str, int], None], first: str = "0"
) -> None:
    """body(first row, how many) for rows from `first` on, a few at a time, then one by one."""
    f = code.f
    left = f.op(f"sub i64 {n}, {first}")
    whole = f.op(f"sub i64 {n}, {f.op(f'srem i64 {left}, {panels.rows}')}")
    f.loop(first, whole, panels.rows, lambda i, _: body(i, panels.rows))
    f.loop(whole, n, 1, lambda i, _: body(i, 1))


def each_columns(
    code: Code,
    panels: Panels,
    end: str,
    body: Callable[[str, int, str], None],
    first: str = "0",
) -> None:
    """body(column, vectors, lanes): columns from `first` to `end`, in whole panels, then vector by
    vector."""
    f, columns = code.f, panels.vectors * code.width
    left = f.op(f"sub i64 {end}, {first}")
    rest = f.op(f"sub i64 {end}, {f.op(f'srem i64 {left}, {columns}')}")
    f.loop(first, rest, columns, lambda column, _: body(column, panels.vectors, "0"))

    def single(column: str, _: object) -> None:
        body(column, 1, f.least(f.op(f"sub i64 {end}, {column}"), code.width))

    f.loop(rest, end, code.width, single)
