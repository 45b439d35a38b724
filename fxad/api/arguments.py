"""Which arguments of a jitted function are static or donated, by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.flat import name_of
from fxad.core.errors import BadArgument, TypeMismatch


def chosen_arguments(
    function: Callable[..., Any], kind: str, numbers: Any, names: Any
) -> tuple[frozenset[int], frozenset[str]]:
    """The positions and names that `{kind}_argnums` and `{kind}_argnames` choose.

    Where only one of them is given the other follows from the signature. Raises BadArgument for
    positions and names that the function does not have.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        if names is not None and numbers is None:
            raise BadArgument(
                f"jit: the signature of {name_of(function)} is not known; give {kind}_argnums "
                f"instead of {kind}_argnames"
            ) from None
        return frozenset(as_tuple(numbers)), frozenset(as_tuple(names))
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    all_numbers = _positions(function, parameters, as_tuple(numbers), f"{kind}_argnums")
    all_names = set(as_tuple(names))
    if all_names - set(named) and (
        not any(p.kind is p.VAR_KEYWORD for p in parameters)
        or all_names & {p.name for p in parameters if p.name not in named}
    ):
        raise BadArgument(
            f"jit: {kind}_argnames has {sorted(all_names - set(named))}, but "
            f"{name_of(function)} takes {', '.join(named) or 'no arguments'} by name"
        )
    if names is None:
        all_names = {positional[n] for n in all_numbers if 0 <= n < len(positional)}
        all_names &= set(named)
    if numbers is None:
        all_numbers = frozenset(positional.index(n) for n in all_names if n in positional)
    return all_numbers, frozenset(all_names)


def _positions(
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    numbers: Sequence[int],
    what: str,
) -> frozenset[int]:
    """Argument positions, counted from the front. Raises BadArgument where there is none."""
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    for number in numbers:
        if not -count <= number < count and not open_ended:
            raise BadArgument(
                f"jit: {what} has {number}, but {name_of(function)} takes {count} positional "
                "arguments"
            )
    return frozenset(n + count if n < 0 else n for n in numbers)


def check_function(function: Any) -> None:
    """Raise TypeMismatch for what `jit` cannot call, or could not trace."""
    if isinstance(function, staticmethod):
        raise TypeMismatch("jit got a staticmethod: write @staticmethod above @jit")
    if not callable(function):
        raise TypeMismatch(f"jit expects a function, got {type(function).__name__}")
    if inspect.isgeneratorfunction(function):
        raise TypeMismatch(
            f"jit expects a function that returns, but {name_of(function)} yields: return a list"
        )


def as_tuple(value: Any) -> tuple:
    if value is None:
        return ()
    if isinstance(value, int | str):
        return (value,)
    return tuple(value)
