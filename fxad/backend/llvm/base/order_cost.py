"""What it takes to find the order of numbers, for the choice of threads."""

from __future__ import annotations

import math

from fxad.ir import kernel as ir


def order_cost(stage: ir.Sort) -> float:
    """Nanoseconds, as measured on a Zen 5 (21 November 2026): of short rows by networks or counts,
    of long ones by digits; of a few largest, to look at all and to keep the best. A fit, of which
    only the order of magnitude is used, so no numbers of `Tuning`."""
    count, wanted = stage.axis.extent, stage.stored.extent
    size = max(key.dtype.itemsize for key in stage.operands[: stage.keys])
    each = math.log2(count + 1) ** 2 / 40 * (4 if size == 8 else 1)
    whole = 20 + count * min(each, size)
    if stage.largest is None:
        return whole
    return min(whole, 0.03 * size * count + 25 * wanted * math.log2(1 + count / max(wanted, 1)))
