"""The layers that models are made of, as pure functions over dicts of arrays.

    y = linear(p["up"], rms_norm(p["norm"], x, epsilon=1e-5))    # [batch, time, hidden]

Every function of the form `layer(p, x)` has a `layer_spec` that builds the spec of its `p`.
Weights lie as they are published: those of `linear` [out, in], those of `conv1d`, which GPT-2
has, [in, out]. Neither product copies its weight to transpose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.dropout import dropped
from fxad_nn.quantized import is_quantized, quantized_product
from fxad_nn.spec import Leaf, normal, ones, zeros


def linear_spec(
    size: tuple[int, int], axes: tuple[str, str], std: float, bias: bool, dtype: str
) -> dict[str, Leaf]:
    """The spec of `linear` from size[0] to size[1]: a matrix [out, in] with normal(std) entries,
    and a zero bias [out] where asked for."""
    spec = {"weight": Leaf(size[::-1], dtype, axes[::-1], normal(std))}
    if bias:
        spec["bias"] = Leaf(size[1:], dtype, axes[1:], zeros)
    return spec


def conv1d_spec(
    size: tuple[int, int], axes: tuple[str, str], std: float, bias: bool, dtype: str
) -> dict[str, Leaf]:
    """As `linear_spec`, of `conv1d`: the matrix is [in, out]."""
    spec = {"weight": Leaf(size, dtype, axes, normal(std))}
    if bias:
        spec["bias"] = Leaf(size[1:], dtype, axes[1:], zeros)
    return spec


def linear(
    p: dict[str, Any], x: Any, products: str | None = None, result: str | None = None
) -> Any:
    """x [..., in] times the transpose of weight [out, in], and a bias: [..., out].

    Factors are rounded to the dtype `products`, and the sum to `result`, if given. An adapter
    beside the weight, p["lora"] = {"a": [rank, in], "b": [out, rank], "scale": float32 []}, adds
    scale (x aᵀ) bᵀ (Hu et al., 2021), computed in the adapter's dtype.
    """
    return stored(_affine(p, x, 1, products), result)


def conv1d(
    p: dict[str, Any], x: Any, products: str | None = None, result: str | None = None
) -> Any:
    """As `linear`, by a weight [in, out], which OpenAI called a convolution of width 1."""
    return stored(_affine(p, x, 0, products), result)


def stored(x: Any, dtype: str | None) -> Any:
    """x in the dtype that activations are stored in, if there is one."""
    return x if dtype is None else x.astype(dtype)


def _affine(p: dict[str, Any], x: Any, axis: int, products: str | None) -> Any:
    y = product(x, p["weight"], axis, products, unrounded="bias" in p)
    if "bias" in p:
        y = (y + p["bias"]).astype(x.dtype if products is None else y.dtype)
    return y + _low_rank(p["lora"], x, products).astype(y.dtype) if "lora" in p else y


def _low_rank(p: dict[str, Any], x: Any, products: str | None) -> Any:
    """scale (x aᵀ) bᵀ: [..., in] -> [..., out] in the adapter's dtype.

    p["dropout"] = {"key", "rate"}, while there is training: each element of x is 0 by that chance,
    the others grow by 1 / (1 - rate).
    """

    def within(x: Any, a: Any) -> Any:
        return product(x.astype(a.dtype), a, 1, products)

    if "dropout" in p:
        x = dropped(x.astype(p["a"].dtype), **p["dropout"])
    # The gradient widens x again: kept is the narrower one, once for the adapters that share it.
    inner = fxad.checkpoint(within)(x, p["a"])
    return product(inner, p["b"], 1, products) * p["scale"].astype(inner.dtype)


def product(
    x: Any, weight: Any, axis: int, products: str | None = None, unrounded: bool = False
) -> Any:
    """The product of the last axis of x with axis 0 or 1 of a matrix, without a bias.

    products: both are rounded to that dtype, sums and result are float32. unrounded: sums of
    narrower factors stay float32, so that a bias is added before they are rounded. A `Quantized`
    matrix is taken as frozen: it has no gradient.
    """
    if is_quantized(weight):
        return quantized_product(x, weight, axis, products, unrounded)
    if products is None:
        wide = jnp.float32 if unrounded and x.dtype.itemsize < 4 else None
        axes = (((x.ndim - 1,), (axis,)), ((), ()))
        return fxad.lax.dot_general(x, weight, axes, preferred_element_type=wide)
    return _rounded_product(x, weight, axis, products)


@partial(fxad.custom_vjp, nondiff_argnums=(2, 3))
def _rounded_product(x: Any, weight: Any, axis: int, dtype: str) -> Any:
    """The product of both rounded to `dtype`, summed and left in float32.

    Backward, the result's gradient is rounded too; the gradients of x and of weight are not.
    """
    return fxad.lax.dot_general(
        x.astype(dtype),
        weight.astype(dtype),
        (((x.ndim - 1,), (axis,)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def _rounded_forward(x: Any, weight: Any, axis: int, dtype: str) -> tuple[Any, tuple[Any, Any]]:
    x = x.astype(dtype)
    return _rounded_product(x, weight, axis, dtype), (x, weight)


def _rounded_backward(axis: int, dtype: str, saved: tuple[Any, Any], d_y: Any) -> tuple[Any, Any]:
    x, weight = saved
    d_y = d_y.astype(dtype)
    lead = tuple(range(x.ndim - 1))
    dot = partial(fxad.lax.dot_general, preferred_element_type=jnp.float32)
    d_x = dot(d_y, weight.astype(dtype), (((x.ndim - 1,), (1 - axis,)), ((), ())))
    factors = (x, d_y) if axis == 0 else (d_y, x)
    return d_x, dot(*factors, ((lead, lead), ((), ()))).astype(weight.dtype)


_rounded_product.defvjp(_rounded_forward, _rounded_backward)


def checkpointed(config: Any) -> Callable[..., Any]:
    """What makes of a block one whose gradient keeps what the configuration says."""
    if config.offload:
        return partial(fxad.checkpoint, offload="disk")
    return fxad.checkpoint if config.recompute else lambda block: block


def embedding_spec(size: tuple[int, int], axes: tuple[str, str], std: float, dtype: str) -> Leaf:
    """A table of `size[0]` rows with normal(std) entries."""
    return Leaf(size, dtype, axes, normal(std))


def embedding(p: dict[str, Any], tokens: Any) -> Any:
    """The rows of the table p["token"] [vocab, width] for tokens [...] int: [..., width].

    p["rows"] = {"ids": [n], "values": [n, width]}, where they are there, are the rows of these ids
    (`fxad_nn.token_rows`).
    """
    x = p["token"][tokens]
    if "rows" not in p:
        return x
    same = tokens[..., None] == p["rows"]["ids"]
    # Gathered before they are rounded: the gradient adds up in the dtype of the values.
    beside = p["rows"]["values"][jnp.argmax(same, axis=-1)].astype(x.dtype)
    return jnp.where(jnp.any(same, axis=-1)[..., None], beside, x)


def head_of(params: dict[str, Any], tied: bool) -> dict[str, Any]:
    """What makes logits: a weight [vocab, width], and what stands beside it."""
    if not tied:
        head: dict[str, Any] = params["head"]
        return head
    embed = params["embed"]
    rows = {"rows": embed["rows"]} if "rows" in embed else {}
    return {"weight": embed["token"], **rows}


def head_logits(p: dict[str, Any], x: Any, products: str | None = None) -> Any:
    """Logits [..., vocab] of x [..., width] by `linear`; those of the ids of p["rows"] by these."""
    logits = linear(p, x, products)
    if "rows" not in p:
        return logits
    weight = p["rows"]["values"].astype(p["weight"].dtype)
    beside = linear({"weight": weight}, x, products)
    return logits.at[..., p["rows"]["ids"]].set(beside)


def norm_spec(width: int, bias: bool, dtype: str, offset: bool = False) -> dict[str, Leaf]:
    """The scale, and where asked for the bias, of a norm; offset: of one that adds 1 to it."""
    spec = {"scale": Leaf((width,), dtype, ("width",), zeros if offset else ones)}
    if bias:
        spec["bias"] = Leaf((width,), dtype, ("width",), zeros)
    return spec


def layer_norm(p: dict[str, Any], x: Any, epsilon: float) -> Any:
    """Normalise the last axis to mean 0 and variance 1 in float32 (Ba et al., 2016).

    Rounded once, after scale and bias, as PyTorch does.
    """
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    y = centred * fxad.lax.rsqrt(variance + epsilon) * p["scale"]
    return (y + p["bias"] if "bias" in p else y).astype(x.dtype)


def rms_norm(p: dict[str, Any], x: Any, epsilon: float) -> Any:
    """Divide the last axis by its root mean square in float32 (Zhang and Sennrich, 2019)."""
    return (_over_rms(x, epsilon).astype(x.dtype) * p["scale"]).astype(x.dtype)


def offset_rms_norm(p: dict[str, Any], x: Any, epsilon: float) -> Any:
    """As `rms_norm` with factors 1 + scale, rounded once: what Gemma has."""
    return (_over_rms(x, epsilon) * (1.0 + p["scale"].astype(jnp.float32))).astype(x.dtype)


def _over_rms(x: Any, epsilon: float) -> Any:
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return wide * fxad.lax.rsqrt(mean_square + epsilon)


def _rounded_once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function in float32, its result in the dtype of x, as PyTorch's kernels have it: rounding
    after every operation costs time and accuracy."""

    def activation(x: Any) -> Any:
        return function(x.astype(jnp.promote_types(x.dtype, jnp.float32))).astype(x.dtype)

    return activation


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": _rounded_once(fxad.nn.silu),
    "gelu": _rounded_once(partial(fxad.nn.gelu, approximate=False)),
    "gelu_tanh": _rounded_once(partial(fxad.nn.gelu, approximate=True)),
    "gelu_sigmoid": _rounded_once(lambda x: x * fxad.nn.sigmoid(1.702 * x)),
    "relu": fxad.nn.relu,
    "tanh": jnp.tanh,
}
"""What stands between two linear layers, by name; GELU exactly and by both of its approximations
(Hendrycks and Gimpel, 2016)."""


