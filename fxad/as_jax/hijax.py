"""Names of `jax.experimental.hijax`, types of values that a user defines: there are none here.

Packages derive from these classes and register with these functions when they are imported
(`flax.nnx`). That is accepted; to bind such a primitive, or to make such a value, is an
UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from fxad.api.shaped_array import AbstractValue, ShapedArray
from fxad.as_jax.core import Effect
from fxad.as_jax.refs import AbstractRef, TransformedRef
from fxad.core.errors import UnsupportedError

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "HiPrimitive",
    "HiType",
    "MutableHiType",
    "ShapedArray",
    "TransformedRef",
    "VJPHiPrimitive",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "cur_qdd",
    "instantiate_zeros",
    "is_undefined_primal",
    "register_hitype",
]


def _absent(name: str) -> UnsupportedError:
    return UnsupportedError(f"{name}: values of hijax types are absent; use arrays and pytrees")


class HiPrimitive:
    """A primitive on hijax values, which a package may define. Raises UnsupportedError if bound."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raises UnsupportedError."""
        raise _absent(self.name)


class _Unmade:
    """Raises UnsupportedError where one is made; classes may derive from it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _absent(cls.__name__)


class VJPHiPrimitive(_Unmade):
    """A primitive with rules of its own."""


class HiType(_Unmade, AbstractValue):
    """The type of a hijax value."""


class MutableHiType(_Unmade, AbstractValue):
    """The type of a hijax value that changes."""


class AvalQDD(_Unmade):
    """A type with what is known of its contents."""


class AvalMutableQDD(_Unmade):
    """A type with what is known of its contents, which change."""


class Zero(_Unmade):
    """A tangent or cotangent that is zero."""


class aval_property(NamedTuple):
    """A property of values, written at their type."""

    fget: Callable[..., Any]


class aval_method(NamedTuple):
    """A method of values, written at their type."""

    fun: Callable[..., Any]


class EffectTypeSet:
    """Kinds of effects, as packages name them."""

    def __init__(self) -> None:
        self._kinds: set[type[Effect]] = set()

    def add_type(self, effect_type: type[Effect]) -> None:
        self._kinds.add(effect_type)

    def contains(self, eff: Effect) -> bool:
        return isinstance(eff, tuple(self._kinds))


control_flow_allowed_effects = EffectTypeSet()


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Nothing: no value of the class reaches a transformation."""


def is_undefined_primal(x: Any) -> bool:
    """False: rules are given values only."""
    return False


def instantiate_zeros(tangent: Any) -> Any:
    """The tangent itself, which is never a symbolic zero."""
    return tangent


def cur_qdd(x: Any) -> NoReturn:
    """Raises UnsupportedError."""
    raise _absent("cur_qdd")
