"""Names that code written for JAX expects and that need nothing done here: one device, the host.

params = device_put(params)
with named_scope("attention"): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from fxad.core import pytree
from fxad.core.errors import BadArgument
from fxad.ops.control import POLICIES
from fxad.trace.array import Array, kept
from fxad.trace.convert import to_value

F = TypeVar("F", bound=Callable[..., Any])


def device_put(x: Any, device: Any = None) -> Any:
    """The tree with its leaves as Arrays (copied from NumPy arrays)."""
    return pytree.map(lambda leaf: kept(to_value(leaf)), x)


def device_get(x: Any) -> Any:
    """The tree with its Arrays as read-only NumPy arrays."""
    return pytree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x)


def block_until_ready(x: Any) -> Any:
    """The tree itself: results are ready when a call returns."""
    return x


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Does nothing: equations carry the line of the user's code instead of a scope."""
    yield


def named_call(function: F, *, name: str | None = None) -> F:
    """The function itself."""
    return function


def default_backend() -> str:
    """The platform results live on."""
    return "cpu"


class Policy:
    """What a checkpoint keeps; its name is `policy`."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def __repr__(self) -> str:
        return f"checkpoint_policies.{self.policy}"


class _Policies:
    """fxad.checkpoint_policies.dots_saveable and the like; JAX's other spellings too."""

    _OTHER: ClassVar[dict[str, str]] = {
        "checkpoint_dots": "dots_saveable",
        "checkpoint_dots_with_no_batch_dims": "dots_with_no_batch_dims_saveable",
        "dots_with_no_batch_dims": "dots_with_no_batch_dims_saveable",
        "dots": "dots_saveable",
    }

    def __getattr__(self, name: str) -> Policy:
        own = self._OTHER.get(name, name)
        if own not in POLICIES:
            raise BadArgument(f"unknown checkpoint policy {name!r}; known: {', '.join(POLICIES)}")
        return Policy(own)

    def save_only_these_names(self, *names: str) -> Policy:
        """Keep the values marked with checkpoint_name and one of these names."""
        return Policy("save_only_these_names:" + ",".join(names))


checkpoint_policies = _Policies()
