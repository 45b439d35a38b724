"""How much memory there is, asked before anything large is allocated.

>>> check_bytes("broadcast: a result f32[1099511627776]", 2**42)
Traceback (most recent call last):
...
fxad.core.errors.SizeError: broadcast: a result f32[1099511627776] needs 4.4 TB, ...
"""

from __future__ import annotations

import functools

from fxad.core import system
from fxad.core.cgroup import memory_limits
from fxad.core.errors import ShapeError, SizeError
from fxad.core.types import ArrayType

MOST_AXES = 64  # NumPy's
_SMALL = 1 << 26  # below this nothing is asked: the check must not cost small ops anything


@functools.cache
def memory_bytes() -> int:
    """Bytes of memory this process may use: the machine's, or its control group's limit."""
    return min([system.physical_bytes() or 1 << 46, *memory_limits()])


def readable(nbytes: float) -> str:
    """A number of bytes with three digits and a unit: `4.4 TB`."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} EB"


def check_result(what: str, type: ArrayType) -> None:
    """Raise for a result that no array can be: SizeError, or ShapeError beyond NumPy's axes."""
    if type.ndim > MOST_AXES:
        raise ShapeError(
            f"{what}: a result with {type.ndim} axes; arrays have at most {MOST_AXES}, as in NumPy "
            "(values that stay inside a compiled function may have more)"
        )
    check_bytes(f"{what}: a result {type}", type.nbytes)


def check_bytes(what: str, nbytes: int) -> None:
    """Raise SizeError if `nbytes` is more than there can be."""
    if nbytes > _SMALL and nbytes > memory_bytes():
        raise SizeError(
            f"{what} needs {readable(nbytes)}, and this machine has {readable(memory_bytes())}; "
            "check the sizes, or work on smaller pieces (for instance with lax.map or lax.scan)"
        )
