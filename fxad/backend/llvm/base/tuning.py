"""Numbers that make code faster or slower on a kind of processor, and never reach a bit.

    tuning = DEFAULT.with_("zen5", gemv={"prefetch_level": 0}, rows={"crosses_pages": True})
    Target("avx512", frozenset(), tuning=tuning).tuning.gemv.level

What bits depend on is in `ir/orders.py`. Here each number stands with others that it may be (a test
draws all of them at random and demands the same bits) and with the machine and day it was measured
on. `kinds.py` says which kind of processor takes which record.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, dataclass_transform

from fxad.core.record import replace, valued

T = TypeVar("T")
C = TypeVar("C")

ZEN3 = "Zen 3, 2026-11-28"
ZEN4 = "Zen 4, 2026-11-23"
ZEN5 = "Zen 5, 2026-11-21 to 23"
ZEN5_FIRST = "Zen 5, 2026-11-21"
XEON = "Emerald Rapids, 2026-11-22"
XEON_FIRST = "Emerald Rapids, 2026-11-21"
BOTH = f"{ZEN5}; {XEON}"
XEON_TILES = "Emerald Rapids, 2026-11-24"


class _Number:
    def __init__(self, value: Any, others: tuple[Any, ...], on: str) -> None:
        self.value, self.others, self.on = value, others, on


def number(value: T, *others: T, on: str) -> T:
    """A number of a table: the value, what else it may be, where and when it was measured."""
    found: Any = _Number(value, others, on)
    return found


_numbers: dict[type, dict[str, _Number]] = {}  # by table and field


@dataclass_transform(frozen_default=True)
def table(cls: type[C]) -> type[C]:
    """A `valued` class whose fields are `number`s."""
    found = {name: held for name, held in vars(cls).items() if isinstance(held, _Number)}
    for name, held in found.items():
        setattr(cls, name, held.value)
    made = valued(cls)
    _numbers[made] = found
    return made


@table
class Gemv:
    """Products of few rows: B is read once, where it lies."""

    # LLVM's locality of a prefetch of B: 3 into every cache, 2 from the second level on, 1 the
    # third, 0 past the second (x86: t0, t1, t2, nta). What is right on one processor halves the
    # speed of another: `nta` gains 4 to 9% on a Zen 5 and takes 2.3 times as long on a Xeon; on a
    # Zen 4 `t1` is 1.1 to 2.3 times as fast as either `t0` or `nta`.
    prefetch_level: int = number(3, 0, 1, 2, on=XEON)
    most_rows: int = number(8, 2, 4, on=XEON)
    # Bytes from a load to what it prefetches in rows that are read next; in the same row of B,
    # where columns are side by side and where k is; past a row's end, in the row that is read next.
    # 0: instead the first of these; tile by tile in the order of memory.
    prefetch_bytes: int = number(8192, 2048, 16384, on=BOTH)
    row_prefetch_bytes: int = number(0, 512, 1024, on="Emerald Rapids, 2026-11-24")
    k_prefetch_bytes: int = number(0, 256, 512, on="Emerald Rapids, 2026-11-24")
    rows_at_once: int = number(8, 2, 4, on=BOTH)  # of B
    # Bytes of a row of B that a unit reads: prefetchers run on beyond the end of short ones (Zen 4,
    # two threads, 2048 x 8192 of bf16: 0.96 of reading with 4096, 1.04 with 16384). As many
    # `units`, one for each core that there is, are worth shorter ones: a core alone is far from
    # what memory gives.
    unit_row_bytes: int = number(4096, 1024, 16384, 1 << 20, on=f"{XEON}; {ZEN4}")
    least_row_bytes: int = number(768, 256, 4096, on=ZEN5)
    units: int = number(8, 1, 2, 4, on=f"{ZEN5}; {ZEN4}")
    most_units: int = number(32, 4, 8, on=XEON)  # of one batch element
    unit_bytes: int = number(1 << 16, 1 << 12, 1 << 20, on=XEON)  # of B in a unit, at least
    # Where B's columns are apart: bytes of a tile of whole columns, of one of parts, and the least
    # lines of a column in a part; with fewer the next tile is prefetched too late.
    tile_bytes: int = number(24 << 10, 4 << 10, 64 << 10, on=ZEN5)
    tile_part_bytes: int = number(16 << 10, 4 << 10, 64 << 10, on=ZEN5)
    tile_part_lines: int = number(8, 2, 4, on=ZEN5)
    # Sums of a column, of different blocks of K, that are added up in turns. A multiply-add takes
    # four cycles, so one chain of vectors of eight lanes reads 8 bytes of float32 a cycle, or 4 of
    # bf16, at best.
    chains: int = number(1, 2, 3, on=ZEN3)
    # Bytes of a B that a second-level cache hardly keeps; packing pays for others, but for so few
    # rows hardly: of all B in a batch, such as a cache of keys, which come from afar, and of each;
    # of a B of shorter elements.
    far_bytes: int = number(1 << 20, 1 << 14, 1 << 24, on=BOTH)
    fewest_rows: int = number(4, 1, 8, on=ZEN5)
    batch_bytes: int = number(1 << 16, 1 << 12, 1 << 24, on=ZEN5)
    element_bytes: int = number(1 << 14, 1 << 10, 1 << 20, on=ZEN5)
    widened_bytes: int = number(1 << 15, 1 << 10, 1 << 20, on=ZEN5)
    bytes_per_ns: float = number(10.0, 1.0, 100.0, on=XEON_FIRST)  # of B that a core reads


@table
class Gemm:
    """Products on vector registers: micro-kernels over packed panels of B."""

    # What a core computes, and work below which a unit is not worth handing to a thread: they say
    # how many units there are. Of dtypes without vectors, nanoseconds of a multiply-add.
    flops_per_ns: float = number(100.0, 10.0, 1000.0, on=ZEN5_FIRST)
    unit_ns: float = number(8000.0, 800.0, 80_000.0, on=ZEN5_FIRST)
    scalar_ns: float = number(1.5, 0.15, 15.0, on=ZEN5_FIRST)
    unroll: int = number(
        4, 2, 8, on=ZEN5_FIRST
    )  # steps of k in an iteration of a micro-kernel's loop
    # Whether the second-level cache gives the first one a panel as fast as products use it: then
    # blocks of K are whole, and no partial sums are spilled.
    panels_in_l2: bool = number(False, True, on=BOTH)
    # Of those: panels that are transposed on their way, too (a Xeon gains 8% on two threads, a Zen
    # 5 loses 2); least rows that share such a panel; most rows of it that one set of that cache has
    # to take, as they lie so far apart (on a Xeon 0.96 of the speed of short blocks with 12, 1.02
    # with 8).
    transposed_in_l2: bool = number(False, True, on=BOTH)
    l2_least_rows: int = number(1, 96, 256, on=ZEN5)
    l2_set_rows: int = number(1 << 10, 2, 8, on=ZEN5)
    l2_set_bytes: int = number(1 << 17, 1 << 14, 1 << 20, on=XEON_TILES)  # between lines of one set
    # Whether a tile prefetches the next one's partial sums, where there are any.
    prefetch_partial_sums: bool = number(True, False, on=BOTH)
    # Rows of a unit: a packed panel serves them all, and their A stays in cache; where packing
    # takes longer, as B is transposed or copied into the second level.
    unit_rows: int = number(192, 96, 384, on=XEON)
    slow_unit_rows: int = number(256, 128, 512, on=ZEN5)
    unit_a_bytes: int = number(1 << 24, 1 << 18, 1 << 20, on=ZEN5)  # of their A, in a block of K
    packed_a_bytes: int = number(1 << 20, 1 << 17, 1 << 22, on=XEON)
    l2_a_bytes: int = number(1 << 20, 1 << 16, 1 << 24, on=XEON)  # of A that no L2 keeps
    l1_panel_bytes: int = number(24 << 10, 8 << 10, 64 << 10, on=XEON)  # of a cache block of B
    l1_b_bytes: int = number(36 << 10, 0, 16 << 10, on=XEON)  # of a whole B in place
    units: int = number(16, 4, 32, on=XEON)  # keep a few threads busy where each packs its A,
    packed_panels: int = number(16, 4, 64, on=XEON)  # which should serve so many panels
    # Of a product of few panels rows are cut as well, up to so many units, while each keeps so many
    # rows: fewer where there are hardly any units yet.
    row_units: int = number(16, 4, 32, on=XEON_FIRST)
    scarce_units: int = number(8, 1, 16, on=XEON_FIRST)
    least_rows: int = number(192, 48, 384, on=XEON_FIRST)
    scarce_rows: int = number(96, 24, 192, on=XEON_FIRST)
    panels_per_a: int = number(8, 1, 16, on=XEON)  # that read a block of a far A
    most_panel_group: int = number(4, 1, 2, on=XEON)  # panels prefetched together
    # Units whose sums are kept for their epilogue in a near cache: rows and columns, and the same
    # of products of many steps of k, where it matters more how often B is read.
    epilogue_unit_rows: int = number(48, 96, on=XEON)
    epilogue_unit_columns: int = number(1536, 384, on=XEON)
    deep_k: int = number(256, 64, 1024, on=XEON)
    deep_unit_rows: int = number(192, 96, on=XEON)
    deep_unit_columns: int = number(768, 384, on=XEON)
    # An epilogue that reads so many bytes runs over the rows of a whole unit, in products of so
    # many rows and columns; an update of moments, which reads several arrays, already with fewer.
    unit_epilogue_bytes: int = number(1 << 22, 1 << 14, 1 << 26, on=XEON)
    unit_epilogue_rows: int = number(64, 16, 256, on=XEON)
    unit_epilogue_columns: int = number(384, 64, 1024, on=XEON)
    update_bytes: int = number(1 << 18, 1 << 12, 1 << 24, on=XEON)
    update_least: int = number(64, 16, 256, on=XEON)
    update_operands: int = number(3, 1, 5, on=XEON)
    # Columns from which on packing A into panels pays: of rows side by side, of rows to transpose;
    # and rows and steps of k.
    a_panel_columns: int = number(384, 64, 4096, on=XEON)
    a_transposed_columns: int = number(1024, 64, 4096, on=XEON)
    a_panel_least: int = number(64, 16, 256, on=XEON)
    # Most sums of a tile that reads pairs of bf16 of A in place. On a Zen 5 such tiles are faster,
    # 161 -> 181% of float32's peak; of more sums LLVM puts some on the stack.
    bf16_dot_sums: int = number(20, 0, 12, on="Zen 5, 2026-11-23")
    streaming_steps: int = number(256, 16, 4096, on=XEON)  # most steps of k that stream results
    few_panels: int = number(8, 1, 64, on=XEON)  # for which prefetching A counts
    # Steps of k between what is read and what is prefetched: of B in place, of B as a tile copies
    # it from afar, of A as it is copied.
    b_prefetch_steps: int = number(16, 4, 32, on=ZEN5)
    pack_b_prefetch_steps: int = number(32, 8, 64, on=ZEN5)
    pack_a_prefetch_steps: int = number(4, 1, 16, on=XEON)
    tile_prefetches: int = number(8, 1, 16, on=ZEN5)  # lines prefetched in a step for the epilogue

    def epilogue_unit(self, depth: int) -> tuple[int, int]:
        """Rows and columns of a unit whose sums are kept for their epilogue."""
        if depth > self.deep_k:
            return self.deep_unit_rows, self.deep_unit_columns
        return self.epilogue_unit_rows, self.epilogue_unit_columns


@table
class Amx:
    """Products of bf16 on AMX."""

    # What a core computes, and work below which a unit is not worth handing to a thread.
    flops_per_ns: float = number(1000.0, 100.0, 10_000.0, on=XEON_FIRST)
    unit_ns: float = number(8000.0, 800.0, 80_000.0, on=XEON_FIRST)
    l1_tiles: int = number(8, 3, 24, on=XEON_TILES)  # of K in an L1 block: 16 KiB of a panel of B
    l2_a_bytes: int = number(1 << 20, 1 << 16, 1 << 23, on=XEON_TILES)  # of an L2 block of few rows
    l2_tiles: int = number(32, 8, 64, on=XEON_TILES)  # of K in one of many rows
    units: int = number(8, 2, 32, on=XEON)  # wanted, so that several threads find work
    # Blocks of rows from which on a unit keeps its columns packed, where those lie along K or where
    # they lie side by side, up to so many bytes of them, for up to so many blocks of rows.
    b_stationary_from: int = number(16, 4, 64, on=XEON_TILES)
    b_stationary_rows_from: int = number(4, 1, 64, on=XEON_TILES)
    l2_b_bytes: int = number(1 << 20, 100 << 10, 1800 << 10, on=XEON_TILES)
    unit_blocks: int = number(32, 8, 64, on=XEON_TILES)
    b_stationary_units: int = number(4, 1, 16, on=XEON_TILES)  # their number is a multiple of it
    tile_prefetches: int = number(48, 8, 96, on=XEON)  # lines in a step, which takes 64 cycles


@table
class Rows:
    """Maps and reductions over rows and long arrays."""

    # Whether the processor by itself reads on beyond the page of a stream in order.
    crosses_pages: bool = number(False, True, on=BOTH)
    # Bytes of results that are written with streaming stores (written, then read by the next
    # kernel: the same time at 8 and 16 MB, 0.84 of it at 32 MB and 0.81 at 64), and of an array
    # that no core's own cache holds.
    streamed: int = number(1 << 25, 1 << 12, 1 << 30, on=XEON)
    far_array: int = number(1 << 22, 1 << 12, 1 << 30, on=XEON)
    # Bytes from what is read to what is prefetched. The processor sees by itself which lines
    # follow, but not beyond a page. SwiGLU's gradient, share of a loop's speed: 0.49 without, 0.71
    # at 512, 0.84 at 2048, 0.75 at 4096, 0.57 at 8192.
    distance: int = number(2048, 512, 4096, on=XEON)
    # Of several arrays what lies farther ahead is prefetched as well, into the second level: from
    # there the first has it in time, whatever memory does. GELU's gradient 0.91 -> 1.02, SwiGLU
    # 0.91 -> 0.94, a sum 1.03 -> 1.11, AdamW 1.00 -> 1.05; 4096 and 16384 bytes alike.
    far: int = number(8192, 4096, 16384, on=XEON)
    # Whether loops are prefetched at `near` alone, rather than in as many pages as a turn reads
    # lines, unless several arrays are read and the result is streamed (Zen 5: exp 0.65 -> 0.79,
    # GELU 0.72 -> 0.74, SwiGLU's gradient would lose, 0.83 -> 0.75; Zen 4: GELU 0.62 -> 0.73).
    near_only: bool = number(False, True, on=f"{BOTH}; {ZEN4}")
    # 3 KB to 6 KB are alike; rows too are prefetched so far ahead.
    near: int = number(4096, 2048, 6144, on=ZEN5)
    # Bytes of the next rows that are prefetched into a near cache, at most.
    next_rows: int = number(1 << 19, 1 << 14, 1 << 22, on=XEON)
    # A pipeline of passes over rows: most passes; bytes of a row from which on few such rows find
    # room in the first-level cache; bytes of that cache (short rows that fit there one by one, but
    # not those of all passes, go pass after pass: layer norm's gradient, 8192 x 2048, 8.2 -> 6.1
    # ms); how often long rows are read again from the second level, at most.
    passes: int = number(6, 2, 3, on=XEON)
    long: int = number(1 << 14, 1 << 11, 1 << 18, on=ZEN5)
    nearest: int = number(48 << 10, 8 << 10, 512 << 10, on=ZEN5)
    rereads: int = number(3, 1, 8, on=ZEN5)
    # Bytes of short rows underway beyond which the next rows crowd that cache: they wait in the
    # second then (layer norm's gradient 0.93 -> 0.97 of its loop), unless the processor crosses
    # pages (softmax's gradient, 8192 x 2048, 4.8 ms so and 4.4 without).
    crowded: int = number(32 << 10, 4 << 10, 512 << 10, on=BOTH)
    # Bytes to what is prefetched into the second level besides, for rows of a single array
    # (cross-entropy 7.9 -> 6.5 ms), and to what is prefetched into the first where the processor
    # crosses pages (layer norm 0.88 -> 0.95, softmax 0.92 -> 0.97).
    farther: int = number(1 << 14, 1 << 12, 1 << 16, on=ZEN5)
    midway: int = number(6144, 2048, 8192, on=ZEN5)
    unit_elements: int = number(16384, 1024, 1 << 17, on=ZEN5)  # inner points of a unit of work


@table
class Attention:
    """Attention's kernels, beside the orders that their blocks are part of."""

    # Pieces of work wanted where one head has several blocks of rows: each copies its keys and
    # values, for about so many queries.
    fewest_units: int = number(8, 2, on=XEON)
    units: int = number(16, 8, 32, on=XEON)
    unit_queries: int = number(768, 96, 4096, on=XEON)
    block_queries: int = number(48, 96, on=XEON)  # queries in a block
    keys_in_place: int = number(128, 0, 1024, on=XEON)  # values read too seldom for a copy to pay
    loads_at_once: int = number(8, 1, 4, on=XEON)  # vectors loaded before any is stored
    pair_loads_at_once: int = number(4, 1, 8, on=XEON)  # the same of pairs of rows, for AMX
    unroll: int = number(4, 2, 8, on=ZEN5_FIRST)  # steps in an iteration of a micro-kernel's loop
    set_bytes: int = number(512, 64, 4096, on=XEON)  # bytes; such pitches share few sets of a cache
    prefetch_rows: int = number(16, 2, 64, on=XEON)  # rows of keys and values, of few queries
    gradient_prefetch_rows: int = number(8, 1, 32, on=XEON)  # rows of a result
    bytes_per_ns: float = number(10.0, 1.0, 100.0, on=ZEN5_FIRST)  # read, of few queries


