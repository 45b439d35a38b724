"""The memory of a CUDA device for the slabs of `fxad.runtime`.

store = Store("1GiB", space=CudaSpace(), below=Host("4GiB", below=Disk("/scratch")))
store.put("layer 3", device_array)
device_array = store.take("layer 3")
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from fxad.runtime.disk import Tier


class CudaSpace:
    """Arrays are numba's device arrays (or the host's, which `put` copies over)."""

    def fresh(self, size: int) -> Any:
        return cuda.device_array(size, np.uint8)

    def view(self, buffer: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        nbytes = math.prod(shape) * dtype.itemsize
        return buffer[:nbytes].view(dtype).reshape(shape)

    def fill(self, view: Any, array: Any) -> None:
        view.copy_to_device(array)

    def write(self, below: Tier, buffer: Any, used: int) -> Any:
        return below.write(buffer[:used].copy_to_host())

    def read(self, below: Tier, ticket: Any, buffer: Any, used: int) -> None:
        data = np.empty(used, np.uint8)
        below.read(ticket, data)
        buffer[:used].copy_to_device(data)
