"""Check that device arrays spill to the host, then to disk, and come back; run by test_numba.py
under the simulator.

With a GPU:  python tests/backend/numba/tiers_on_cuda.py
"""

import os
import sys
import tempfile

import numpy as np
from numba import cuda

from fxad.backend.numba.device import CudaSpace
from fxad.core.errors import StorageError
from fxad.runtime import Disk, Host, Store

COUNT, ROWS = 40, 1000  # blocks of 16 kB


def block(number: int) -> np.ndarray:
    return np.full((ROWS, 4), number, np.float32) + np.arange(4, dtype=np.float32)


def check(directory: str) -> None:
    host = Host("200kB", below=Disk(directory))
    store = Store("100kB", space=CudaSpace(), below=host)
    for sweep in range(2):  # the second one uses the first one's memory
        for number in range(COUNT):
            store.put(number, cuda.to_device(block(number)))
        for number in reversed(range(COUNT)):
            taken = store.take(number)
            assert taken.dtype == np.float32
            np.testing.assert_array_equal(taken.copy_to_host(), block(number), err_msg=str(sweep))
    store.put("from the host", block(7))
    np.testing.assert_array_equal(store.take("from the host").copy_to_host(), block(7))
    assert store.shelf.peak <= 100_000
    assert host.shelf.peak <= 200_000
    assert host.shelf._below.peak_bytes > COUNT * 16_000 - 400_000
    store.close()
    assert os.listdir(directory) == []


def check_failure(directory: str) -> None:
    """A disk that fails two tiers below is a StorageError here."""
    disk = Disk(directory)
    store = Store("100kB", space=CudaSpace(), below=Host("100kB", below=disk))
    disk.close()
    try:
        for number in range(COUNT):
            store.put(number, cuda.to_device(block(number)))
    except StorageError as error:
        assert "cannot write" in str(error)
        return
    finally:
        store.close()
    sys.exit("nothing was raised")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        check(directory)
        check_failure(directory)
    print("tiers agree")


if __name__ == "__main__":
    main()
