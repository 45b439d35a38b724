"""Random programs of mixed types, written as text: `np`, `lax` and `nn` may be any library's.

    program = mixed_program(seed)
    program.text                                  # "def f(x0, x1): ..."
    f = program.function(fxad.numpy, fxad.lax, fxad.nn)
    f(*program.inputs)

Steps that are not continuous (comparisons, orders, conversions to integers) read only values which
every backend computes to the same bits. What a result may differ by is known from the precision
and the size of what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mixed_steps import FLOATS, INTS, STEPS, broadcast

import fxad.lax
import fxad.nn
import fxad.numpy
from fxad.core.errors import FxadError
from fxad.core.record import record

SIZES = [1, 2, 3, 4, 5, 7, 16, 17, 33, 65, 130]
MOST = 6000  # elements of any value
LARGEST = 1e3  # magnitude of any float: no step is taken that exceeds it


@record
class Known:
    """A value so far. exact: all backends agree on its bits; error: what they may differ by."""

    name: str
    array: np.ndarray
    exact: bool
    error: float

    @property
    def kind(self) -> str:
        """f, i (signed), u or b."""
        return "f" if self.array.dtype.name in FLOATS else self.array.dtype.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@record
class Mixed:
    """A program, its inputs, and for each result whether it is exact, or how far it may be off."""

    text: str
    inputs: tuple[np.ndarray, ...]
    errors: tuple[float, ...]

    def function(self, numpy: Any, lax: Any, nn: Any) -> Callable[..., Any]:
        """The program of a library's functions: inputs to a list of results."""
        space: dict[str, Any] = {"np": numpy, "lax": lax, "nn": nn}
        exec(self.text, space)
        return space["f"]


HALF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


class Maker:
    """Makes a program step by step: every step is run eagerly, to know its result."""

    def __init__(self, seed: int, plain: bool) -> None:
        self.r = np.random.default_rng(seed)
        self.plain = plain  # sums and products of floats count as exact
        self.values: list[Known] = []
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"np": fxad.numpy, "lax": fxad.lax, "nn": fxad.nn}

    # ------------------------------------------------------------ choosing

    def one(self, among: Sequence[Any]) -> Any:
        return among[int(self.r.integers(len(among)))]

    def chance(self, p: float) -> bool:
        return bool(self.r.random() < p)

    def axis(self, v: Known) -> int:
        return int(self.r.integers(v.array.ndim))

    def partner(self, v: Known) -> Known:
        """A value that broadcasts with v, of any type."""
        fits = [w for w in self.values if broadcast(v.shape, w.shape)]
        return self.one(fits)

    def recent(self, kinds: str = "fiub", exact: bool = False) -> Known | None:
        fits = [v for v in self.values if v.kind in kinds and (v.exact or not exact)]
        if not fits:
            return None
        return self.one(fits[-4:] if self.chance(0.7) else fits)

    # ------------------------------------------------------------ making

    def input(self) -> None:
        rank = self.one([0, 1, 1, 2, 2, 2, 3])
        shape = tuple(int(self.one(SIZES)) for _ in range(rank))
        while np.prod(shape, dtype=int) > MOST // 4:
            shape = shape[1:]
        dtype = np.dtype(self.one([*FLOATS, *FLOATS, *INTS, "bool"]))
        if dtype.name in FLOATS:
            array = self.r.uniform(-1.5, 1.5, shape).astype(dtype)
        elif dtype.kind == "b":
            array = self.r.random(shape) < 0.5
        else:
            array = self.r.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
        self.values.append(Known(f"x{len(self.values)}", np.asarray(array), True, 0.0))

    def step(self) -> None:
        """One more value, unless what was drawn does not fit."""
        drawn = self.one(STEPS)(self)
        if drawn is None:
            return
        text, exact = drawn
        name = f"v{len(self.values)}"
        read = [v for v in self.values if _reads(text, v.name)]
        with np.errstate(all="ignore"):
            try:
                given = {v.name: fxad.numpy.asarray(v.array) for v in read}
                result = eval(text, {**self.space, **given})
            except FxadError:
                return  # such as types that do not go together
        array = np.asarray(result)
        size = 0.0
        if array.dtype.name in FLOATS:
            sizes = np.abs(array.astype(np.float64))
            size = float(sizes.max(initial=0.0))
        if array.size > MOST or array.size == 0 or not size <= LARGEST:
            return
        exact = exact and all(v.exact for v in read)
        error = 0.0 if exact else self.error_of(array, size, read)
        self.lines.append(f"{name} = {text}")
        self.values.append(Known(name, array, exact, error))

    def error_of(self, array: np.ndarray, size: float, read: list[Known]) -> float:
        """A few roundings of everything that was read, and what that was off by already."""
        every = [(v.array, float(np.abs(v.array.astype(np.float64)).max(initial=0))) for v in read]
        own = max(_rounding(a) * (1.0 + s) for a, s in [*every, (array, size)])
        return 4 * max([v.error for v in read], default=0.0) + 8 * own

    def made(self) -> Mixed:
        inputs = tuple(v.array for v in self.values if v.name[0] == "x")
        own = [v for v in self.values if v.name[0] == "v"]
        unread = [
            v for v in own if not any(_reads(line, v.name, after=True) for line in self.lines)
        ]
        results = [*unread, *([self.one(own)] if own else [])] or self.values[-1:]
        names = ", ".join(v.name for v in results)
        given = ", ".join(f"x{i}" for i in range(len(inputs)))
        body = "\n".join(f"    {line}" for line in self.lines)
        text = f"def f({given}):\n{body}\n    return [{names}]\n"
        return Mixed(text, inputs, tuple(v.error for v in results))


def _reads(text: str, name: str, after: bool = False) -> bool:
    words = text.split(" = ", 1)[1] if after else text
    for cut in "()[]{},:.*+-/%&|^<>=~!":
        words = words.replace(cut, " ")
    return name in words.split()


def _rounding(array: np.ndarray) -> float:
    if array.dtype.name in HALF:
        return HALF[array.dtype.name]
    return 2.0**-22


def mixed_program(seed: int, steps: int = 16, plain: bool = True) -> Mixed:
    """The program of a seed. plain=False: sums of floats are not exact (compilers that fuse)."""
    maker = Maker(seed, plain)
    for _ in range(int(maker.r.integers(2, 5))):
        maker.input()
    for _ in range(4 * steps):
        maker.step()
        if len(maker.lines) == steps:
            break
    return maker.made()
