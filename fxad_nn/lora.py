"""Low-rank adapters beside frozen weights (Hu et al., 2021).

    params = add_lora(params, config, 16, 32.0, "all-linear", fxad.random.key(0))
    trained, frozen = fxad.tree.partition(params, trainable(params))
    ...                                             # train; frozen leaves have no gradient
    merged, rounding = merge_lora(fxad.tree.combine(trained, frozen), config)

A weight W of `fxad_nn.layers.linear` gets a neighbour p["lora"] with a [rank, in], b [out, rank]
and scale []; the layer then computes x Wᵀ + scale (x aᵀ) bᵀ. a starts as in PEFT (Kaiming uniform,
that is, uniform within 1 / sqrt(in)) and b at zero, so that a fresh adapter changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad_nn import gpt2, models
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.families import family_of
from fxad_nn.quantized import is_quantized
from fxad_nn.spec import Initialiser, Leaf, init_params, named_leaves, zeros
from fxad_nn.token_rows import merge_rows, without_rows

ALL_LINEAR = "all-linear"
"""Every linear layer but the head, as in PEFT."""


@dataclass(frozen=True)
class Lora:
    """Which weights get adapters, and how large these are.

    targets: published names of modules, such as ("q_proj", "v_proj"), or their ends; or
    "all-linear". rslora: scale by alpha / sqrt(rank) (Kalajdzievski, 2023) instead of alpha / rank.
    dropout: of the adapter's input, while it is trained.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...] | str = ALL_LINEAR
    rslora: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"the rank of an adapter must be at least 1, got {self.rank}")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ConfigError(f"an adapter's alpha must be a positive number, got {self.alpha}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {self.dropout}")
        if not self.targets:
            raise ConfigError('an adapter needs targets, such as ("q_proj", "v_proj")')

    @property
    def scale(self) -> float:
        """What the adapter's product is multiplied by."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


def add_lora(
    params: Any,
    config: models.Config,
    rank: int,
    alpha: float,
    targets: tuple[str, ...] | str,
    key: Any,
    rslora: bool = False,
) -> Any:
    """The parameters with a fresh float32 adapter beside every weight that `targets` names.

    The tree is new, its arrays are those of `params`. Raises ConfigError for a target that no
    weight has.
    """
    spec = adapter_specs(config, Lora(rank, alpha, targets, rslora))
    return with_adapters(params, init_params(spec, key))


def with_adapters(params: Any, adapters: dict[str, dict[str, Any]]) -> Any:
    """A tree with these adapters, by the names of their modules ("blocks.0.attention.q"), in it."""
    return changed(params, lambda name, tree: {**tree, "lora": adapters[name]}, set(adapters), "")


def adapter_specs(config: models.Config, lora: Lora) -> dict[str, dict[str, Leaf]]:
    """The leaves of every adapter, by the name of its module."""
    specs = {}
    for name in targeted(config, lora.targets):
        size_in, size_out = linear_modules(config)[name]
        bound = 1.0 / math.sqrt(size_in)
        specs[name] = {
            "a": Leaf((lora.rank, size_in), "float32", ("rank", "in"), _uniform(bound)),
            "b": Leaf((size_out, lora.rank), "float32", ("out", "rank"), zeros),
            "scale": Leaf((), "float32", (), _filled(lora.scale)),
        }
    return specs


@lru_cache(maxsize=1024)
def _uniform(bound: float) -> Initialiser:
    def init(key: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return fxad.random.uniform(key, shape, jnp.float32, -bound, bound).astype(dtype)

    return init


def _filled(value: float) -> Initialiser:
    return lambda key, shape, dtype: jnp.full(shape, value, dtype)


NO_HEAD = "its head is the table that embeds tokens, so that it has none of its own to adapt"
"""Said of a model whose head is tied."""


def linear_modules(config: models.Config) -> dict[str, tuple[int, int]]:
    """(in, out) of every linear layer of a model, by its name: "blocks.0.mlp.up".

    Not of experts and what routes to them, which are no linear layers in transformers either.
    """
    found = {}
    for name, leaf in named_leaves(models.family(config).spec(config)):
        module, _, kind = name.rpartition(".")
        if kind == "weight" and len(leaf.shape) == 2 and not module.endswith(".router"):
            first, last = leaf.shape
            found[module] = (first, last) if _is_conv1d(module, config) else (last, first)
    return found


def _is_conv1d(module: str, config: models.Config) -> bool:
    """Whether a module's weight is [in, out], as `fxad_nn.layers.conv1d` has it."""
    return isinstance(config, gpt2.Config) and module.startswith("blocks.")


