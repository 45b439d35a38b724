"""The host's memory as the tier below another one, with a file below itself if it has a budget.

store = Store("1GiB", space=CudaSpace(), below=Host("4GiB", below=Disk("/scratch")))
"""

from __future__ import annotations

import threading

import numpy as np

from fxad.core.aligned import in_lines
from fxad.runtime.disk import Tier
from fxad.runtime.shelf import Slab, shelf_of


class Host:
    """Blocks in memory up to a budget (bytes, "4GiB"; None: no bound) and in `below` beyond it
    (default: a file in the directory for temporary files). Any number of threads may use it."""

    def __init__(self, budget: int | str | None = None, *, below: Tier | None = None) -> None:
        self.shelf = shelf_of("a host tier's budget", budget, None, below)
        self._lock = threading.Lock()

    def write(self, data: np.ndarray) -> Slab:
        """Keep a copy of an array of bytes."""
        with self._lock:
            slab = self.shelf.new(in_lines(data.nbytes))
            slab.buffer[: data.nbytes] = data
            slab.used = data.nbytes
            self.shelf.seal(slab)
            return slab

    def read(self, ticket: Slab, into: np.ndarray) -> None:
        """Fill an array of bytes with what was written."""
        with self._lock:
            self.shelf.want(ticket)
            into[: ticket.used] = ticket.buffer[: ticket.used]

    def free(self, ticket: Slab) -> None:
        """The memory may be used again."""
        with self._lock:
            self.shelf.drop(ticket)

    def close(self) -> None:
        """Free everything, also what lies below."""
        self.shelf.close()
