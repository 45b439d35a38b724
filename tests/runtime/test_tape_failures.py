"""Tapes and stores where a tier fails, threads or memory cannot be had, or use is wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from blocks import block

from fxad.core.errors import BadArgument, StorageError
from fxad.core.sizes import parse_bytes
from fxad.runtime import Disk, Host, Store, Tape
from fxad.runtime.space import HostSpace


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
    assert [parse_bytes(n) for n in (1e9, np.int64(7), np.float32(8))] == [10**9, 7, 8]
    assert parse_bytes(10**400) == 10**400
    for wrong in ("", "2 pounds", 0, -1, "0", 1.5, True, None):
        with pytest.raises(BadArgument):
            parse_bytes(wrong)
