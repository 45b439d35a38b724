"""Functions with rules of their own under `vmap`, under the names of `jax.custom_batching`.

>>> from fxad.custom_batching import custom_vmap, sequential_vmap
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.custom_vmap import custom_vmap
from fxad.api.naming import wraps
from fxad.core import pytree
from fxad.lax.loops import map as map_in_turn

__all__ = ["custom_vmap", "sequential_vmap"]


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """The function, computed for one example after the other under `vmap`."""
    made = custom_vmap(f)

    @made.def_vmap
    @wraps(f)
    def rule(size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        leaves, tree = pytree.flatten(args)
        batched = pytree.leaves(in_batched)

        def one(lanes: list[Any]) -> Any:
            given = iter(lanes)
            whole = [next(given) if b else v for v, b in zip(leaves, batched, strict=True)]
            return made(*tree.unflatten(whole))

        out = map_in_turn(one, [v for v, b in zip(leaves, batched, strict=True) if b])
        return out, pytree.map(lambda _: True, out)

    return made
