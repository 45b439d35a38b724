"""Names of `jax.extend.linear_util`: functions of flat values, as packages hand them to
`partial_eval`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["WrappedFun", "transformation", "wrap_init"]


class WrappedFun:
    """A function, called by `call_wrapped`. debug_info is kept and not looked at."""

    def __init__(
        self, f: Callable[..., Any], params: dict[str, Any] | None = None, debug_info: Any = None
    ) -> None:
        self.f, self.params, self.debug_info = f, dict(params or {}), debug_info

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **self.params, **kwargs)


def wrap_init(
    f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None
) -> WrappedFun:
    return WrappedFun(f, params, debug_info)


def transformation(
    gen: Callable[..., Iterator[Any]],
) -> Callable[..., WrappedFun]:
    """A function from (WrappedFun, *static) to a WrappedFun. gen(*static, *args, **kwargs) yields
    (arguments, keywords) for the former, is sent its result and yields that of the whole."""

    def of(fun: WrappedFun, *static: Any) -> WrappedFun:
        def call(*args: Any, **kwargs: Any) -> Any:
            running: Any = gen(*static, *args, **kwargs)
            inner, named = next(running)
            return running.send(fun.call_wrapped(*inner, **named))

        return WrappedFun(call, debug_info=fun.debug_info)

    return of
