"""Which model families and presets exist, found by name.

config = preset("gpt2", vocab=50304)
model = family(config)                  # the module fxad_nn.gpt2 or fxad_nn.decoder
model.forward(params, tokens, config)
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from typing import Any, Protocol

import fxad.numpy as jnp
from fxad.core.schema import anything, check, nullable, number, one_of, record
from fxad_nn import decoder, gpt2
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.families import FAMILIES
from fxad_nn.loss import NONE, Penalties
from fxad_nn.options import build
from fxad_nn.precision import DTYPES as PRODUCTS
from fxad_nn.precision import products_of

Config = gpt2.Config | decoder.Config
PRESETS: dict[str, Config] = {
    name: config for family in FAMILIES.values() for name, config in family.presets.items()
}
DTYPES = ("float32", "float16", "bfloat16")
_SHORT = {name: products_of(name) for name in PRODUCTS}

DESCRIPTION = record(
    {"family": one_of(*FAMILIES)},
    {
        "dtype": one_of(*DTYPES),
        "products": nullable(one_of(*DTYPES)),
        "activations": nullable(one_of(*DTYPES)),
        "norm_epsilon": number(least=0),
        "rope_theta": number(above=0),
        "position_std": number(least=0),
    },
    others=anything,
)
"""What `from_dict` reads; the types of all fields are those of the configuration's dataclass."""


class Module(Protocol):
    """What a model's module offers."""

    def spec(self, config: Any) -> dict[str, Any]:
        """The tree of `Leaf`s."""

    def forward(self, params: Any, tokens: Any, config: Any, segments: Any = None) -> Any:
        """Logits [batch, time, vocab] of tokens [batch, time]. segments: int [batch, time], the
        documents that share a row, one after another; each is as it would be alone."""

    def shares_rows(self, config: Any, time: int) -> bool:
        """Whether documents in a row of so many tokens are as they would be alone."""

    def extend(
        self,
        params: Any,
        cache: Any,
        tokens: Any,
        position: Any,
        config: Any,
        seen: int | None = None,
    ) -> tuple[Any, Any]:
        """What the head sees of tokens that follow those in the cache, and the cache with them."""

    def head(self, params: Any, x: Any, config: Any) -> Any:
        """Logits [..., vocab] of what the head sees."""

    def loss(
        self,
        params: Any,
        batch: tuple[Any, Any],
        config: Any,
        segments: Any = None,
        penalties: Penalties = NONE,
        skip_ignored: bool = False,
    ) -> Any:
        """The mean cross-entropy of (tokens, targets), and what penalties add."""


def dtype_name(dtype: Any) -> str:
    """The one of `DTYPES` that a dtype of parameters means: given by that name or a short one such
    as "bf16", or as `fxad.numpy.zeros` takes it. ConfigError for any other."""
    name = _SHORT.get(dtype, dtype) if isinstance(dtype, str) else dtype
    is_array = hasattr(dtype, "__array__") and not isinstance(dtype, type)
    with contextlib.suppress(TypeError, ValueError):
        if (
            name is not None
            and not (is_array or isinstance(dtype, bytes))
            and (found := str(jnp.dtype(name))) in DTYPES
        ):
            return found
    said = repr(dtype) if isinstance(dtype, str) else getattr(dtype, "__name__", repr(dtype))
    raise ConfigError(f"parameters cannot be {said}; choose from {', '.join(DTYPES)}")


def preset(name: str, **changes: Any) -> Config:
    """A preset's configuration with some fields changed; fields it does not have are an error."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{did_you_mean(name, PRESETS)}")
    config = PRESETS[name]
    known = asdict(config)
    for field in changes:
        if field not in known:
            raise ConfigError(f"preset {name!r} has no field {field!r}{did_you_mean(field, known)}")
    return replace(config, **changes)


def family(config: Config) -> Module:
    """The module that implements models of this configuration."""
    return gpt2 if isinstance(config, gpt2.Config) else decoder


def decode(
    params: Any,
    cache: Any,
    tokens: Any,
    position: Any,
    config: Config,
    seen: int | None = None,
) -> tuple[Any, Any]:
    """(logits [batch, time, vocab], cache) of tokens [batch, time] that follow those in the cache.

    The tokens stand at position ... position + time - 1; `fxad_nn.cache.init_cache` makes the
    first cache. A `position` that is the Python int 0 reads a prompt in one pass of causal
    attention. seen: how many positions of the cache attention reads (default: all; fewer cost
    less). Raises ConfigError where tokens cannot fit; a traced position is not checked.
    """
    model = family(config)
    x, cache = model.extend(params, cache, tokens, position, config, seen)
    return model.head(params, x, config), cache


def to_dict(config: Config) -> dict[str, Any]:
    """A JSON-ready form of a configuration, with its family's name."""
    return asdict(config)


def from_dict(values: dict[str, Any], where: str) -> Config:
    """The configuration that `to_dict` wrote; `where` names its file in errors."""
    fields = check(values, DESCRIPTION, where, ConfigError)
    try:
        if fields["family"] == "gpt2":
            return build(gpt2.Config, fields, where)
        return build(decoder.Config, fields, where)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if where in message else f"{where}: {message}") from error
