"""A model as one tree of leaf specifications, from which everything else derives.

spec = {"weight": Leaf((3, 4), "float32", ("in", "out"), normal(0.02)),
        "bias": Leaf((4,), "float32", ("out",), zeros)}
params = init_params(spec, fxad.random.key(0))      # the same tree, with arrays
count_params(spec)                                  # 16
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError

MOST_ELEMENTS = 1 << 40
MOST_LAYERS = 10_000
"""Beyond any model there is: a damaged configuration must not fill the memory."""

Initialiser = Callable[[Any, tuple[int, ...], str], Any]


@dataclass(frozen=True)
class Leaf:
    """One parameter: its shape, dtype, the name of every axis, and how it starts.

    `axes` names what each axis means ("vocab", "width", "heads", ...), so that a rule such as
    "split heads over devices" can be stated once for a whole model.
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    init: Initialiser

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.axes):
            raise ConfigError(f"shape {self.shape} has {len(self.shape)} axes, names {self.axes}")
        if any(size < 1 for size in self.shape):
            raise ConfigError(f"every axis of a parameter must be at least 1 long: {self.shape}")
        if self.size > MOST_ELEMENTS:
            raise ConfigError(f"one parameter of shape {self.shape} would hold {self.size} numbers")

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def normal(std: float) -> Initialiser:
    """Independent normal values with mean 0 and standard deviation `std`."""

    def init(key: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return (fxad.random.normal(key, shape, jnp.float32) * std).astype(dtype)

    return init


def zeros(key: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """All zeros; the key is not used."""
    return jnp.zeros(shape, dtype)


def ones(key: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """All ones; the key is not used."""
    return jnp.ones(shape, dtype)


def named_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree of dicts and lists as ("blocks.0.norm.scale", leaf), in tree order.

    None has no leaves, as everywhere in `fxad.tree`.
    """
    if isinstance(tree, dict):
        children = [(str(key), tree[key]) for key in sorted(tree)]
    elif isinstance(tree, list):
        children = [(str(index), child) for index, child in enumerate(tree)]
    else:
        if tree is not None:
            yield prefix, tree
        return
    for name, child in children:
        yield from named_leaves(child, f"{prefix}.{name}" if prefix else name)


def from_named(like: Any, leaves: dict[str, Any], prefix: str = "") -> Any:
    """The tree shaped like `like` (dicts and lists) whose leaves are looked up by name.

    Raises KeyError with the name of a leaf that `leaves` does not hold.
    """
    if isinstance(like, dict):
        return {k: from_named(v, leaves, f"{prefix}.{k}" if prefix else k) for k, v in like.items()}
    if isinstance(like, list):
        pairs = ((f"{prefix}.{i}" if prefix else str(i), v) for i, v in enumerate(like))
        return [from_named(v, leaves, name) for name, v in pairs]
    return None if like is None else leaves[prefix]


def init_params(spec: Any, key: Any) -> Any:
    """Fresh parameters in the shape of `spec`; every leaf gets its own key.

    Runs leaf by leaf outside `fxad.jit`, or compiled: `fxad.jit(partial(init_params, spec))(key)`.
    """
    names = [name for name, _ in named_leaves(spec)]
    keys = dict(zip(names, fxad.random.split(key, len(names)), strict=True))
    leaves = {
        name: leaf.init(keys[name], leaf.shape, leaf.dtype) for name, leaf in named_leaves(spec)
    }
    return from_named(spec, leaves)


def count_params(spec: Any) -> int:
    """How many numbers a model with this spec has; tied parameters appear once in a spec."""
    return sum(leaf.size for _, leaf in named_leaves(spec))
