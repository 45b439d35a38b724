"""What attention's two kernels share: small matrix products.

A grid point works through blocks of query rows. A block's scores lie in this thread's scratch,
one row of `pitch` elements per query; they never reach memory that other cores see. Products use
the micro-kernels of matrix multiplication.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.operands import Operands, Packed, Place, round_up
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.contract.micro_kernel import PARAMS, MicroKernel, emit_micro_kernel
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import Kernel
from fxad.ir.orders import ATTENTION_DEPTH


class Products(Operands):
    """A function under construction that multiplies matrices."""

    ahead = 0  # rows of a right operand in place that are asked for before they are read

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        super().__init__(kernel, stage, name, target)
        self.micro_kernels: dict[MicroKernel, str] = {}

    def scores(
        self, a: Place, depth: int, packed: str, to: str, rows: tuple[str, str], low: str, high: str
    ) -> None:
        """to[i, j] = sum over c of a[i, c] * packed[j, c] for keys low ... high, where a tile has
        pairs that are visible.

        rows: (the first, their number).
        """
        f = self.f
        piece = -(-depth // max(1, -(-depth // ATTENTION_DEPTH)))

        def panel(number: str, columns: int) -> None:
            columns = round_up(columns, self.lanes.width)
            b = f.offset(packed, f.mul(number, self.panel * depth * self.size))
            key = f.mul(number, self.panel)
            c = f.offset(to, f.mul(key, self.size))
            parts = self.diagonal_parts(key, columns, *rows)
            for start in range(0, max(1, depth), max(1, piece)):
                here = f.offset(b, start * columns * self.size)
                for visible, low, high in parts:

                    def block(
                        height: int,
                        row: str,
                        start: int = start,
                        here: str = here,
                        visible: int = visible,
                    ) -> None:
                        tile = self.micro_kernel(height, visible, (a.row, 1), columns, self.pitch)
                        c_at = f.offset(c, f.mul(row, self.pitch * self.size))
                        steps, more = str(min(piece, depth - start)), str(int(start > 0))
                        self.call_micro_kernel(
                            tile, steps, self.at(a, row, start), here, c_at, more, "null"
                        )

                    left = self.queries % self.height if visible == columns else 0
                    self.each_block((low, high, rows[1]), left, self.height, block)

        self.each_panel(low, high, panel)

    def diagonal_parts(
        self, key: str, columns: int, first: str, rows: str
    ) -> list[tuple[int, str, str]]:
        """(columns, low, high): tiles of rows low ... high - 1 see so many columns of a panel.

        One part, but where queries do not see what is after them: their first tiles see a few
        vectors of keys.
        """
        f, width = self.f, self.lanes.width
        low, high = self.rows_that_see(key, self.panel, first, rows)
        if not self.stage.upper.coefficient(self.stage.rows):
            return [(columns, low, high)]
        starts = [low]
        for ahead in range(width, columns, width):
            start, _ = self.rows_that_see(f.add(key, ahead), self.panel, first, rows)
            starts.append(f.mul(f.op(f"udiv i64 {start}, {self.height}"), self.height))
        counts = range(width, columns + 1, width)
        return list(zip(counts, starts, [*starts[1:], high], strict=True))

    def product(
        self,
        rows: tuple[str, int],
        a: Place,
        b: Packed,
        c: Place,
        bounds: Callable[[str, int], tuple[str, str]],
        more: str,
        padded: bool = False,
    ) -> None:
        """c = a b (c += a b where `more` is 1): rows x depth times depth x columns.

        rows: (their number, the number of all such rows there are). bounds(first row, rows of the
        tile): the steps (from, how many) beyond which all of a is 0. padded: c has room for whole
        vectors.
        """
        f = self.f
        for start, wide, here in b.columns.groups:

            def block(
                height: int, row: str, start: int = start, wide: int = wide, here: int = here
            ) -> None:
                low, depth = bounds(row, height)
                stored = wide if padded else here
                copied = b.pitch is None
                stride = wide if b.pitch is None else b.pitch
                tile = self.micro_kernel(height, stored, (a.row, a.column), stride, c.row, copied)
                a_at = f.offset(self.at(a, row), f.mul(low, a.column * self.size))
                b_at = self.group_at(b, start, wide, low)
                self.call_micro_kernel(
                    tile, depth, a_at, b_at, self.at(c, row, start), more, b.following
                )

            left = rows[1] % b.columns.height
            self.each_block(("0", rows[0], rows[0]), left, b.columns.height, block)

    def each_block(
        self, rows: tuple[str, str, str], left: int, height: int, body: Callable[[int, str], None]
    ) -> None:
        """body(height, first row) for whole tiles of rows, then for the `left` ones, if any.

        rows: (low, high, number of rows): tiles with rows low ... high - 1 of all.
        """
        f = self.f
        low, high, count = rows
        whole = f.mul(f.op(f"udiv i64 {count}, {height}"), height)
        first = f.mul(f.op(f"udiv i64 {low}, {height}"), height)
        f.loop(first, f.least(high, whole), height, lambda row, _: body(height, row))
        if left:
            rest = f.op(f"and i1 {f.op(f'icmp slt i64 {whole}, {count}')}, "
                        f"{f.op(f'icmp slt i64 {whole}, {high}')}")  # fmt: skip
            f.when(rest, lambda: body(left, whole))

    def micro_kernel(
        self,
        height: int,
        columns: int,
        a: tuple[int, int],
        b: int,
        c: int,
        aligned: bool = True,
    ) -> MicroKernel:
        return MicroKernel(
            rows=height,
            columns=columns,
            a_row=a[0],
            a_k=a[1],
            b_stride=b,
            c_stride=c,
            b_dtype=self.dtype,
            unroll=self.tuning.unroll,
            packed=aligned,
            packs=False,
            has_rest=True,
            may_be_short=True,
            b_prefetch_steps=0 if aligned else self.ahead,
        )

    def call_micro_kernel(
        self, tile: MicroKernel, depth: str, a: str, b: str, c: str, more: str, following: str
    ) -> None:
        f = self.f
        name = self.micro_kernels.get(tile)
        if name is None:
            name = self.micro_kernels[tile] = f"{self.name}.m{len(self.micro_kernels)}"
            self.helpers[name] = emit_micro_kernel(name, tile, self.lanes)
        if depth.isdigit():
            steps, rest = (str(n) for n in divmod(int(depth), tile.unroll))
        else:
            steps = f.op(f"udiv i64 {depth}, {tile.unroll}")
            rest = f.op(f"urem i64 {depth}, {tile.unroll}")
        values = {"iterations": steps, "rest": rest, "a": a, "b": b, "c": c, "mode": more}
        values["next"] = following
        unused = {"ptr": "null", "i64": "0"}
        listed = ", ".join(f"{t} {values.get(n, unused[t])}" for t, n in PARAMS)
        f.line(f"call void @{name}({listed})")
