"""Functions that take JAX's keywords for several devices, where these ask for the one there is.

zeros = on_one_device(fxad.numpy.zeros, ("out_sharding",))
zeros(3, out_sharding=None)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.placement import check_places
from fxad.core.errors import BadArgument


def on_one_device(function: Callable[..., Any], keywords: Sequence[str]) -> Callable[..., Any]:
    """The function with keywords that name a place or a group of lanes: None, no axes, or the
    place there is. Raises BadArgument, when it is called, for another."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    new = [keyword for keyword in keywords if keyword not in signature.parameters]
    if not new or isinstance(function, type):
        return function

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for keyword in new:
            value = kwargs.pop(keyword, None)
            if value is None or (keyword == "reduce_axes" and not len(value)):
                continue
            if not keyword.endswith("sharding"):
                name = getattr(function, "__name__", "function")
                raise BadArgument(f"{name}: there is one device, so {keyword} must be None")
            check_places(f"{getattr(function, '__name__', 'function')}: {keyword}", value)
        return function(*args, **kwargs)

    parameters = list(signature.parameters.values())
    at = sum(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)
    added = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=None) for k in new]
    wrapped.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:at], *added, *parameters[at:]]
    )
    return wrapped