@table
class Sorts:
    """Which way of sorting a row takes."""

    insertion: int = number(16, 4, on=XEON)  # most elements kept in order by insertion
    chunk: int = number(128, 32, 512, on=XEON)  # elements between two looks at the candidates
    worth: int = number(64, 2, 1024, on=ZEN5)  # elements for each wanted one sooner sorted whole
    spare: int = number(32, 4, 128, on=XEON)  # candidates worth sorting, beyond those wanted
    radix_long: int = number(1 << 13, 1 << 8, 1 << 20, on=XEON)  # elements worth 11-bit digits
    network_least: int = number(14, 4, 100, on=ZEN5)
    network_most: int = number(1024, 128, 512, on=ZEN5)
    network_bytes: int = number(128, 16, 512, on=ZEN5)  # most elements of one byte each


@table
class Loops:
    """How kernels other than products and attention are laid out, and what they cost on a core."""

    # Vectors at a time of a light body (fewer instructions than `light`), so that the loop itself
    # costs little; of one with a function in it as many as registers allow, where that
    # leaves `least_trips` of the loop, unless it has more instructions than `one_function`.
    light: int = number(8, 2, 40, on=ZEN5_FIRST)
    unroll: int = number(4, 1, 2, 8, on=ZEN5_FIRST)
    least_trips: int = number(4, 1, 8, on=f"{ZEN5}; {XEON}")
    one_function: int = number(60, 20, 200, on=f"{ZEN5}; {XEON}")
    inner_block: int = number(64, 16, 256, on=ZEN5_FIRST)  # positions of an axis walked in squares
    tile_width: int = number(16, 4, 8, on=ZEN5_FIRST)  # of squares transposed in registers, at most
    # Positions of a reduction of any elements that are done one by one, see `schedule._few`.
    few: int = number(4, 1, 8, on=ZEN5_FIRST)
    # Rough nanoseconds of an instruction, of an access to memory (80 GB/s) and of a gather: they
    # say what is worth a thread.
    instruction_ns: float = number(0.05, 0.005, 0.5, on=ZEN5_FIRST)
    access_ns: float = number(0.05, 0.005, 0.5, on=ZEN5_FIRST)
    gather_ns: float = number(0.5, 0.05, 5.0, on=ZEN5_FIRST)


