"""Where values wait: tapes in memory under a budget, and on disk below it.

tape, store     what callers use: a stack of blocks, and blocks by key
shelf           the memory both lie in: a budget, writing and reading ahead in the background
disk            a file whose space is used again
"""

from fxad.runtime.disk import Disk
from fxad.runtime.shelf import Shelf
from fxad.runtime.store import Store
from fxad.runtime.tape import SharedTape, Tape

__all__ = ["Disk", "SharedTape", "Shelf", "Store", "Tape"]
