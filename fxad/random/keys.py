"""Keys of random numbers: made from a seed, split, and never used twice.

key = fxad.random.key(0)
key, mine = fxad.random.split(key)

A key is a u32[2] array, an array of keys u32[..., 2]. Where fxad stands for JAX, `key` and
`wrap_key_data` give typed keys instead, arrays of the element type `key`, which are moved, split
and drawn from, and are no numbers; every function takes both. The generator is Threefry-2x32; keys
and bits are those of `jax.random` (partitionable form) for the same seed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, CallError, NumberOverflow, TypeMismatch
from fxad.core.promotion import check_int_fits
from fxad.core.semantics import semantics
from fxad.ir.program import OPS
from fxad.numpy.core import cast, shape_tuple, value_of
from fxad.ops.arrays.random import seed_words
from fxad.trace.array import KEY, Array, Concrete
from fxad.trace.convert import is_array_like


def _check_dtype(name: str, dtype: Any) -> None:
    if dtype is not None:
        raise BadArgument(f"{name}: keys are u32[2], so dtype must be None, not {dtype!r}")


def low_mode(name: str, mode: str | None) -> None:
    """Raise BadArgument unless the mode of a distribution is None or "low"."""
    if mode not in (None, "low"):
        raise BadArgument(f"{name}: mode must be None or 'low', not {mode!r}")


def key(seed: Any, *, impl: str | None = None, dtype: None = None) -> Array:
    """The key of an integer seed (a Python int of up to 64 bits, or one integer array): u32[2], or
    a typed one under `fxad.as_jax`. As in JAX, only its lower 32 bits count unless `enable_x64` is
    on.

    Raises TypeMismatch for other seeds or generators than "threefry2x32".

    >>> fxad.random.key(42)
    Array([ 0, 42], dtype=uint32)
    """
    return _typed(PRNGKey(seed, impl=impl, dtype=dtype))


def PRNGKey(seed: Any, *, impl: str | None = None, dtype: None = None) -> Array:
    """The words u32[2] of the key of an integer seed, as `key` takes it.

    >>> fxad.random.PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    _check_dtype("key", dtype)
    if impl not in (None, "threefry2x32"):
        raise BadArgument(f"key: unknown generator {impl!r}; there is 'threefry2x32'")
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        return Concrete(seed_words(int(seed)))
    value = value_of(seed, "key: seed")
    if value.shape or not dt.is_integer(value.dtype):
        raise TypeMismatch(f"key: the seed must be one integer, not {value.type}")
    low = OPS["reshape"](OPS["convert"](value, dtype=dt.uint32), shape=(1,))
    if value.dtype.itemsize < 8 or not dt.x64_enabled():
        high = Concrete(np.zeros(1, np.uint32))
    else:
        high = OPS["convert"](OPS["shr_logical"](value, 32), dtype=dt.uint32)
        high = OPS["reshape"](high, shape=(1,))
    return OPS["concatenate"](high, low, axis=0)


def _typed(words: Array) -> Array:
    return words if semantics.keys_are_words else OPS["random_wrap"](words)


def _like(key: Any, words: Array) -> Array:
    """Keys made from a key: typed if it is."""
    typed = value_of(key, "key").type.dtype is KEY
    return OPS["random_wrap"](words) if typed else words


def checked(key: Any, name: str, many: bool = False) -> Array:
    """The words u32[2] of a key. Raises TypeMismatch for anything else, CallError for
    many keys."""
    made = "make one with fxad.random.key(seed)"
    if not isinstance(key, Array) and not is_array_like(key):
        raise TypeMismatch(
            f"{name}: the first argument is a key, not a {type(key).__name__}; {made}"
        )
    value = value_of(key, f"{name}: key")
    given = value.type
    if given.dtype is KEY:
        value = OPS["random_unwrap"](value)
    if value.dtype != dt.uint32 or value.shape[-1:] != (2,):
        raise TypeMismatch(f"{name}: a key is u32[2], got {given}; {made}")
    if value.ndim > 1 and not many:
        raise CallError(f"{name}: takes one key, got {given}; use fxad.vmap for an array of keys")
    return value


def split(key: Any, num: int | tuple[int, ...] = 2) -> Array:
    """New keys, num of them, made from one, which must not be used again.

    >>> key = fxad.random.key(0)
    >>> key, noise, mask = fxad.random.split(key, 3)
    >>> fxad.random.split(key).shape
    (2, 2)
    """
    shape = shape_tuple(num, "split")
    keys = OPS["random_split"](checked(key, "split"), n=math.prod(shape))
    keys = keys if len(shape) == 1 else OPS["reshape"](keys, shape=(*shape, 2))
    return _like(key, keys)


def whole(number: Any, what: str) -> int:
    """A Python number without its fraction. Raises NumberOverflow unless it is finite."""
    if not math.isfinite(number):
        raise NumberOverflow(f"{what} must be finite, not {number}")
    return int(number)


def fold_in(key: Any, data: Any) -> Array:
    """A new key made from a key and an integer, for instance a step number; of another number its
    fraction is dropped. Raises NumberOverflow for a Python int that is negative or has more than
    32 bits; of an array's they are dropped.

    >>> key = fxad.random.key(0)
    >>> [fxad.random.fold_in(key, step).tolist() for step in range(2)]
    [[1797259609, 2579123966], [928981903, 3453687069]]
    """
    if isinstance(data, float | np.floating):
        data = whole(data, "fold_in: data")
    if isinstance(data, int | np.integer) and not isinstance(data, bool):
        if isinstance(data, int):
            check_int_fits(data, dt.uint32, "data & 0xFFFFFFFF keeps its lower bits")
        data = Concrete(np.asarray(int(data) & 0xFFFFFFFF, np.uint32))
    number = value_of(data, "fold_in: data")
    if number.shape or dt.is_complex(number.dtype):
        raise TypeMismatch(f"fold_in: data must be one integer, not {number.type}")
    return _like(key, OPS["random_fold"](checked(key, "fold_in"), cast(number, dt.uint32)))


def key_data(keys: Any) -> Array:
    """The words u32[..., 2] of keys (which is what keys are, unless they are typed).

    >>> fxad.random.key_data(fxad.random.key(42))
    Array([ 0, 42], dtype=uint32)
    """
    return checked(keys, "key_data", many=True)


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None, dtype: None = None) -> Array:
    """Keys from their words u32[..., 2].

    >>> fxad.random.wrap_key_data(jnp.array([0, 42], "uint32")) == fxad.random.key(42)
    Array([ True,  True], dtype=bool)
    """
    _check_dtype("wrap_key_data", dtype)
    return _typed(checked(key_bits_array, "wrap_key_data", many=True))


def key_impl(keys: Any) -> str:
    """The name of the generator of some keys.

    >>> fxad.random.key_impl(fxad.random.key(42))
    'threefry2x32'
    """
    checked(keys, "key_impl", many=True)
    return "threefry2x32"


def clone(key: Any) -> Array:
    """The same keys.

    >>> key = fxad.random.key(0)
    >>> bool((fxad.random.clone(key) == key).all())
    True
    """
    return _like(key, checked(key, "clone", many=True))
