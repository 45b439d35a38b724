"""Sizes as people write them: "2GiB"."""

from __future__ import annotations

import re
from numbers import Integral, Real

from fxad.core.errors import BadArgument

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{u}b": n for u, n in tuple(_UNITS.items()) if u not in ("", "b")}
_UNITS |= {f"{u}ib": 1 << 10 * i for i, u in enumerate("kmgt", 1)}
_SIZE = r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]*)\s*"


def parse_bytes(size: float | str, what: str = "size") -> int:
    """A number of bytes: a whole number (1e9 is one), or a text such as "2GiB", "1.5 MB", "4096".

    Raises BadArgument for anything else and for numbers below 1.
    """
    if isinstance(size, Integral) or (isinstance(size, Real) and float(size).is_integer()):
        count = int(size)
        if count > 0 and not isinstance(size, bool):
            return count
    found = re.fullmatch(_SIZE, size, re.ASCII) if isinstance(size, str) else None
    if found and found[2].lower() in _UNITS:
        count = int(float(found[1]) * _UNITS[found[2].lower()])
        if count > 0:
            return count
    raise BadArgument(
        f"{what} must be a number of bytes (at least 1) or a text such as '2GiB' or '500 MB', "
        f"not {size!r}"
    )
