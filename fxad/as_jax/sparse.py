"""Names of `jax.experimental.sparse`: there are no sparse arrays, so nothing is one.

isinstance(x, BCOO)                # False
BCOO.fromdense(x)                  # UnsupportedError
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from fxad.core.errors import UnsupportedError

__all__ = ["BCOO", "BCSR", "JAXSparse", "sparsify"]


def _absent(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: there are no sparse arrays; use a dense one (`fxad.sparse_jacobian` has a "
        "format of its own)"
    )


class JAXSparse:
    """A sparse array in JAX. Raises UnsupportedError where one is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _absent(type(self).__name__)

    @classmethod
    def fromdense(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises UnsupportedError."""
        raise _absent(f"{cls.__name__}.fromdense")

    @classmethod
    def from_scipy_sparse(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises UnsupportedError."""
        raise _absent(f"{cls.__name__}.from_scipy_sparse")


class BCOO(JAXSparse):
    """Elements with their indices."""


class BCSR(JAXSparse):
    """Elements row after row."""


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """The function itself: no argument of it is sparse."""
    return f