def document_starts(segments: Any) -> Any:
    """Where the document of each position of a row begins: int [batch, time] -> int32.

    A document is a run of equal numbers, as `fxad.nn.dot_product_attention` has it.
    """
    places = jnp.arange(segments.shape[1], dtype=jnp.int32)
    before = jnp.concatenate([segments[:, :1], segments[:, :-1]], axis=1)
    return fxad.lax.cummax(jnp.where(segments != before, places, 0), axis=1)


def document_positions(segments: Any) -> Any:
    """The position of each token in its document, from 0: int [batch, time] -> int32."""
    return jnp.arange(segments.shape[1], dtype=jnp.int32) - document_starts(segments)


def causal_attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    segments: Any = None,
) -> Any:
    """Softmax attention in which a position sees itself and earlier ones.

    q [batch, time, heads, dim]; k, v [batch, time, groups, dim], where every group of
    heads / groups consecutive query heads shares one key and value head (Ainslie et al., 2023).
    Returns [batch, time, heads * dim]. Scores and softmax are float32.

    scale: of the scores, 1 / sqrt(dim) unless given. window: a position sees itself and the
    window - 1 before it. softcap: scores become softcap tanh(score / softcap), and are then all in
    memory at once. segments: int [batch, time], the documents that share a row; a position sees
    its own only.
    """
    if softcap is None:
        local = None if window is None else (window - 1, 0)
        out = fxad.nn.dot_product_attention(
            q,
            k,
            v,
            scale=scale,
            is_causal=True,
            local_window_size=local,
            segment_ids=segments,
        )
        return out.reshape(*out.shape[:2], -1)
    keys, values = k.swapaxes(1, 2), v.swapaxes(1, 2)
    first = None if segments is None else document_starts(segments)
    return masked_attention(q, keys, values, 0, scale, window, softcap, first)


