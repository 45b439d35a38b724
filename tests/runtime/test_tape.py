"""Tapes and stores: blocks come back as they were, budgets hold, failing disks are errors."""

from __future__ import annotations

import gc
import os
import threading

import ml_dtypes
import numpy as np
import pytest
from blocks import block
from hypothesis import given, settings
from hypothesis import strategies as st

from fxad.core.errors import BadArgument, IndexOutOfRange
from fxad.runtime import Disk, SharedTape, Store, Tape
from fxad.runtime.space import HostSpace

DTYPES = [np.float32, np.float64, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just("pop"),
            st.tuples(
                st.sampled_from([(), (3,), (2, 5), (0, 4), (40, 30), (3000,)]),
                st.integers(0, len(DTYPES) - 1),
                st.integers(1, 60),
            ),
        ),
        max_size=40,
    ),
    st.sampled_from([None, 200_000, 60_000]),
    st.booleans(),
)
def test_a_tape_is_a_list(actions, budget, shared):
    expected: list[np.ndarray] = []
    with (SharedTape if shared else Tape)(budget) as tape:
        for number, action in enumerate(actions):
            if action == "pop":
                for _ in range(len(expected) // 2):
                    got, want = tape.pop(), expected.pop()
                    assert got.dtype == want.dtype
                    np.testing.assert_array_equal(got, want)
            else:
                shape, dtype, times = action
                for i in range(times):
                    value = block(number + i, shape, DTYPES[dtype])
                    tape.push(value)
                    expected.append(value)
            assert len(tape) == len(expected)
        while expected:
            np.testing.assert_array_equal(tape.pop(), expected.pop())
        with pytest.raises(IndexOutOfRange, match="empty"):
            tape.pop()
        if budget is not None:
            assert tape.shelf.peak <= budget


def test_pushing_copies_and_growing_does_not_move():
    tape = Tape()
    x = np.zeros(3)
    tape.push(x)
    x[:] = 9
    first = tape.pop()
    tape.push(np.zeros(3))
    address = first.__array_interface__["data"][0]
    for i in range(5000):
        tape.push(block(i, (3,)))
    for i in reversed(range(5000)):
        assert tape.pop()[0] == i
    last = tape.pop()
    assert last.__array_interface__["data"][0] == address
    np.testing.assert_array_equal(last, 0.0)


def test_slabs_are_used_again():
    tape = Tape()
    for _ in range(5):
        for i in range(100):
            tape.push(block(i))
        for _ in range(100):
            tape.pop()
    assert tape.shelf.held <= 2 * 100 * 80_000
    assert tape.shelf.held == tape.shelf.peak


def test_ten_times_the_budget_goes_to_disk_and_comes_back():
    budget = 2_000_000
    disk = Disk()
    with Tape(budget, below=disk) as tape:
        for _ in range(2):
            for i in range(250):  # 20 MB
                tape.push(block(i))
            for i in reversed(range(250)):
                np.testing.assert_array_equal(tape.pop(), block(i))
        assert tape.shelf.peak <= budget
        assert 18_000_000 <= disk.peak_bytes <= 22_000_000  # the second time in the same space


def test_the_file_has_no_name(tmp_path):
    with Tape(100_000, tmp_path) as tape:
        for i in range(10):
            tape.push(block(i))
        assert list(tmp_path.iterdir()) == []


def test_going_back_and_forth_over_written_slabs():
    with Tape(400_000) as tape:
        for i in range(30):
            tape.push(block(i))
        for _ in range(12):
            tape.pop()
        for i in range(18, 40):
            tape.push(block(-i))
        for i in reversed(range(18, 40)):
            np.testing.assert_array_equal(tape.pop(), block(-i))
        for i in reversed(range(18)):
            np.testing.assert_array_equal(tape.pop(), block(i))


def test_threads_share_a_tape():
    tape = SharedTape(300_000)
    seen: list[float] = []

    def work(start: int) -> None:
        for i in range(start, start + 200):
            tape.push(np.full(500, float(i)))
        for _ in range(200):
            got = tape.pop()
            assert (got == got[0]).all()
            seen.append(got[0])

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == sorted(float(1000 * n + i) for n in range(4) for i in range(200))
    tape.close()


def test_tapes_end_with_their_last_reference():
    tape = Tape(100_000)
    for i in range(20):
        tape.push(block(i))
    descriptor = tape.shelf._below._file.fileno()
    del tape
    for thread in threading.enumerate():
        if thread.name == "fxad-shelf":
            thread.join()
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


# ---------------------------------------------------------------- stores


@settings(max_examples=30, deadline=None)
@given(st.permutations(list(range(12))), st.sampled_from([None, 250_000, 1_000_000]))
def test_a_store_gives_back_in_any_order(order, budget):
    store = Store(budget)
    for i in range(12):
        store.put(i, block(i, (100, 100 + i)))
    for i in order:
        np.testing.assert_array_equal(store.take(i), block(i, (100, 100 + i)))
    assert len(store) == 0
    store.put(0, block(1))
    np.testing.assert_array_equal(store.take(0), block(1))
    if budget is not None:
        assert store.shelf.peak <= budget
    store.close()


def test_values_of_two_sizes_use_one_memory(monkeypatch):
    """A smaller value takes a larger one's pages: fresh ones cost as much as writing to them."""
    fresh = []
    plain = HostSpace.fresh

    def counting(self, size):
        fresh.append(size)
        return plain(self, size)

    monkeypatch.setattr(HostSpace, "fresh", counting)
    store = Store(2_000_000)
    for _ in range(3):
        for i in range(100):
            store.put(i, block(i, (100, 200 if i % 2 else 150)))
        for i in reversed(range(100)):
            np.testing.assert_array_equal(store.take(i), block(i, (100, 200 if i % 2 else 150)))
    assert store.shelf.peak <= 2_000_000
    assert sum(fresh) <= 8_000_000  # of 84 MB put
    store.close()


@pytest.mark.parametrize("place", ["reserve", "borrow"])
def test_buffers_take_at_most_half_of_the_budget_of_a_store(place):
    store, own = Store(400_000), block(0)
    for i in range(6):
        buffer = store.reserve(i, own)
        assert (buffer is not None) == ((place == "reserve" and i < 2) or place == "borrow")
        if buffer is not None:
            buffer[...] = block(i)
        if place == "borrow":
            store.put(i, buffer)
    if place == "reserve":
        for i in range(6):
            array = block(i)  # not the buffer reserved for it: copied into it
            store.put(i, array)
    answers = [store.borrow(i, own) for i in reversed(range(6))]
    assert [a is not None for a in answers] == [True, True, False, False, False, False]
    for i, answer in zip(reversed(range(4, 6)), answers, strict=False):
        np.testing.assert_array_equal(answer, block(i))
    np.testing.assert_array_equal(own, block(0))
    for i in range(6):
        store.release(i)
    assert len(store) == 0 and store.shelf.peak <= 400_000
    store.close()


def test_keys_of_a_store():
    store = Store()
    store.put("a", block(0))
    with pytest.raises(BadArgument, match="'a' already"):
        store.put("a", block(0))
    with pytest.raises(BadArgument, match="nothing under 'b'"):
        store.take("b")
