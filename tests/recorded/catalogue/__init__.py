"""The recorded functions: `CASES` by name. Only types matter: there is no data, nothing runs.

CASES["products/nn-64"].traced()
"""

from __future__ import annotations

from tests.recorded.catalogue import (
    attention,
    elements,
    indexing,
    loops,
    models,
    numerics,
    operations,
    products,
    rows,
)
from tests.recorded.catalogue.case import Case

_PARTS = (elements, rows, products, attention, indexing, loops, numerics, models, operations)
CASES: dict[str, Case] = {case.name: case for part in _PARTS for case in part.cases}

__all__ = ["CASES", "Case"]
