"""Plans as JSON and back, for the cache on disk.

>>> text, numbers = dumps(plan, {})
>>> loads(text).plan

The form is a list of nodes, children before parents, each `[class, *fields]`; a field is a number,
a string, true, false, null, or `[n]`: node n. Kernels of equal content are written once. Only the
records of `ir/expr.py`, `ir/kernel.py` and `ir/plan.py` and plain values can be written, and
nothing else can come out of reading: a file cannot name other classes or functions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core import schema
from fxad.core.record import record, replace
from fxad.core.types import ArrayType, TapeType
from fxad.ir import expr as expr_module
from fxad.ir import kernel as kernel_module
from fxad.ir import plan as plan_module
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Plan

# A plan within nodes within a field: {"plan": [["Load", [3], 0]]}, and of contents one deeper.
LIMITS = schema.Limits(size=1 << 29, values=50_000_000, depth=5)
_NODES = schema.array(schema.anything, least=1)
_SCHEMA = schema.record({"contents": schema.array(_NODES), "plan": _NODES})


class NotPlain(TypeError):
    """A plan that holds something which cannot be written, such as a Python function."""


@record
class Contents:
    """A plan read back. kernels: every Kernel of its steps, with the number of its content."""

    plan: Plan
    kernels: tuple[tuple[Kernel, int], ...]


def dumps(plan: Plan, codes: Mapping[Kernel, Hashable]) -> tuple[str, dict[Kernel, int]]:
    """The text of a plan, and the number of every kernel's content. Raises NotPlain.

    codes: kernels with one code are known to be equal but for names and the lines they came from.
    """
    writer = _PlanWriter(codes)
    writer.write(plan)
    text = json.dumps({"contents": writer.contents, "plan": writer.nodes})
    return text, writer.numbers


def loads(text: str) -> Contents:
    """Raises ValueError for a text that `dumps` did not make."""
    data = schema.parse(text, _SCHEMA, "a plan", ValueError, LIMITS)
    try:
        return _contents(data)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
        raise ValueError(f"no plan: {schema.shown(f'{type(error).__name__}: {error}')}") from error


def _contents(data: Mapping[str, list[Any]]) -> Contents:
    templates = [_read(content, _MAKERS) for content in data["contents"]]
    kernels: list[tuple[Kernel, int]] = []

    def kernel(number: int) -> Kernel:
        kernels.append((replace(templates[number]), number))
        return kernels[-1][0]

    plan = _read(data["plan"], _MAKERS | {"Kernel": kernel})
    if not isinstance(plan, Plan):
        raise ValueError("not a plan")
    return Contents(plan, tuple(kernels))


def _read(nodes: list[list[Any]], makers: dict[str, Callable[..., Any]]) -> Any:
    made: list[Any] = []
    for name, *fields in nodes:
        made.append(makers[name](*[made[f[0]] if type(f) is list else f for f in fields]))
    return made[-1]


class _Writer:
    """Nodes of everything reachable; the same object is one node.

    Expressions are as deep as the user's program is long, so nothing here calls itself for each
    level of them.
    """

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._known: dict[int, tuple[list[int], object]] = {}  # keeps what it names alive

    def write(self, value: Any) -> None:
        """Append the nodes of a value and of all it holds, its own last. Raises NotPlain."""
        waiting = [(value, *self.parts(value))]
        while waiting:
            top, head, fields = waiting[-1]
            missing = [f for f in fields if not _plain(f) and id(f) not in self._known]
            if missing:
                waiting += [(field, *self.parts(field)) for field in reversed(missing)]
                continue
            waiting.pop()
            if id(top) not in self._known:
                self.nodes.append([*head, *map(self._field, fields)])
                self._known[id(top)] = [len(self.nodes) - 1], top

    def _field(self, value: Any) -> Any:
        """The value itself if JSON has it, else a reference to its node."""
        return value if _plain(value) else self._known[id(value)][0]

    def parts(self, value: Any) -> tuple[list[Any], Sequence[Any]]:
        """What a node begins with, and its fields."""
        match value:
            case float():
                return ["float", value.hex()], ()
            case complex():
                return ["complex", value.real.hex(), value.imag.hex()], ()
            case tuple():
                return ["tuple"], value
            case dict():
                return ["dict"], [item for pair in value.items() for item in pair]
            case np.dtype():
                return ["dtype", dt.short_name(value)], ()
            case ArrayType():
                return ["ArrayType"], (value.dtype, value.shape)
            case TapeType():
                return ["TapeType"], (value.blocks, value.lanes)
            case np.ndarray():
                data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
                return ["array"], (value.dtype, value.shape, data)
        cls = type(value)
        if _RECORDS.get(cls.__name__) is not cls:
            raise NotPlain(f"a {cls.__name__} cannot be written")
        return [cls.__name__], [getattr(value, name) for name in cls.__match_args__]


def _plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str)


class _PlanWriter(_Writer):
    """Kernels become numbers of contents."""

    def __init__(self, codes: Mapping[Kernel, Hashable]) -> None:
        super().__init__()
        self.contents: list[list[Any]] = []
        self.numbers: dict[Kernel, int] = {}
        self._codes = codes
        self._equal: dict[Hashable, int] = {}

    def parts(self, value: Any) -> tuple[list[Any], Sequence[Any]]:
        if not isinstance(value, Kernel):
            return super().parts(value)
        content = (self._codes.get(value, value), value.name, value.where)
        number = self._equal.get(content)
        if number is None:
            inner = _Writer()
            inner.write(value)
            number = self._equal[content] = len(self.contents)
            self.contents.append(inner.nodes)
        self.numbers[value] = number
        return ["Kernel", number], ()


def _records(module: ModuleType) -> dict[str, Any]:
    found = vars(module).values()
    return {
        cls.__name__: cls
        for cls in found
        if isinstance(cls, type)
        and cls.__module__ == module.__name__
        and "__match_args__" in vars(cls)
    }


def _array(dtype: np.dtype, shape: tuple[int, ...], data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


_RECORDS = _records(expr_module) | _records(kernel_module) | _records(plan_module)
_MAKERS: dict[str, Callable[..., Any]] = {
    **_RECORDS,
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "tuple": lambda *items: items,
    "dict": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "dtype": dt.from_short_name,
    "ArrayType": ArrayType,
    "TapeType": TapeType,
    "array": _array,
}
