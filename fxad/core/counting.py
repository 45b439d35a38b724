"""How many elements are not zero, without the dispatch of `np.count_nonzero` (half of its time).

count_nonzero(values < bound) == values.size     # all are: the shortest way to ask NumPy

Not for references of ops, which `to_python` writes as source: this function has no public name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

count_nonzero: Callable[[np.ndarray], int]

try:  # the function that NumPy's own calls; its module is private, so there must be another way
    from numpy._core.multiarray import count_nonzero
except ImportError:
    count_nonzero = np.count_nonzero
