"""`Shared`: what copying does not copy.

>>> class Code(Shared): pass
>>> code = Code()
>>> copy.deepcopy([code])[0] is code
True
"""

from __future__ import annotations

from typing import Any, Self


class Shared:
    """`copy.copy` and `copy.deepcopy` give the thing itself, as they do for Python's functions:
    it holds machine code and locks, of which there can be no second one."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
