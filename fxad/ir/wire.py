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
from collections.abc import Callable, Hashable, Mapping
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
    writer.ref(plan)
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
    """Nodes of everything reachable; the same object is one node."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._known: dict[int, tuple[list[int], object]] = {}  # keeps what it names alive

    def ref(self, value: Any) -> Any:
        """A field: the value itself if JSON has it, else a reference to its node."""
        if value is None or type(value) in (bool, int, str):
            return value
        known = self._known.get(id(value))
        if known is None:
            self.nodes.append(self.node(value))
            known = self._known[id(value)] = [len(self.nodes) - 1], value
        return known[0]

    def node(self, value: Any) -> list[Any]:
        match value:
            case float():
                return ["float", value.hex()]
            case complex():
                return ["complex", value.real.hex(), value.imag.hex()]
            case tuple():
                return ["tuple", *map(self.ref, value)]
            case dict():
                return ["dict", *[self.ref(item) for pair in value.items() for item in pair]]
            case np.dtype():
                return ["dtype", dt.short_name(value)]
            case ArrayType():
                return ["ArrayType", self.ref(value.dtype), self.ref(value.shape)]
            case TapeType():
                return ["TapeType", self.ref(value.blocks), self.ref(value.lanes)]
            case np.ndarray():
                data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
                return ["array", self.ref(value.dtype), self.ref(value.shape), data]
        cls = type(value)
        if _RECORDS.get(cls.__name__) is not cls:
            raise NotPlain(f"a {cls.__name__} cannot be written")
        return [cls.__name__, *[self.ref(getattr(value, name)) for name in cls.__match_args__]]


class _PlanWriter(_Writer):
    """Kernels become numbers of contents."""

    def __init__(self, codes: Mapping[Kernel, Hashable]) -> None:
        super().__init__()
        self.contents: list[list[Any]] = []
        self.numbers: dict[Kernel, int] = {}
        self._codes = codes
        self._equal: dict[Hashable, int] = {}

    def node(self, value: Any) -> list[Any]:
        if not isinstance(value, Kernel):
            return super().node(value)
        content = (self._codes.get(value, value), value.name, value.where)
        number = self._equal.get(content)
        if number is None:
            inner = _Writer()
            inner.ref(value)
            number = self._equal[content] = len(self.contents)
            self.contents.append(inner.nodes)
        self.numbers[value] = number
        return ["Kernel", number]


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
