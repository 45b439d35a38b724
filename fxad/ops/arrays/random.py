"""Counter-based random bits: the Threefry-2x32 generator of Salmon et al. 2011.

    key = np.array([0, 42], np.uint32)
    random_bits(key, shape=(3,), dtype=np.dtype("uint32"))    # u32[3]

A key is u32[2]; leading axes make many keys. Element i of what a key gives depends on the key and
on i alone (JAX's "partitionable" form, whose bits these are), so any part can be computed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import INDEX, Cast, Const, Expr, Index, IndexValue, Prim
from fxad.ir.loops import Indexed, Point
from fxad.ops.arrays.slicing import Shape, sized
from fxad.ops.base import Primitive, case, define, fails, spread
from fxad.trace.array import words_of_keys

if TYPE_CHECKING:
    from fxad.ir.rules import Value, Values
    from fxad.trace.array import Array

WIDTHS = (dt.uint8, dt.uint16, dt.uint32, dt.uint64)
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
U32 = dt.uint32
Word = TypeVar("Word")  # u32 arrays in references, expressions in loop bodies


def threefry(
    key: tuple[Word, Word],
    counter: tuple[Word, Word],
    number: Callable[[int], Word],
    op: Callable[[str, Word, Word], Word],
) -> tuple[Word, Word]:
    """Encrypt a counter with a key: 20 rounds. `op` computes add, xor, or, shl, shr_logical."""
    keys = (*key, op("xor", op("xor", *key), number(PARITY)))
    x, y = op("add", counter[0], keys[0]), op("add", counter[1], keys[1])
    for block in range(5):
        for bits in ROTATIONS[block % 2]:
            x = op("add", x, y)
            left = op("shl", y, number(bits))
            right = op("shr_logical", y, number(32 - bits))
            y = op("xor", op("or", left, right), x)
        x = op("add", x, keys[(block + 1) % 3])
        y = op("add", op("add", y, keys[(block + 2) % 3]), number(block + 1))
    return x, y


# ---------------------------------------------------------------- both forms of a word

_WORD: Callable[[int], Any] = np.uint32  # a scalar, which ufuncs take for an array
_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "xor": np.bitwise_xor,
    "or": np.bitwise_or,
    "shl": np.left_shift,
    "shr_logical": np.right_shift,
}


def _on_arrays(key: np.ndarray, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encrypt counters whose axes follow the key's leading axes."""
    spare = (1,) * high.ndim
    words = tuple(key[..., i].reshape(key.shape[:-1] + spare) for i in (0, 1))
    first, second = threefry(
        (words[0], words[1]), (high, low), _WORD, lambda name, a, b: _UFUNCS[name](a, b)
    )
    return np.asarray(first), np.asarray(second)


def _on_exprs(key: tuple[Expr, Expr], high: Expr, low: Expr) -> tuple[Expr, Expr]:
    return threefry(key, (high, low), _const, lambda name, a, b: Prim(name, (a, b), U32))


def _const(value: int) -> Expr:
    return Const(value, U32)


