"""Storage for residuals: tapes in memory under a budget, and on disk below it.

tape, store     what callers use: a stack of blocks, and blocks by key
shelf           the memory both lie in: a budget, writing and reading ahead in the background
space           what that memory is made of: the host's or a GPU's
disk, host      tiers below: a file whose space is used again, memory with a file below it
"""

from fxad.runtime.disk import Disk
from fxad.runtime.host import Host
from fxad.runtime.shelf import Shelf
from fxad.runtime.store import Store
from fxad.runtime.tape import SharedTape, Tape

__all__ = ["Disk", "Host", "SharedTape", "Shelf", "Store", "Tape"]
