"""The layers GPT-2 and Llama are made of, as pure functions over dicts of arrays.

    y = linear(p["up"], rms_norm(p["norm"], x, epsilon=1e-5))    # [batch, time, hidden]

Every function of the form `layer(p, x)` has a `layer_spec` that builds the spec of its `p`.
Weights are stored [in, out], so that `x @ weight` needs no transpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad_nn.spec import Leaf, normal, ones, zeros


def linear_spec(
    size: tuple[int, int], axes: tuple[str, str], std: float, bias: bool, dtype: str
) -> dict[str, Leaf]:
    """A matrix [in, out] with normal(std) entries, and a zero bias [out] where asked for."""
    spec = {"weight": Leaf(size, dtype, axes, normal(std))}
    if bias:
        spec["bias"] = Leaf(size[1:], dtype, axes[1:], zeros)
    return spec


def linear(p: dict[str, Any], x: Any, products: str | None = None) -> Any:
    """x [..., in] -> [..., out]; factors are rounded to the dtype `products`, if given."""
    y = x @ p["weight"] if products is None else product(x, p["weight"], products)
    return y + p["bias"] if "bias" in p else y


@partial(fxad.custom_vjp, nondiff_argnums=(2,))
def product(x: Any, weight: Any, dtype: str) -> Any:
    """x [..., in] times weight [in, out], both rounded to `dtype`, summed and left in float32.

    Backward, the result's gradient is rounded too; the gradients of x and of weight are not.
    """
    return fxad.lax.dot_general(
        x.astype(dtype),
        weight.astype(dtype),
        (((x.ndim - 1,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def _product_forward(x: Any, weight: Any, dtype: str) -> tuple[Any, tuple[Any, Any]]:
    x = x.astype(dtype)
    return product(x, weight, dtype), (x, weight)


def _product_backward(dtype: str, saved: tuple[Any, Any], d_y: Any) -> tuple[Any, Any]:
    x, weight = saved
    d_y = d_y.astype(dtype)
    lead = tuple(range(x.ndim - 1))
    dot = partial(fxad.lax.dot_general, preferred_element_type=jnp.float32)
    d_x = dot(d_y, weight.astype(dtype), (((x.ndim - 1,), (1,)), ((), ())))
    return d_x, dot(x, d_y, ((lead, lead), ((), ()))).astype(weight.dtype)


product.defvjp(_product_forward, _product_backward)


def embedding_spec(size: tuple[int, int], axes: tuple[str, str], std: float, dtype: str) -> Leaf:
    """A table of `size[0]` rows with normal(std) entries."""
    return Leaf(size, dtype, axes, normal(std))


def embedding(table: Any, ids: Any) -> Any:
    """table [rows, width], ids [...] integers -> [..., width]."""
    return table[ids]


def norm_spec(width: int, bias: bool, dtype: str) -> dict[str, Leaf]:
    """The scale, and where asked for the bias, of a layer or RMS norm."""
    spec = {"scale": Leaf((width,), dtype, ("width",), ones)}
    if bias:
        spec["bias"] = Leaf((width,), dtype, ("width",), zeros)
    return spec


def layer_norm(p: dict[str, Any], x: Any, epsilon: float) -> Any:
    """Normalise the last axis to mean 0 and variance 1 in float32 (Ba et al., 2016)."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    y = (centred * fxad.lax.rsqrt(variance + epsilon)).astype(x.dtype) * p["scale"]
    return y + p["bias"] if "bias" in p else y


def rms_norm(p: dict[str, Any], x: Any, epsilon: float) -> Any:
    """Divide the last axis by its root mean square in float32 (Zhang and Sennrich, 2019)."""
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * fxad.lax.rsqrt(mean_square + epsilon)).astype(x.dtype) * p["scale"]


@dataclass(frozen=True)
class RopeScaling:
    """How Llama 3.1 and later stretch the rotary frequencies for a longer context."""

    factor: float = 8.0
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_context: int = 8192


def rotary_tables(
    time: int, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The cosines and sines, each [time, head_dim] float32, of rotary positions 0 ... time-1.

    The angle of position t and pair i is t / theta^(2i / head_dim) (Su et al., 2021), each pair
    being (i, i + head_dim / 2) as in the published Llama weights. With `scaling`, frequencies
    whose wavelength exceeds the original context are divided by `factor`, those well below are
    kept, and those between are blended (Llama 3.1). NumPy on purpose: constants of the program.
    """
    powers = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = (1.0 / np.float32(theta) ** powers).astype(np.float32)
    if scaling is not None:
        turns = scaling.original_context * frequencies / (2 * math.pi)
        low, high = scaling.low_frequency, scaling.high_frequency
        blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
        frequencies = frequencies * (blend + (1.0 - blend) / scaling.factor)
    angles = np.outer(np.arange(time, dtype=np.float32), frequencies).astype(np.float32)
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles), np.sin(angles)


def rotary(x: Any, cosines: Any, sines: Any) -> Any:
    """Rotate pairs of x [batch, time, heads, head_dim] by its position's angles."""
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    cosines = jnp.asarray(cosines, x.dtype)[:, None, :]
    sines = jnp.asarray(sines, x.dtype)[:, None, :]
    return x * cosines + turned * sines


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax attention in which a position sees itself and earlier ones.

    q [batch, time, heads, dim]; k, v [batch, time, groups, dim], where every group of
    heads / groups consecutive query heads shares one key and value head (Ainslie et al., 2023).
    Returns [batch, time, heads * dim]. Scores and softmax are float32.
    """
    out = fxad.nn.dot_product_attention(q, k, v, is_causal=True)
    return out.reshape(*out.shape[:2], -1)