@table
class Sequences:
    """Which loops of small kernels become one function, and how those are written in it."""

    trips: int = number(16, 2, 1 << 20, on=ZEN5_FIRST)  # from which on it pays
    steps: int = number(96, 4, 400, on=ZEN5_FIRST)  # of a body, at most
    points: int = number(1024, 16, 1 << 14, on=ZEN5_FIRST)  # of a kernel
    products: int = number(4096, 64, 1 << 15, on=ZEN5_FIRST)  # multiplications of a matrix product
    block: int = number(
        2048, 64, 8192, on=ZEN5_FIRST
    )  # bytes that are copied to the stack together
    # What is written out in scalars: points and about how many instructions of a kernel,
    # multiplications of a matrix product.
    written_points: int = number(16, 1, 64, on=ZEN5_FIRST)
    written_instructions: int = number(1000, 50, 4000, on=ZEN5_FIRST)
    written_products: int = number(128, 1, 1000, on=ZEN5_FIRST)
    # Products written out a row at a time: most loads and multiply-adds, most columns of the
    # vector of a row, and nanoseconds of a row.
    row_operations: int = number(256, 16, 1024, on=XEON_FIRST)
    row_columns: int = number(16, 1, 8, on=XEON_FIRST)
    row_ns: float = number(5.0, 0.5, 50.0, on=XEON_FIRST)