def _counters(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Upper and lower half of every element's row-major position."""
    position = np.arange(math.prod(shape), dtype=dt.uint64).reshape(shape)
    return (position >> np.uint64(32)).astype(U32), position.astype(U32)


def _counter_exprs(point: Point, shape: Shape) -> tuple[Expr, Expr]:
    flat = Index()
    for index, size in zip(point, shape, strict=True):
        flat = flat * size + index
    position = IndexValue(flat, INDEX)
    if math.prod(shape) <= 2**32:
        return _const(0), Cast(position, U32)
    high = Prim("shr_logical", (position, Const(32, INDEX)), INDEX)
    return Cast(high, U32), Cast(position, U32)


def _read_key(read: Callable[..., Expr], lead: Point) -> tuple[Expr, Expr]:
    return read(0, (*lead, Index(0))), read(0, (*lead, Index(1)))


def _pick(place: Index, words: tuple[Expr, Expr]) -> Expr:
    """The word of a key at a place, 0 or 1."""
    second = Prim("ne", (IndexValue(place, INDEX), Const(0, INDEX)), dt.bool_)
    return Prim("select", (second, words[1], words[0]), U32)


def _check_key(name: str, key: ArrayType) -> None:
    if key.dtype != U32 or key.shape[-1:] != (2,):
        raise TypeMismatch(
            f"{name}: a key is u32[2] (or u32[..., 2]), got {key}; make one from a seed"
        )


def _drawing(name: str, **rules: Any) -> Primitive[Array]:
    """An op on a key; more keys give more leading axes, which is its batch rule too."""

    def batch(size: int, batched: Sequence[bool], args: Values, **params: Any) -> Value:
        full = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
        return op(*full, **params)

    op = define(name, batch=batch, exact=True, dtypes="int", **rules)
    return op


# ---------------------------------------------------------------- random_bits


def _bits_type(key: ArrayType, *, shape: Shape, dtype: np.dtype) -> ArrayType:
    _check_key("random_bits", key)
    if dtype not in WIDTHS:
        raise TypeMismatch(f"random_bits: dtype must be u8, u16, u32 or u64, got {dtype}")
    return sized("random_bits", dtype, (*key.shape[:-1], *shape))


def _bits_reference(key: np.ndarray, *, shape: Shape, dtype: np.dtype) -> np.ndarray:
    first, second = _on_arrays(key, *_counters(shape))
    if dtype == dt.uint64:
        return (first.astype(dtype) << np.uint64(32)) | second
    return (first ^ second).astype(dtype)


def _bits_loops(types: Sequence[ArrayType], *, shape: Shape, dtype: np.dtype) -> Indexed:
    lead = types[0].ndim - 1

    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        key = _read_key(read, point[:lead])
        first, second = _on_exprs(key, *_counter_exprs(point[lead:], shape))
        if dtype == dt.uint64:
            high = Prim("shl", (Cast(first, dtype), Const(32, dtype)), dtype)
            return Prim("or", (high, Cast(second, dtype)), dtype)
        bits = Prim("xor", (first, second), U32)
        return bits if dtype == U32 else Cast(bits, dtype)

    return Indexed(value)


random_bits = _drawing(
    "random_bits",
    doc="Uniform random bits: an unsigned integer per element of `shape`.",
    type=_bits_type,
    numpy=_bits_reference,
    loops=_bits_loops,
    samples=lambda r: [
        *(case(r.u32(2), shape=(3, 4), dtype=dtype) for dtype in WIDTHS),
        case(r.u32(2), shape=(), dtype=U32),
        case(r.u32(2), shape=(0,), dtype=U32),
        case(r.u32(2, 2), shape=(5,), dtype=U32),
        fails(r.u32(3), shape=(2,), dtype=U32, saying="a key is u32[2]"),
        fails(r.i32(2), shape=(2,), dtype=U32, saying="a key is u32[2]"),
        fails(r.u32(2), shape=(2,), dtype=dt.int32, saying="must be u8"),
    ],
)

# ---------------------------------------------------------------- random_split, random_fold


def _split_type(key: ArrayType, *, n: int) -> ArrayType:
    _check_key("random_split", key)
    return sized("random_split", U32, (*key.shape[:-1], n, 2))


def _split_loops(types: Sequence[ArrayType], *, n: int) -> Indexed:
    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        key = _read_key(read, point[:-2])
        return _pick(point[-1], _on_exprs(key, *_counter_exprs(point[-2:-1], (n,))))

    return Indexed(value)


random_split = _drawing(
    "random_split",
    doc="n keys made from one; do not use the old one again.",
    type=_split_type,
    numpy=lambda key, *, n: np.stack(_on_arrays(key, *_counters((n,))), axis=-1),
    loops=_split_loops,
    samples=lambda r: [
        case(r.u32(2), n=2),
        case(r.u32(3, 2), n=5),
        case(r.u32(2), n=0),
        fails(r.u32(2, 3), n=2, saying="a key is u32[2]"),
        fails(r.u32(2), n=-1, saying="negative length"),
    ],
)


def _fold_type(key: ArrayType, data: ArrayType) -> ArrayType:
    _check_key("random_fold", key)
    if data.dtype != U32:
        raise TypeMismatch(f"random_fold: data must be u32, got {data}; convert it")
    if data.shape != key.shape[:-1]:
        raise ShapeError(f"random_fold: data {data} needs one number per key of {key}")
    return key


def _fold_reference(key: np.ndarray, data: np.ndarray) -> np.ndarray:
    words = threefry(
        (key[..., 0], key[..., 1]),
        (np.zeros_like(data), data),
        _WORD,
        lambda name, a, b: _UFUNCS[name](a, b),
    )
    return np.stack(words, axis=-1)


def _fold_loops(types: Sequence[ArrayType]) -> Indexed:
    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        key, data = _read_key(read, point[:-1]), read(1, point[:-1])
        return _pick(point[-1], _on_exprs(key, _const(0), data))

    return Indexed(value)


random_fold = _drawing(
    "random_fold",
    doc="A key made from a key and a number.",
    type=_fold_type,
    numpy=_fold_reference,
    loops=_fold_loops,
    samples=lambda r: [
        case(r.u32(2), r.u32()),
        case(r.u32(3, 2), r.u32(3)),
        fails(r.u32(2), r.i32(), saying="data must be u32"),
        fails(r.u32(3, 2), r.u32(2), saying="one number per key"),
    ],
)


# ---------------------------------------------------------------- typed keys


def _wrap_type(words: ArrayType) -> ArrayType:
    _check_key("random_wrap", words)
    return ArrayType(dt.key, words.shape[:-1])


def _wrap_loops(types: Sequence[ArrayType]) -> Indexed:
    wide = dt.uint64

    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        low, high = (Cast(word, wide) for word in _read_key(read, point))
        return Prim("or", (Prim("shl", (high, Const(32, wide)), wide), low), wide)

    return Indexed(value)


random_wrap: Primitive[Array] = define(
    "random_wrap",
    doc="The typed keys of words u32[..., 2].",
    type=_wrap_type,
    numpy=lambda words: np.ascontiguousarray(words).view(dt.uint64).view(dt.key)[..., 0],
    batch=lambda size, batched, args: random_wrap(*args),
    loops=_wrap_loops,
    exact=True,
    dtypes="int",
)


def _unwrap_type(keys: ArrayType) -> ArrayType:
    if keys.dtype != dt.key:
        raise TypeMismatch(f"random_unwrap: takes typed keys, not {keys}")
    return ArrayType(U32, (*keys.shape, 2))


def _unwrap_loops(types: Sequence[ArrayType]) -> Indexed:
    wide = dt.uint64

    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        word = Prim("bitcast", (read(0, point[:-1]),), wide)
        high = Prim("shr_logical", (word, Const(32, wide)), wide)
        return _pick(point[-1], (Cast(word, U32), Cast(high, U32)))

    return Indexed(value)


random_unwrap: Primitive[Array] = define(
    "random_unwrap",
    doc="The words u32[..., 2] of typed keys.",
    type=_unwrap_type,
    numpy=lambda keys: words_of_keys(keys).copy(),
    batch=lambda size, batched, args: random_unwrap(*args),
    loops=_unwrap_loops,
    exact=True,
    dtypes="int",
)


def seed_words(seed: int) -> np.ndarray:
    """The key u32[2] of an integer seed: its upper and lower half.

    As in JAX, a seed is a number of 32 bits unless `enable_x64` is on: the upper half is 0.
    """
    if not -(2**63) <= seed < 2**64:
        raise TypeMismatch(f"a seed has at most 64 bits, got {seed}")
    high = seed >> 32 & 0xFFFFFFFF if dt.x64_enabled() else 0
    return np.array([high, seed & 0xFFFFFFFF], U32)
