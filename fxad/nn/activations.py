"""Activation functions, elementwise unless said otherwise.

y = gelu(linear(x))

Stable for large arguments, NaN passes through, and at kinks the gradient is the one PyTorch
takes: 0 for relu at 0.
"""

from __future__ import annotations

import math
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, promoted, value_of
from fxad.numpy.elementwise import (
    abs,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    sqrt,
    square,
    tanh,
    where,
)
from fxad.numpy.manipulation import slice_axis
from fxad.numpy.weak import gives_strong, keeps_weak
from fxad.trace.array import Array
from fxad.trace.replay import replayed


def _float(name: str, x: Any) -> Array:
    """The argument as a float (or complex) array."""
    return promoted(name, x, inexact=True, numbers=False)[0]


def identity(x: Any) -> Array:
    """x.

    >>> fxad.nn.identity(jnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return value_of(x, "identity")


@replayed
def relu(x: Any) -> Array:
    """max(x, 0); gradient 0 at 0, and 1 at NaN, as PyTorch's (JAX: 0).

    >>> fxad.nn.relu(jnp.array([-1.0, 0.0, 2.0]))
    Array([0., 0., 2.], dtype=float32)
    >>> fxad.grad(fxad.nn.relu)(0.0)
    Array(0., dtype=float32)
    """
    value = value_of(x, "relu")
    return where(value <= 0, 0, value)


@replayed
def relu6(x: Any) -> Array:
    """min(max(x, 0), 6); gradient 0 at both kinks.

    >>> fxad.nn.relu6(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([0. , 0. , 0.5, 6. ], dtype=float32)
    """
    value = _float("relu6", x)
    return where(value <= 0, 0, where(value >= 6, 6, value))


@replayed
@keeps_weak
def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x)).

    >>> fxad.nn.sigmoid(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([0.119, 0.5  , 0.881], dtype=float32)
    """
    return OPS["logistic"](_float("sigmoid", x))


@custom_jvp
def _softplus(value: Array) -> Array:
    return maximum(value, 0) + log1p(exp(-abs(value)))


@_softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Of the formula above an infinite cotangent would become infinity times 0."""
    return _softplus(*primals), tangents[0] * sigmoid(primals[0])


@replayed
@keeps_weak
def softplus(x: Any) -> Array:
    """log(1 + exp(x)) without overflow.

    >>> fxad.nn.softplus(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([0.127, 0.693, 2.127], dtype=float32)
    """
    return _softplus(_float("softplus", x))


@replayed
def log_sigmoid(x: Any) -> Array:
    """log(sigmoid(x)) without underflow.

    >>> fxad.nn.log_sigmoid(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-2.127, -0.693, -0.127], dtype=float32)
    """
    return -softplus(-_float("log_sigmoid", x))


@replayed
def silu(x: Any) -> Array:
    """x * sigmoid(x).

    >>> fxad.nn.silu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.238,  0.   ,  1.762], dtype=float32)
    """
    value = _float("silu", x)
    return value * sigmoid(value)


swish = silu


@replayed
@gives_strong
def gelu(x: Any, approximate: bool = True) -> Array:
    """x times the normal distribution function of x; by the tanh formula if `approximate`.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> fxad.nn.gelu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.045,  0.   ,  1.955], dtype=float32)
    """
    value = _float("gelu", x)
    if not approximate:
        return value * 0.5 * OPS["erfc"](value * -math.sqrt(0.5))
    return _gelu(value)


_SLOPE = math.sqrt(2 / math.pi)  # of the tanh formula's inner cubic at 0
_CUBIC = 0.044715 * _SLOPE


@custom_jvp
def _gelu(value: Array) -> Array:
    return value * 0.5 * (1 + tanh(value * (_SLOPE + _CUBIC * square(value))))


@_gelu.defjvp
def _gelu_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """With four multiplications fewer than the transposed formula has: gelu and its gradient take
    as long as they compute.

    y = x (1 + t) / 2, t = tanh(u):  y' = (1 + t) / 2 + y (1 - t) u'
    """
    (value,) = primals
    squared = square(value)
    bent = tanh(value * (_SLOPE + _CUBIC * squared))
    above = 1 + bent
    result = value * 0.5 * above
    steepness = _SLOPE + 3 * _CUBIC * squared
    return result, tangents[0] * (0.5 * above + result * (1 - bent) * steepness)


def _below(value: Array) -> Array:
    """The negative part, so that the branch not taken stays finite in gradients."""
    return where(value > 0, 0, value)


@replayed
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha * (exp(x) - 1) below.

    >>> fxad.nn.elu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.865,  0.   ,  2.   ], dtype=float32)
    """
    value = _float("elu", x)
    return where(value > 0, value, alpha * expm1(_below(value)))


