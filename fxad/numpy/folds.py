"""NumPy's folds as attributes of the functions that have them: they are ufuncs, as in JAX.

add.reduce(x)    maximum.accumulate(x)    multiply.outer(x, y)    add.at(x, i, 1, inplace=False)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxad.core.lazy import later
from fxad.numpy import elementwise

if TYPE_CHECKING:
    from fxad.numpy import ufuncs
else:
    ufuncs = later("fxad.numpy.ufuncs")  # with loops, which importing fxad.numpy does not need

FOLDS = ("accumulate", "at", "outer", "reduce", "reduceat")

# Function -> how many arguments it has, and what folds start with (None: with the first element).
KNOWN: dict[str, tuple[int, Any]] = {
    "add": (2, 0),
    "bitwise_and": (2, -1),
    "bitwise_or": (2, 0),
    "bitwise_xor": (2, 0),
    "logaddexp": (2, -math.inf),
    "logaddexp2": (2, -math.inf),
    "logical_and": (2, True),
    "logical_or": (2, False),
    "logical_xor": (2, False),
    "maximum": (2, None),
    "minimum": (2, None),
    "multiply": (2, 1),
    "negative": (1, None),
    "subtract": (2, None),
}


@functools.cache
def _ufunc(name: str) -> ufuncs.Known:
    return ufuncs.Known(name, getattr(elementwise, name), *KNOWN[name])


def _fold(name: str, fold: str) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return getattr(_ufunc(name), fold)(*args, **kwargs)

    method.__name__, method.__qualname__ = fold, f"{name}.{fold}"
    method.__doc__ = f"NumPy's `{name}.{fold}`: see `fxad.numpy.ufunc.{fold}`."
    return method


for _name, (_nin, _identity) in KNOWN.items():
    _function: Any = getattr(elementwise, _name)
    _function.nin, _function.nout, _function.nargs = _nin, 1, _nin
    _function.identity = _identity
    for _each in FOLDS:
        setattr(_function, _each, _fold(_name, _each))
