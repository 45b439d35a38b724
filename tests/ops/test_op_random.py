"""Random bits: published answers of Threefry-2x32, and the bits of jax.random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
from fxad.core.errors import TypeMismatch
from fxad.ops.arrays.random import random_bits, random_fold, random_split, seed_words, threefry

UFUNCS: dict[str, Any] = {
    "add": np.add,
    "xor": np.bitwise_xor,
    "or": np.bitwise_or,
    "shl": np.left_shift,
    "shr_logical": np.right_shift,
}
SEEDS = [0, 1, 42, 2**31 - 1, 2**31, 2**32 - 1, -1, -(2**31)]
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (3, 5), (2, 0), (2, 3, 4)]


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [  # Random123's known answers, 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(
    key: tuple[int, int], counter: tuple[int, int], answer: tuple[int, int]
) -> None:
    words = [np.array([w], np.uint32) for w in (*key, *counter)]
    found = threefry(
        (words[0], words[1]),
        (words[2], words[3]),
        np.uint32,
        lambda name, a, b: UFUNCS[name](a, b),
    )
    assert tuple(int(f[0]) for f in found) == answer


def test_every_element_depends_on_its_place_alone() -> None:
    key = seed_words(7)
    whole = np.asarray(random_bits(key, shape=(12,), dtype=np.dtype("uint32")))
    again = np.asarray(random_bits(key, shape=(3, 4), dtype=np.dtype("uint32")))
    some = np.asarray(random_bits(key, shape=(5,), dtype=np.dtype("uint32")))
    assert whole.tolist() == again.ravel().tolist()
    assert whole[:5].tolist() == some.tolist()


def test_bits_are_balanced() -> None:
    """Of 2**16 random words, every bit is set in half, within five standard deviations."""
    bits = np.asarray(random_bits(seed_words(3), shape=(2**16,), dtype=np.dtype("uint32")))
    for place in range(32):
        ones = int((bits >> np.uint32(place) & np.uint32(1)).sum())
        assert abs(ones - 2**15) < 5 * 2**7


def test_seeds() -> None:
    assert seed_words(5).tolist() == [0, 5]
    assert seed_words(-1).tolist() == [0, 2**32 - 1]
    assert seed_words(2**40 + 3).tolist() == [0, 3]
    with fxad.enable_x64():
        assert seed_words(2**40 + 3).tolist() == [2**8, 3]
        assert seed_words(-1).tolist() == [2**32 - 1, 2**32 - 1]
    with pytest.raises(TypeMismatch, match="64 bits"):
        seed_words(2**64)


@pytest.mark.peers
@pytest.mark.parametrize("seed", SEEDS)
def test_bits_keys_and_seeds_are_those_of_jax(seed: int) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(False):
        theirs = jax.random.PRNGKey(np.uint32(seed % 2**32) if seed >= 2**31 else seed)
        key = np.asarray(theirs)
        np.testing.assert_array_equal(seed_words(seed), key)
        for shape in SHAPES:
            for name in ("uint8", "uint16", "uint32"):
                found = random_bits(key, shape=shape, dtype=np.dtype(name))
                np.testing.assert_array_equal(found, jax.random.bits(theirs, shape, name))
        for n in (1, 2, 5):
            np.testing.assert_array_equal(random_split(key, n=n), jax.random.split(theirs, n))
        for data in (0, 1, 123456789, 2**32 - 1):
            wanted = jax.random.fold_in(theirs, np.uint32(data))
            np.testing.assert_array_equal(random_fold(key, np.uint32(data)), wanted)
    with jax.enable_x64(True):
        found = random_bits(key, shape=(3, 5), dtype=np.dtype("uint64"))
        np.testing.assert_array_equal(found, jax.random.bits(key, (3, 5), "uint64"))


@pytest.mark.peers
def test_many_keys_are_a_batch_of_keys() -> None:
    jax = pytest.importorskip("jax")
    keys = np.asarray(random_split(seed_words(1), n=4))
    wanted = jax.vmap(lambda k: jax.random.bits(k, (6,), "uint32"))(keys)
    np.testing.assert_array_equal(random_bits(keys, shape=(6,), dtype=np.dtype("uint32")), wanted)
