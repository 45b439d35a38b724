"""How matrix products may be blocked where a measurement knows better than the cost model.

    choices = Choices({"avx512 float32 k n 8.11.9": Choice(height=12, vectors=2)})
    Target("avx512", frozenset(), choices).choices.of("avx512 float32 k n 8.11.9")

A small table for each instruction set says what may be chosen; `search.py` measures. No choice
changes a bit of a result: the order in which an element sums K is part of the kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from fxad.core.record import replace, valued
from fxad.core.schema import Limits, integer, mapping, parse, row, string


@valued
class Choice:
    """height x vectors: rows and registers of a tile; b_bytes: of a panel of B in a cache block of
    K; rows: most of a unit. 0: as the cost model has it."""

    height: int = 0
    vectors: int = 0
    b_bytes: int = 0
    rows: int = 0

    def __str__(self) -> str:
        words = [f"tiles of {self.height} x {self.vectors} registers"] * (self.height > 0)
        words += [f"{self.b_bytes >> 10} KiB of B at a time"] * (self.b_bytes > 0)
        words += [f"{self.rows} rows in a unit"] * (self.rows > 0)
        return ", ".join(words) or "the cost model's"


@valued
class Table:
    """What may be chosen for one kind of product: tiles as (height, registers), b_bytes, rows."""

    tiles: tuple[tuple[int, int], ...]
    b_bytes: tuple[int, ...]
    rows: tuple[int, ...]

    def variants(self, choice: Choice) -> list[list[Choice]]:
        """Stages of a search: what one field, then the next, may be in place of `choice`'s."""
        return [
            [replace(choice, height=h, vectors=v) for h, v in self.tiles],
            [replace(choice, b_bytes=b_bytes) for b_bytes in self.b_bytes],
            [replace(choice, rows=rows) for rows in self.rows],
        ]

    def has(self, choice: Choice) -> bool:
        """Whether every field is one of the table's."""
        tile = choice.height, choice.vectors
        return (
            tile in (*self.tiles, (0, 0))
            and choice.b_bytes in (*self.b_bytes, 0)
            and choice.rows in (*self.rows, 0)
        )


_NEAR, _ROWS = (16384, 24576, 32768, 40960), (96, 192, 384, 512)
# A tile of h x v needs h * v registers for sums, v for B and one for A, and those of what else the
# loop holds: tests/backend/llvm/test_assembly.py compiles all of them and finds no spill.
_WIDE = (8, 3), (7, 3), (6, 4), (14, 2), (12, 2)
_NEON = (8, 3), (7, 3), (6, 4), (12, 2)
_NARROW = (6, 2), (5, 2), (3, 3), (2, 4)
TABLES = {
    "avx512": Table(_WIDE, _NEAR, _ROWS),
    "avx512_bf16": Table(_WIDE, _NEAR, _ROWS),
    "avx2": Table(_NARROW, _NEAR, _ROWS),
    "neon": Table(_NEON, _NEAR, _ROWS),
    "generic": Table(_NARROW, _NEAR, _ROWS),
    "amx": Table((), (12288, 24576, 49152), ()),
}


_LIMITS = Limits(size=1 << 20, values=100_000, depth=2)
_SCHEMA = mapping(row(integer(), integer(), integer(), integer()), key=string(most=200))


class Choices:
    """Choices by class of product (`autotune.class_of`); equal ones hash alike."""

    __slots__ = ("_of", "digest")

    def __init__(self, of: Mapping[str, Choice] | None = None) -> None:
        """Raises ValueError for a choice that its table does not have."""
        self._of = dict(of or {})
        for key, choice in self._of.items():
            table = TABLES.get(key.split()[0] if key.split() else "")
            if table is None or not table.has(choice):
                raise ValueError(f"{key!r}: not in the table of tiles: {choice!r}")
        self.digest = hashlib.sha256(self.text().encode()).hexdigest()[:16] if self._of else ""

    def of(self, key: str) -> Choice:
        return self._of.get(key, MODEL)

    def items(self) -> list[tuple[str, Choice]]:
        return sorted(self._of.items())

    def with_(self, more: Mapping[str, Choice]) -> Choices:
        return Choices({**self._of, **more})

    def text(self) -> str:
        """As JSON: {class: [height, vectors, b_bytes, rows]}."""
        numbers = {k: [c.height, c.vectors, c.b_bytes, c.rows] for k, c in self.items()}
        lines = [f"{json.dumps(key)}: {found}" for key, found in numbers.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def parse(text: bytes | str) -> Choices:
        """The choices of a text. Raises ValueError for any other text."""
        found = parse(text, _SCHEMA, "its text", ValueError, _LIMITS)
        return Choices({key: Choice(*numbers) for key, numbers in found.items()})

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and self._of == other._of

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Choices({self._of!r})"


MODEL = Choice()
NONE = Choices()
