"""NumPy's floating-point warnings off: `np.errstate(all="ignore")` at a fifth of its price.

before = silence()
try:
    ...
finally:
    restore(before)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

silence: Callable[[], Any]
restore: Callable[[Any], Any]

try:
    # NumPy keeps its error modes in a context variable; an errstate object sets it, at the cost of
    # being made anew each time. The variable is private, so there must be another way.
    from numpy._core.umath import _extobj_contextvar as _modes

    with np.errstate(all="ignore"):
        _SILENT = _modes.get()

    def silence() -> Any:
        return _modes.set(_SILENT)

    restore = _modes.reset

except (ImportError, AttributeError, LookupError):

    def silence() -> Any:
        return np.seterr(all="ignore")

    def restore(before: Any) -> None:
        np.seterr(**before)