@table
class Threads:
    """What is worth handing to threads."""

    parallel_ns: int = number(4000, 0, 1 << 30, on=ZEN5_FIRST)  # of a kernel, at least
    copy_ns: int = number(8000, 800, 80_000, on=ZEN5_FIRST)  # of one block of the copy kernel


TABLES: dict[str, Any] = {
    "gemv": Gemv,
    "gemm": Gemm,
    "amx": Amx,
    "rows": Rows,
    "attention": Attention,
    "sorts": Sorts,
    "loops": Loops,
    "sequences": Sequences,
    "threads": Threads,
}


def permitted(table: str, field: str) -> tuple[Any, ...]:
    """What a number may be. Raises KeyError for one that there is not."""
    held = _numbers[TABLES[table]][field]
    return held.value, *held.others


class Tuning:
    """A record of all tables; equal ones hash alike, whatever they are called.

    cpu: LLVM's name of the processor whose latencies instructions are ordered by ("" for the
    instruction set's own); it never decides which instructions there are.
    """

    __slots__ = ("_digest", "cpu", "name", *TABLES)

    gemv: Gemv
    gemm: Gemm
    amx: Amx
    rows: Rows
    attention: Attention
    sorts: Sorts
    loops: Loops
    sequences: Sequences
    threads: Threads

    def __init__(self, name: str, cpu: str = "", **tables: Any) -> None:
        self.name, self.cpu = name, cpu
        for key, made in TABLES.items():
            setattr(self, key, tables.pop(key, None) or made())
        if tables:
            raise TypeError(f"no table of tuning is called {', '.join(tables)}")
        held = (cpu, *(getattr(self, key) for key in TABLES))
        self._digest = hashlib.sha256(repr(held).encode()).hexdigest()[:16]

    @property
    def digest(self) -> str:
        """A name of all numbers, for keys of caches."""
        return self._digest

    def with_(self, name: str, cpu: str | None = None, **changes: Mapping[str, Any]) -> Tuning:
        """Some numbers changed, by table. Raises TypeError for one that there is not."""
        held = {key: replace(getattr(self, key), **changes.pop(key, {})) for key in TABLES}
        return Tuning(name, self.cpu if cpu is None else cpu, **held, **changes)

    def items(self) -> Iterator[tuple[str, Any, str]]:
        """("gemv.prefetch_level", its value, where and when it was measured) of every number.

        A number that differs from the default's was measured on the kind this record is of.
        """
        for key, made in TABLES.items():
            for field, held in _numbers[made].items():
                value = getattr(getattr(self, key), field)
                yield f"{key}.{field}", value, held.on if value == held.value else self.name

    def drawn(self, rng: random.Random) -> Tuning:
        """A record that has another value, or this one, for every number at random."""
        changes = {
            key: {f: rng.choice([n.value, *n.others]) for f, n in _numbers[made].items()}
            for key, made in TABLES.items()
        }
        made = {key: replace(getattr(self, key), **found) for key, found in changes.items()}
        return Tuning("drawn", self.cpu, **made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tuning) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Tuning({self.name!r}, digest={self._digest!r})"


DEFAULT = Tuning("default")