@replayed
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha * (exp(x / alpha) - 1) below.

    >>> fxad.nn.celu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.865,  0.   ,  2.   ], dtype=float32)
    """
    value = _float("celu", x)
    return where(value > 0, value, alpha * expm1(_below(value) / alpha))


@replayed
def selu(x: Any) -> Array:
    """elu scaled so that activations normalise themselves.

    Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    >>> fxad.nn.selu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-1.52 ,  0.   ,  2.101], dtype=float32)
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@replayed
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Array:
    """x from 0 up, negative_slope * x below.

    >>> fxad.nn.leaky_relu(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.02,  0.  ,  2.  ], dtype=float32)
    """
    value = _float("leaky_relu", x)
    return where(value >= 0, value, negative_slope * value)


@replayed
def mish(x: Any) -> Array:
    """x * tanh(softplus(x)).

    >>> fxad.nn.mish(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.253,  0.   ,  1.944], dtype=float32)
    """
    value = _float("mish", x)
    return value * tanh(softplus(value))


@replayed
def soft_sign(x: Any) -> Array:
    """x / (1 + |x|).

    >>> fxad.nn.soft_sign(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([-0.667,  0.   ,  0.667], dtype=float32)
    """
    value = _float("soft_sign", x)
    return value / (1 + abs(value))


@replayed
def squareplus(x: Any, b: Any = 4.0) -> Array:
    """(x + sqrt(x^2 + b)) / 2.

    >>> fxad.nn.squareplus(jnp.array([-2.0, 0.0, 2.0])).round(3)
    Array([0.414, 1.   , 2.414], dtype=float32)
    """
    value = _float("squareplus", x)
    return 0.5 * (value + sqrt(value * value + b))


@replayed
def sparse_plus(x: Any) -> Array:
    """0 up to -1, x from 1 on, and (x + 1)^2 / 4 between them.

    >>> fxad.nn.sparse_plus(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([0.   , 0.   , 0.562, 9.   ], dtype=float32)
    """
    value = _float("sparse_plus", x)
    return where(value <= -1, 0, where(value >= 1, value, (value + 1) ** 2 / 4))


@replayed
def sparse_sigmoid(x: Any) -> Array:
    """The derivative of sparse_plus: (x + 1) / 2 limited to [0, 1].

    >>> fxad.nn.sparse_sigmoid(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([0.  , 0.  , 0.75, 1.  ], dtype=float32)
    """
    value = _float("sparse_sigmoid", x)
    return where(value <= -1, 0, where(value >= 1, 1, (value + 1) / 2))


@replayed
def log1mexp(x: Any) -> Array:
    """log(1 - exp(-x)) for x > 0, accurate at both ends (M. Mächler, 2012).

    >>> fxad.nn.log1mexp(jnp.array([1e-6, 1.0, 50.0])).round(3)
    Array([-13.816,  -0.459,  -0.   ], dtype=float32)
    """
    value = _float("log1mexp", x)
    small = value <= math.log(2)
    # Each branch sees a harmless number where the other one is taken.
    near = log(-expm1(-where(small, value, 1.0)))
    return where(small, near, log1p(-exp(-where(small, 1.0, value))))


@replayed
def hard_tanh(x: Any) -> Array:
    """x limited to [-1, 1]; gradient 0 at the bounds.

    >>> fxad.nn.hard_tanh(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([-1. , -1. ,  0.5,  1. ], dtype=float32)
    """
    value = value_of(x, "hard_tanh")
    return where(value >= 1, 1, where(value <= -1, -1, value))


@replayed
def hard_sigmoid(x: Any) -> Array:
    """relu6(x + 3) / 6.

    >>> fxad.nn.hard_sigmoid(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([0.   , 0.25 , 0.583, 1.   ], dtype=float32)
    """
    return relu6(_float("hard_sigmoid", x) + 3) / 6


@replayed
def hard_silu(x: Any) -> Array:
    """x * hard_sigmoid(x).

    >>> fxad.nn.hard_silu(jnp.array([-4.0, -1.5, 0.5, 9.0])).round(3)
    Array([-0.   , -0.375,  0.292,  9.   ], dtype=float32)
    """
    value = _float("hard_silu", x)
    return value * hard_sigmoid(value)


hard_swish = hard_silu


@replayed
def glu(x: Any, axis: int = -1) -> Array:
    """First half along an axis, gated by the sigmoid of the second.

    Raises ShapeError if the axis has an odd length.

    >>> fxad.nn.glu(jnp.array([[1.0, 2.0, 0.0, 9.0]])).round(3)
    Array([[0.5, 2. ]], dtype=float32)
    """
    value = _float("glu", x)
    at = axis_index(axis, value.ndim, "glu")
    size = value.shape[at]
    if size % 2:
        raise ShapeError(f"glu: axis {at} of {value.type} cannot be halved")
    gate = slice_axis(value, at, size // 2, size)
    return slice_axis(value, at, 0, size // 2) * sigmoid(gate)