def masked_attention(
    q: Any,
    keys: Any,
    values: Any,
    position: Any,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    first: Any = None,
) -> Any:
    """`causal_attention` of queries at position ... position + time - 1, with scores in memory.

    q [batch, time, heads, dim]; keys, values [batch, groups, seen, dim] begin at position 0.
    first: int [batch, time], the first position that each query sees.
    """
    batch, time, heads, dim = q.shape
    groups, seen = keys.shape[1:3]
    # The heads of a group share its keys: rows of one product.
    rows = q.reshape(batch, time, groups, -1, dim).swapaxes(1, 2).reshape(batch, groups, -1, dim)
    scores = jnp.einsum("bgrd,bgsd->bgrs", rows, keys, preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(dim) if scale is None else scores * scale
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    last = position + jnp.arange(time)[:, None, None]
    visible = jnp.arange(seen) <= last
    if window is not None:
        visible = visible & (jnp.arange(seen) > last - window)
    texts: tuple[int, ...] = ()  # axes of the mask before those of rows and keys
    if first is not None:
        visible = visible & (jnp.arange(seen) >= first[:, None, :, None, None])
        texts = (batch, 1)
    visible = jnp.broadcast_to(visible, (*texts, time, heads // groups, seen))
    scores = jnp.where(visible.reshape(*texts, -1, seen), scores, -jnp.inf)
    weights = fxad.nn.softmax(scores).astype(values.dtype)
    out = jnp.einsum("bgrs,bgsd->bgrd", weights, values)
    out = out.reshape(batch, groups, time, -1).swapaxes(1, 2)
    return out.reshape(batch, time, heads * dim)
