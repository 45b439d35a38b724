"""Names of `jax.experimental.checkify` that packages use when they are imported, and `check`.

Exceptions of callbacks reach the caller of compiled code, so a failed check raises where the
function is called; `checkify` itself, which returns errors as values, is not here.
"""

from __future__ import annotations

import builtins
from typing import Any

import fxad.debug
from fxad.core.errors import FxadError

__all__ = [
    "Error",
    "ErrorCategory",
    "JaxRuntimeError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "div_checks",
    "float_checks",
    "index_checks",
    "nan_checks",
    "user_checks",
]


class ErrorCategory:
    """A kind of check, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class JaxRuntimeError(FxadError, ValueError):
    """A check that failed."""


class Error:
    """What checks found: nothing, since those that fail raise."""

    def get(self) -> str | None:
        """None."""
        return None

    def throw(self) -> None:
        """Nothing to raise."""


user_checks = frozenset({ErrorCategory("user")})
nan_checks = frozenset({ErrorCategory("nan")})
index_checks = frozenset({ErrorCategory("index")})
div_checks = frozenset({ErrorCategory("div")})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise JaxRuntimeError with `msg.format(*fmt_args, **fmt_kwargs)` when the predicate, or an
    element of it, is false: at once, or when the compiled function runs."""

    def raise_if_false(holds: Any, *args: Any, **kwargs: Any) -> None:
        if not builtins.bool(holds.all()):
            raise JaxRuntimeError(f"{msg.format(*args, **kwargs)} (`check` failed)")

    fxad.debug.callback(raise_if_false, pred, *fmt_args, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise what an Error holds: nothing."""
    error.throw()
