"""`where` as users call it, which with one argument finds indices, also a fixed number of them.

where(x > 0, x, 0)      where(flags, size=3, fill_value=-1)
"""

from __future__ import annotations

from typing import Any

from fxad.core.errors import TypeMismatch
from fxad.numpy.elementwise import where as _where
from fxad.numpy.selection import nonzero
from fxad.trace.replay import replayed

__all__ = ["where"]


@replayed(numbers=True)
def where(
    condition: Any,
    x: Any = None,
    y: Any = None,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """x where condition holds, else y. With one argument: the indices of non-zero elements, as
    `nonzero` gives them; their number must not depend on traced values unless `size` says it.

    >>> x = jnp.array([-1.0, 0.0, 2.0])
    >>> jnp.where(x > 0, x, 0.1 * x)
    Array([-0.1,  0. ,  2. ], dtype=float32)
    >>> jnp.where(x != 0)
    (Array([0, 2], dtype=int32),)
    """
    if x is None and y is None and size is not None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise TypeMismatch("where: size and fill_value go with the condition alone")
    return _where(condition, x, y)
