"""Rotary positions, and the ways in which published models stretch them for longer texts.

    tables = rotary_tables(time=128, dim=64, theta=10000.0)      # cosines, sines: [128, 64]
    q = rotary(q, *tables)                                      # [batch, time, heads, head_dim]

The angle of position t and pair i is t / theta^(2i / dim) (Su et al., 2021), each pair being
(i, i + dim / 2) as in the published Llama weights. A `RopeScaling` changes the frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core.schema import shown
from fxad_nn.errors import ConfigError

KINDS = ("linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class RopeScaling:
    """How the rotary frequencies f are stretched by `factor` for a context beyond the original.

    kind:
      linear    f / factor (Chen et al., 2023)
      dynamic   a theta that grows with the text beyond the original context (bloc97, 2023)
      llama3    f / factor where fewer than low_frequency turns fit the original context, f where
                more than high_frequency do, a blend between (Llama 3.1)
      yarn      as llama3, blended by the index of the pair between beta_fast and beta_slow turns
                (Peng et al., 2023); truncate: whole indices
      longrope  f / short or f / long, whether or not the text fits the original context; one
                number for each pair (Ding et al., 2024)

    attention_factor: what cosines and sines are multiplied by (yarn and longrope).
    """

    factor: float = 8.0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_context: int = 8192
    kind: str = "llama3"
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise ConfigError(f"rotary scaling is one of {kinds}, not {shown(self.kind)}")
        if not self.factor > 0 or self.original_context < 1:
            raise ConfigError(
                f"rotary scaling needs a positive factor and context, got {self.factor} and "
                f"{self.original_context}"
            )
        if self.kind == "llama3" and self.high_frequency == self.low_frequency:
            raise ConfigError("rotary scaling llama3 needs two different frequencies")
        if len(self.short) != len(self.long) or bool(self.short) != (self.kind == "longrope"):
            raise ConfigError(
                "rotary scaling longrope needs as many short as long factors, other kinds none; "
                f"got {len(self.short)} and {len(self.long)} for {self.kind}"
            )


def rotary_tables(
    time: int,
    dim: int,
    theta: float,
    scaling: RopeScaling | None = None,
    length: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines, each [time, dim] float32, of rotary positions 0 ... time-1.

    length: the length of the text for which `dynamic` and `longrope` choose frequencies; `time`
    unless given. NumPy on purpose: constants of the program.
    """
    frequencies, size = _powers(dim, theta), 1.0
    if scaling is not None:
        size = scaling.attention_factor
        frequencies = _SCALED[scaling.kind](scaling, dim, theta, length or time)
    angles = np.outer(np.arange(time, dtype=np.float32), frequencies).astype(np.float32)
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles) * np.float32(size), np.sin(angles) * np.float32(size)


def rotary(x: Any, cosines: Any, sines: Any) -> Any:
    """Rotate pairs of x [batch, time, heads, head_dim] by its position's angles.

    Tables are [time, dim], or [batch, time, dim] where positions differ between texts. Fewer than
    head_dim columns rotate so many of the first elements.
    """
    turning = cosines.shape[-1]
    if turning < x.shape[-1]:
        turned = rotary(x[..., :turning], cosines, sines)
        return jnp.concatenate([turned, x[..., turning:]], axis=-1)
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    cosines = jnp.asarray(cosines, x.dtype)[..., None, :]
    sines = jnp.asarray(sines, x.dtype)[..., None, :]
    return x * cosines + turned * sines


def _powers(dim: int, theta: float) -> np.ndarray:
    """1 / theta^(2i / dim) of every pair: [dim / 2] float32."""
    powers = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return (1.0 / np.float32(theta) ** powers).astype(np.float32)


def _linear(s: RopeScaling, dim: int, theta: float, length: int) -> np.ndarray:
    return _powers(dim, theta) / np.float32(s.factor)


def _dynamic(s: RopeScaling, dim: int, theta: float, length: int) -> np.ndarray:
    stretch = s.factor * max(length, s.original_context) / s.original_context - (s.factor - 1)
    return _powers(dim, theta * stretch ** (dim / (dim - 2)))


def _llama3(s: RopeScaling, dim: int, theta: float, length: int) -> np.ndarray:
    frequencies = _powers(dim, theta)
    turns = s.original_context * frequencies / (2 * math.pi)
    kept = np.clip((turns - s.low_frequency) / (s.high_frequency - s.low_frequency), 0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / s.factor)


def _yarn(s: RopeScaling, dim: int, theta: float, length: int) -> np.ndarray:
    def pair_of(turns: float) -> float:
        """The index of the pair that turns so often within the original context."""
        return dim * math.log(s.original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(s.beta_fast), pair_of(s.beta_slow)
    if s.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low or 0.001
    stretched = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / width, 0.0, 1.0)
    return _powers(dim, theta) * (stretched / s.factor + (1.0 - stretched))


def _longrope(s: RopeScaling, dim: int, theta: float, length: int) -> np.ndarray:
    factors = np.asarray(s.long if length > s.original_context else s.short, np.float32)
    if len(factors) != dim // 2:
        raise ConfigError(f"longrope has {len(factors)} factors for {dim // 2} pairs")
    return _powers(dim, theta) / factors


_SCALED: dict[str, Callable[[RopeScaling, int, float, int], np.ndarray]] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