def targeted(config: models.Config, targets: tuple[str, ...] | str) -> list[str]:
    """The modules that the targets name, by our names. ConfigError for a target without any.

    A target names a module by its published name or by the end of it after a dot, as in PEFT, or is
    "all-linear": all but the head.
    """
    modules = {name: family_of(config).published(name) for name in linear_modules(config)}
    wanted = (targets,) if isinstance(targets, str) else targets
    found: set[str] = set()
    for target in wanted:
        some = {n for n, theirs in modules.items() if f".{theirs}".endswith(f".{target}")}
        if target == ALL_LINEAR:
            some = {name for name in modules if name.startswith("blocks.")}
        if not some and config.tied and target == "lm_head":
            raise ConfigError(f"no linear layer of this model is called 'lm_head': {NO_HEAD}")
        if not some:
            ends = {theirs.rpartition(".")[2] for theirs in modules.values()} | {ALL_LINEAR}
            raise ConfigError(
                f"no linear layer of this model is called {target!r}{did_you_mean(target, ends)}"
            )
        found |= some
    return [name for name in modules if name in found]


def adapters_of(params: Any, name: str = "") -> dict[str, dict[str, Any]]:
    """The adapters in a tree, by the names of their modules."""
    inner = f"{name}." if name else ""
    if isinstance(params, list):
        children = [(f"{inner}{i}", child) for i, child in enumerate(params)]
    elif isinstance(params, dict):
        children = [(f"{inner}{k}", child) for k, child in params.items() if k != "lora"]
    else:
        return {}
    found = {name: params["lora"]} if isinstance(params, dict) and "lora" in params else {}
    for path, child in children:
        found |= adapters_of(child, path)
    return found


def without_adapters(params: Any) -> Any:
    """The parameters without their adapters, and without rows of tokens (`fxad_nn.token_rows`):
    what they were before `add_lora`."""

    def bare(name: str, tree: Any) -> Any:
        return {kind: leaf for kind, leaf in tree.items() if kind != "lora"}

    return without_rows(changed(params, bare, set(adapters_of(params)), ""))


def trainable(params: Any) -> Any:
    """A tree of bools for `fxad.tree.partition`: true for the a and b of adapters and the
    values of rows alone. A `Quantized` matrix is one leaf: partition with is_leaf=is_quantized
    where there are some."""

    def is_factor(path: fxad.tree.KeyPath, leaf: Any) -> bool:
        keys = [getattr(step, "key", None) for step in path[-2:]]
        return keys in (["lora", "a"], ["lora", "b"], ["rows", "values"])

    return fxad.tree.map_with_path(is_factor, params, is_leaf=is_quantized)


def with_dropout(params: Any, rate: float, key: Any) -> Any:
    """The parameters for one training step: the input of each adapter loses a share `rate` of its
    elements, by a key of its own; the others grow by 1 / (1 - rate)."""
    if rate == 0:
        return params
    adapters = adapters_of(params)
    keys = dict(zip(sorted(adapters), fxad.random.split(key, len(adapters)), strict=True))
    dropped = {
        name: {**leaves, "dropout": {"key": keys[name], "rate": jnp.float32(rate)}}
        for name, leaves in adapters.items()
    }
    return with_adapters(params, dropped)


@dataclass(frozen=True)
class Rounding:
    """The largest error that merging made in a weight, and in which one."""

    largest: float
    name: str


def merge_lora(params: Any, config: models.Config) -> tuple[Any, Rounding]:
    """The parameters with every adapter added to its weight, rows of tokens in their tables, and
    what the adapters cost.

    W + scale b a is computed in float32 and rounded once to the dtype of W. Raises ConfigError
    where W is quantised: the sum would lose what was learned.
    """
    adapters = adapters_of(params)
    worst = Rounding(0.0, "")

    def merged(name: str, tree: Any) -> Any:
        nonlocal worst
        if is_quantized(tree["weight"]):
            raise ConfigError(
                f"{name} is in {tree['weight'].format}: put the adapters beside the weights that "
                "it was made of (load_adapters) and merge them into those"
            )
        exact = np.asarray(tree["weight"]).astype(np.float32)
        leaves = {k: np.asarray(v, np.float32) for k, v in tree["lora"].items()}
        delta = leaves["scale"] * (leaves["b"] @ leaves["a"])
        exact += delta.T if _is_conv1d(name, config) else delta
        rounded = exact.astype(tree["weight"].dtype)
        error = float(np.abs(rounded.astype(np.float32) - exact).max())
        worst = max(worst, Rounding(error, name), key=lambda rounding: rounding.largest)
        return {**tree, "weight": jnp.asarray(rounded)}

    whole = merge_rows(changed(params, merged, set(adapters), ""))
    return without_adapters(whole), worst


def changed(tree: Any, change: Callable[[str, Any], Any], names: set[str], name: str) -> Any:
    """The tree with the modules of these names changed: change(name, module) -> module."""
    if name in names:
        return change(name, tree)
    inner = f"{name}." if name else ""
    if isinstance(tree, list):
        return [changed(c, change, names, f"{inner}{i}") for i, c in enumerate(tree)]
    if isinstance(tree, dict):
        return {k: changed(c, change, names, f"{inner}{k}") for k, c in tree.items()}
    return tree
