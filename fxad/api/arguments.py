"""Which arguments of a jitted function are static or donated, by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.flat import name_of
from fxad.core.errors import BadArgument


def static_arguments(
    function: Callable[..., Any], numbers: Sequence[int], names: Sequence[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Static positions and names, each completed by the other through the signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count = len(positional)
    all_numbers = set(positions(function, numbers, "static_argnums"))
    for name in names:
        known = {p.name for p in parameters}
        if (
            parameters
            and name not in known
            and not any(p.kind is p.VAR_KEYWORD for p in parameters)
        ):
            raise BadArgument(
                f"jit: static_argnames has {name!r}, but {name_of(function)} takes "
                f"{', '.join(sorted(known)) or 'no arguments'}"
            )
    all_names = set(names) | {positional[n] for n in all_numbers if n < count}
    all_numbers |= {positional.index(n) for n in names if n in positional}
    return frozenset(all_numbers), frozenset(all_names)


def positions(function: Callable[..., Any], numbers: Sequence[int], what: str) -> frozenset[int]:
    """Argument positions, counted from the front. Raises BadArgument where there is none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return frozenset(numbers)
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    for number in numbers:
        if not -count <= number < count and not (open_ended and number >= 0):
            raise BadArgument(
                f"jit: {what} has {number}, but {name_of(function)} takes {count} positional "
                "arguments"
            )
    return frozenset(n + count if n < 0 else n for n in numbers)


def as_tuple(value: Any) -> tuple:
    if value is None:
        return ()
    if isinstance(value, int | str):
        return (value,)
    return tuple(value)
