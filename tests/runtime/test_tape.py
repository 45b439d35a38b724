"""Tapes and stores: blocks come back as they were, budgets hold, failing disks are errors."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxad.core.errors import BadArgument, IndexOutOfRange, StorageError
from fxad.core.limits import parse_bytes
from fxad.runtime import Disk, Host, SharedTape, Store, Tape
from fxad.runtime.space import HostSpace

DTYPES = [np.float32, np.float64, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16]


def block(number: int, shape: tuple[int, ...] = (100, 100), dtype=np.float64) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) + number).astype(dtype)


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


@pytest.mark.parametrize("place", ["room", "lend"])
def test_a_store_lends_at_most_half_of_its_budget(place):
    store, own = Store(400_000), block(0)
    for i in range(6):
        lent = store.room(i, own)
        assert (lent is not None) == ((place == "room" and i < 2) or place == "lend")
        if lent is not None:
            lent[...] = block(i)
        if place == "lend":
            store.put(i, lent)
    if place == "room":
        for i in range(6):
            array = block(i)  # not the memory that was lent: copied into it
            store.put(i, array)
    answers = [store.lend(i, own) for i in reversed(range(6))]
    assert [a is not None for a in answers] == [True, True, False, False, False, False]
    for i, answer in zip(reversed(range(4, 6)), answers, strict=False):
        np.testing.assert_array_equal(answer, block(i))
    np.testing.assert_array_equal(own, block(0))
    for i in range(6):
        store.give_back(i)
    assert len(store) == 0 and store.shelf.peak <= 400_000
    store.close()


def test_keys_of_a_store():
    store = Store()
    store.put("a", block(0))
    with pytest.raises(BadArgument, match="'a' already"):
        store.put("a", block(0))
    with pytest.raises(BadArgument, match="nothing under 'b'"):
        store.take("b")


# ---------------------------------------------------------------- what goes wrong


class Failing(Disk):
    """A disk that fails after some bytes."""

    def __init__(self, writes: int, reads: int) -> None:
        super().__init__()
        self.writes, self.reads = writes, reads

    def write(self, data):
        self.writes -= 1
        if self.writes < 0:
            raise self._failed("cannot write", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return super().write(data)

    def read(self, ticket, into):
        self.reads -= 1
        if self.reads < 0:
            raise self._failed("cannot read", OSError(errno.EIO, os.strerror(errno.EIO)))
        super().read(ticket, into)


@pytest.mark.parametrize("make", [Tape, Store])
@pytest.mark.parametrize("fault", [(5, 1000), (1000, 5), (0, 1000), (1000, 0)])
def test_a_failing_disk_is_an_error_and_stays_one(make, fault):
    store = make(400_000, below=Failing(*fault))

    def put(i):
        return store.push(block(i)) if make is Tape else store.put(i, block(i))

    def take(i):
        return store.pop() if make is Tape else store.take(i)

    with pytest.raises(StorageError, match="free space there"):
        for i in range(50):
            put(i)
        for i in reversed(range(50)):
            np.testing.assert_array_equal(take(i), block(i))
    with pytest.raises(StorageError):
        for i in range(100, 150):
            put(i)
    store.close()


def test_a_tier_that_breaks_is_an_error_too():
    class Broken(Disk):
        def write(self, data):
            raise KeyError("lost")

    tape = Tape(400_000, below=Broken())
    with pytest.raises(StorageError, match="KeyError in the tier below"):
        for i in range(50):
            tape.push(block(i))
    tape.close()


def test_memory_below_memory_and_a_file_below_that(tmp_path):
    disk = Disk(tmp_path)
    host = Host("300kB", below=disk)
    with Tape("100kB", below=host) as tape:
        for sweep in range(2):
            for number in range(100):
                tape.push(np.full(2500, number + sweep, np.float32))
            for number in reversed(range(100)):
                np.testing.assert_array_equal(tape.pop(), np.full(2500, number + sweep))
        assert tape.shelf.peak <= 100_000
        assert host.shelf.peak <= 300_000
        assert 500_000 < disk.peak_bytes < 1_000_000
    assert os.listdir(tmp_path) == []
    with pytest.raises(BadArgument, match="a host tier's budget"):
        Host("much")


def test_a_failing_file_two_tiers_below_is_an_error(tmp_path):
    disk = Disk(tmp_path)
    store = Store("100kB", below=Host("100kB", below=disk))
    disk.close()
    with pytest.raises(StorageError, match="cannot write"):
        for number in range(100):
            store.put(number, np.ones(2500, np.float32))
    with pytest.raises(StorageError):
        store.take(0)
    store.close()
    assert os.listdir(tmp_path) == []


def test_a_thread_that_gets_no_memory_reads_nothing_ahead(monkeypatch):
    refused = threading.Event()
    plain = HostSpace.fresh

    def fresh(self, size):
        if threading.current_thread().name == "fxad-shelf":
            refused.set()
            raise MemoryError
        return plain(self, size)

    monkeypatch.setattr(HostSpace, "fresh", fresh)
    store = Store(400_000)
    sizes = [(50, 25)] * 20 + [(100, 50)] * 20  # the small ones cannot be read into large slabs
    for i, shape in enumerate(sizes):
        store.put(i, block(i, shape))
    for i, shape in reversed(list(enumerate(sizes))):
        np.testing.assert_array_equal(store.take(i), block(i, shape))
        if i == 20:
            assert refused.wait(10)
    assert store.shelf.held <= store.shelf.peak <= 400_000
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_without_threads_the_caller_writes(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with Tape(400_000) as tape:
        for i in range(30):
            tape.push(block(i))
        for i in reversed(range(30)):
            np.testing.assert_array_equal(tape.pop(), block(i))


def test_a_full_disk():
    """A real one: the file may not grow beyond a limit of this process."""
    code = """
import resource, sys, numpy as np
from fxad.runtime import Tape
from fxad.core.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
tape = Tape(300_000, sys.argv[1])
try:
    for i in range(100):
        tape.push(np.full(10_000, float(i)))
except StorageError as error:
    print(type(error).__name__, "File too large" in str(error), isinstance(error, OSError))
"""
    directory = str(Path(__file__).parent)
    before = sorted(os.listdir(directory))
    done = subprocess.run(
        [sys.executable, "-c", code, directory], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["StorageError", "True", "True"], done.stderr
    assert sorted(os.listdir(directory)) == before


def test_wrong_use(tmp_path):
    with pytest.raises(StorageError, match="cannot make a file in .*nowhere"):
        Tape(1000, tmp_path / "nowhere")
    with pytest.raises(BadArgument, match="budget must be a number of bytes"):
        Tape("many")
    with pytest.raises(BadArgument, match="arrays of numbers, not of dtype object"):
        Tape().push(np.array([None]))
    with pytest.raises(BadArgument, match="a tape holds arrays, not float"):
        Tape().push(1.0)
    with pytest.raises(StorageError, match="do not fit the budget of 50 kB"):
        Tape(50_000).push(block(0))
    tape = Tape(50_000)
    tape.close()
    tape.close()
    with pytest.raises(StorageError, match="closed"):
        tape.push(block(0))


def test_sizes():
    sizes = {"2GiB": 2**31, "1.5 MB": 1_500_000, "4096": 4096, "8k": 8000, "1KiB": 1024, 7: 7}
    assert {s: parse_bytes(s) for s in sizes} == sizes
    for wrong in ("", "2 pounds", 0, -1, "0", 1.5, True, None):
        with pytest.raises(BadArgument):
            parse_bytes(wrong)
