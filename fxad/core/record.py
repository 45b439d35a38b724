"""`record` and `valued`: small classes of named fields, immutable by convention and for mypy.

    @valued
    class Rem:
        index: Index
        divisor: int = 1

They read like frozen dataclasses with slots. A dataclass costs 0.4 ms of import time and guards its
fields at run time, which makes an instance three times as dear; the compiler defines many of them
and makes tens of thousands.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType
from typing import Any, TypeVar, dataclass_transform

from fxad.core.source import defined

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type[T]) -> type[T]:
    """A class with `__init__`, `__repr__`, `__slots__` and `__match_args__` of its annotations.

    Defaults are shared between instances. Instances are compared by identity. `super()` without
    arguments does not work inside (the class is made anew, for its slots).
    """
    return _made(cls, by_value=False)


@dataclass_transform(frozen_default=True)
def valued(cls: type[T]) -> type[T]:
    """Like `record`; instances of one class with equal fields are equal, and hash alike."""
    return _made(cls, by_value=True)


def replace(instance: T, **changes: Any) -> T:
    """A copy of a record with some fields changed."""
    cls: Any = type(instance)
    fields = {name: getattr(instance, name) for name in cls.__match_args__}
    made: T = cls(**fields | changes)
    return made


def _made(cls: type[T], by_value: bool) -> type[T]:
    names = tuple(inspect.get_annotations(cls))
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    if tuple(defaults) != names[len(names) - len(defaults) :]:
        raise TypeError(f"{cls.__qualname__}: a field without a default follows one with")
    body = {
        key: held
        for key, held in cls.__dict__.items()
        if key not in defaults and key not in ("__dict__", "__weakref__")
    }
    body |= {"__slots__": names, "__match_args__": names, "__qualname__": cls.__qualname__}
    body.setdefault("__repr__", _repr)
    scope = {"__name__": cls.__module__}
    for name, template in _methods(len(names), by_value).items():
        code = template.replace(
            co_varnames=_renamed(template.co_varnames, names),
            co_names=_renamed(template.co_names, names),
        )
        method = FunctionType(code, scope, name)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        body[name] = method
    body["__init__"].__defaults__ = tuple(defaults.values())
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, body)
    return made


@functools.cache
def _methods(count: int, by_value: bool) -> dict[str, CodeType]:
    """Methods that are worth writing out for speed, for `count` fields called _0, _1, ...

    Compiling them for each class would be most of what a class costs: classes put their own
    names into the code of all with as many fields.
    """
    parameters = "".join(f", _{i}" for i in range(count))
    sets = "; ".join(f"self._{i} = _{i}" for i in range(count)) or "pass"
    text = f"def __init__(self{parameters}): {sets}\n"
    if by_value:
        own, others = ("".join(f"{who}._{i}, " for i in range(count)) for who in ("self", "other"))
        text += (
            "def __eq__(self, other):\n"
            "    if self is other:\n        return True\n"
            "    if self.__class__ is not other.__class__:\n        return NotImplemented\n"
            f"    return ({own}) == ({others})\n"
            f"def __hash__(self):\n    return hash((self.__class__, {own}))\n"
        )
    made = defined(text, f"methods of {count} fields", {})
    return {name: method.__code__ for name, method in made.items()}


def _renamed(held: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names[int(name[1:])] if name[1:].isdigit() else name for name in held)


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({fields})"
