"""Names of `jax.ref`: there are no mutable arrays, so nothing is an instance of these classes.

isinstance(x, Ref)                 # False
new_ref(0.0)                       # UnsupportedError
"""

from __future__ import annotations

from typing import Any, NoReturn

from fxad.core.errors import UnsupportedError

__all__ = ["AbstractRef", "Ref", "TransformedRef", "new_ref"]

_ABSENT = "there are no mutable arrays: return the new value, or carry it through a loop"


class Ref:
    """A mutable array in JAX. Raises UnsupportedError where one is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(f"Ref: {_ABSENT}")


class AbstractRef:
    """The type of a mutable array in JAX. Raises UnsupportedError where one is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(f"AbstractRef: {_ABSENT}")


class TransformedRef(AbstractRef):
    """A part of a mutable array in JAX. Raises UnsupportedError where one is made."""


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> NoReturn:
    """Raises UnsupportedError."""
    raise UnsupportedError(f"new_ref: {_ABSENT}")
