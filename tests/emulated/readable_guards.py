"""A plugin of pytest for processors with masked loads: guard pages may be read, not written.

QEMU (10.0) reads the whole vector of a masked load (AVX2's `vmaskmov`), also the lanes that are
masked off and may lie on a page that nobody may touch. On the processor such a load is harmless.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "backend" / "llvm"))

import guarded

guarded._FORBIDDEN = mmap.PROT_READ
