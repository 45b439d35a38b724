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
from functools import lru_cache
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


@lru_cache(maxsize=1024)  # one function for a number: layers of one shape are compiled once
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


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a pytree as ("blocks.0.norm.scale", leaf), in tree order."""
    for path, leaf in fxad.tree.leaves_with_path(tree):
        yield _dotted(path), leaf


def _dotted(path: Any) -> str:
    """The keys, indices and fields of a path, joined."""
    return fxad.tree.keystr(path, simple=True, separator=".")


def from_named(like: Any, leaves: dict[str, Any]) -> Any:
    """The tree shaped like `like` whose leaves are looked up by name.

    Raises KeyError with the name of a leaf that `leaves` does not hold.
    """
    return fxad.tree.map_with_path(lambda path, _: leaves[_dotted(path)], like)


def init_params(spec: Any, key: Any) -> Any:
    """Fresh parameters in the shape of `spec`; every leaf gets its own key.

    Leaf by leaf, the large ones compiled, once for each shape: beside the parameters there is never
    more in memory than one leaf, and never a float32 copy of a narrower one. All at once under
    `fxad.jit(partial(init_params, spec))(key)`: the same bits, but for roundings in small leaves.
    """
    names = [name for name, _ in named_leaves(spec)]
    keys = dict(zip(names, fxad.random.split(key, len(names)), strict=True))
    leaves = {
        name: _initialiser(leaf)(keys[name], leaf.shape, leaf.dtype)
        for name, leaf in named_leaves(spec)
    }
    return from_named(spec, leaves)


LARGE = 1 << 13
"""Elements from which compiling an initialiser pays off."""


def _initialiser(leaf: Leaf) -> Initialiser:
    return _compiled(leaf.init) if leaf.size >= LARGE else leaf.init


@lru_cache(maxsize=1024)
def _compiled(init: Initialiser) -> Initialiser:
    made: Initialiser = fxad.jit(init, static_argnums=(1, 2))
    return made


def count_params(spec: Any) -> int:
    """How many numbers a model with this spec has; tied parameters appear once in a spec."""
    return sum(leaf.size for _, leaf in named_leaves(spec))
