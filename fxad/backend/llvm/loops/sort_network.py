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

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.elements.scope import Scope
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_keys import Keys, load_integers, ordered
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


def sort_by_network(scope: Scope, keys: Keys, order: str) -> None:
    """Write the positions (i32) in order of the only key, up to a whole vector."""
    code, f = scope.code, scope.f
    count = -(-keys.extent // LANES)
    if count <= BLOCK:
        vectors = _sorted([_numbers(scope, keys, LANES * i) for i in range(count)])
        for i, vector in enumerate(vectors):
            _put(order, 4 * LANES * i, vector.convert("trunc", "i32"))
        return
    table = _table(scope, keys, count)

    def put(i: str, _: Texts) -> None:
        narrow = _get(code, table, i).convert("trunc", "i32")
        _put(order, f.mul(i, 4 * LANES), narrow)

    f.loop(0, count, 1, put)


# ---------------------------------------------------------------- numbers in memory


def _get(code: Code, table: str, number: str) -> Vec:
    """The vector of this number."""
    f = code.function
    place = f.offset(table, f.mul(number, BYTES))
    return code.op("i64", LANES, f"load <{LANES} x i64>, ptr {place}, align {BYTES}")


def _put(array: str, offset: str | int, value: Vec) -> None:
    """Store a vector so many bytes from an array's beginning."""
    f, align = value.code.function, value.width * (4 if value.kind == "i32" else 8)
    place = f.offset(array, offset)
    f.line(f"store {value.type} {value.text}, ptr {place}, align {align}")


def _numbers(scope: Scope, keys: Keys, start: str | int) -> Vec:
    """A vector of keys above their positions; past the end the largest number."""
    code, (column,) = scope.code, keys.columns
    bits = load_integers(scope, column.address, column.size, start, LANES)
    key = ordered(bits, column.dtype, keys.descending)
    wide = key.convert("zext", "i64") << 32
    first = Vec(code, "i64", 1, str(start)).splat(LANES)
    positions = code.iota("i64", LANES) + first
    return positions.compare("ult", keys.extent).where(wide | positions, -1)


def _table(scope: Scope, keys: Keys, count: int) -> str:
    """All numbers, `count` vectors of them, sorted, in scratch."""
    code, f, merges = scope.code, scope.f, (-(-count // BLOCK) - 1).bit_length()
    most = BLOCK << merges
    table = scope.context.scratch.take(most * BYTES)
    f.loop(0, count, 1, lambda i, _: _put(
        table, f.mul(i, BYTES), _numbers(scope, keys, f.mul(i, LANES))))  # fmt: skip
    last = code.const("i64", -1, LANES)
    f.loop(count, most, 1, lambda i, _: _put(table, f.mul(i, BYTES), last))
    _each_block(code, table, most, _sorted)

    def merge(number: str, _: Texts) -> None:
        _merge_blocks(code, table, most // 2, number)
        _each_block(code, table, most, lambda vectors: _halved(vectors, BLOCK // 2 * LANES))

    f.loop(0, merges, 1, merge)
    return table


def _each_block(
    code: Code, table: str, most: int, change: Callable[[list[Vec]], list[Vec]]
) -> None:
    """Change every block of a table of `most` vectors, in registers."""
    f = code.function

    def block(start: str, _: Texts) -> None:
        places = [f.add(start, i) for i in range(BLOCK)]
        vectors = change([_get(code, table, i) for i in places])
        for i, vector in zip(places, vectors, strict=True):
            _put(table, f.mul(i, BYTES), vector)

    f.loop(0, most, BLOCK, block)


def _merge_blocks(code: Code, table: str, pairs: int, number: str) -> None:
    """Exchanges of the merge of this number between vectors of different blocks."""
    f = code.function
    half = f.op(f"shl i64 {BLOCK}, {number}")  # vectors of a run

    def of_runs(first: str, within: str) -> str:
        last = f.add(first, f.add(f.mul(half, 2), -1))
        return f.op(f"sub i64 {last}, {within}")

    _exchange_pairs(code, table, pairs, half, of_runs, backwards=True)

    def step(j: str, _: Texts) -> None:
        far = f.op(f"lshr i64 {half}, {f.add(j, 1)}")
        _exchange_pairs(
            code, table, pairs, far, lambda first, within: f.add(f.add(first, within), far)
        )

    f.loop(0, number, 1, step)


def _exchange_pairs(
    code: Code,
    table: str,
    pairs: int,
    far: str,
    partner: Callable[[str, str], str],
    backwards: bool = False,
) -> None:
    """Exchange the vectors of the lower `far` of every 2 * `far` with their partners."""
    f = code.function
    mask = f.add(far, -1)

    def pair(number: str, _: Texts) -> None:
        within = f.op(f"and i64 {number}, {mask}")
        first = f.mul(f.op(f"sub i64 {number}, {within}"), 2)
        low, high = f.add(first, within), partner(first, within)
        a, b = _get(code, table, low), _get(code, table, high)
        b = b.shuffle(range(LANES - 1, -1, -1)) if backwards else b
        _put(table, f.mul(low, BYTES), _least(a, b))
        _put(table, f.mul(high, BYTES), _most(a, b))

    f.loop(0, pairs, 1, pair)


# ---------------------------------------------------------------- in registers


def _sorted(vectors: list[Vec]) -> list[Vec]:
    """The numbers of some vectors in order."""
    size = 2
    while size < 2 * LANES * len(vectors):
        vectors = _halved(_exchanged(vectors, size - 1), size // 4)
        size *= 2
    return vectors


def _halved(vectors: list[Vec], distance: int) -> list[Vec]:
    """After the rest of a merge, from exchanges of numbers so far apart on."""
    while distance:
        vectors = _exchanged(vectors, distance)
        distance //= 2
    return vectors


def _exchanged(vectors: list[Vec], other: int) -> list[Vec]:
    """Numbers i and i ^ other exchanged so that the less comes first; the numbers of vectors that
    are not there are larger than all.

    Of two vectors, one of which is reversed, what is larger stays so: each vector is then merged
    within itself, whatever the direction.
    """
    far, near = divmod(other, LANES)
    partners = [lane ^ near for lane in range(LANES)]
    first = vectors[0].code.consts("i1", [lane < partners[lane] for lane in range(LANES)])
    exchanged = list(vectors)
    for i, vector in enumerate(vectors):
        if not far:
            turned = vector.shuffle(partners)
            exchanged[i] = first.where(_least(vector, turned), _most(vector, turned))
        elif i < i ^ far < len(vectors):
            turned = vectors[i ^ far].shuffle(partners) if near else vectors[i ^ far]
            exchanged[i], exchanged[i ^ far] = _least(vector, turned), _most(vector, turned)
    return exchanged


def _least(a: Vec, b: Vec) -> Vec:
    return a.code.intrinsic("umin", a, b)


def _most(a: Vec, b: Vec) -> Vec:
    return a.code.intrinsic("umax", a, b)
