"""One recorded function, and short names for the types of its arguments.

cases = Cases("products")
cases.add("nn-64", lambda a, b: a @ b, f32(64, 64), f32(64, 64))     # products/nn-64
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fxad
from fxad.core.record import record
from fxad.ir.program import Program

Traced = tuple[Program, frozenset[int]]


@record
class Case:
    """traced(): a closed Program and the numbers of the arguments whose memory is given away.

    budget: bytes that the plan must fit in, by what `ways` allow (`rematerialization.budget.fit`).
    """

    name: str
    traced: Callable[[], Traced]
    budget: int | None = None
    ways: tuple[str, ...] = ()


class Cases:
    """The cases of one file, whose names begin alike."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._cases: dict[str, Case] = {}

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases.values())

    def program(self, name: str, traced: Callable[[], Traced], **options: Any) -> None:
        """A case that is a Program."""
        name = f"{self.kind}/{name}"
        if name in self._cases:
            raise ValueError(f"two cases are called {name}")
        self._cases[name] = Case(name, traced, **options)

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        donate: tuple[int, ...] = (),
        budget: int | None = None,
        ways: tuple[str, ...] = (),
        **named: Any,
    ) -> None:
        """A case that is a function, jitted already or not, of arguments of these types."""

        def traced() -> Traced:
            ready = hasattr(function, "lower")
            jitted = function if ready else fxad.jit(function, donate_argnums=donate)
            lowered = jitted.lower(*args, **named)
            return lowered.traced, lowered._donate

        self.program(name, traced, budget=budget, ways=ways)


def _type(dtype: str) -> Callable[..., fxad.ShapeDtypeStruct]:
    return lambda *shape: fxad.ShapeDtypeStruct(shape, dtype)


f16, bf16, f32, f64 = map(_type, ("float16", "bfloat16", "float32", "float64"))
i8, i32, i64 = map(_type, ("int8", "int32", "int64"))
u8, u32 = map(_type, ("uint8", "uint32"))
c64, bool_ = map(_type, ("complex64", "bool"))
key = u32(2)
