"""`fxad.nn`: functions of neural networks: activations, softmax, attention, initializers, and
matrices in few bits.

y = fxad.nn.softmax(fxad.nn.relu(x @ w) @ u)
"""

from fxad.nn import initializers
from fxad.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from fxad.nn.attention import dot_product_attention
from fxad.nn.losses import linear_cross_entropy
from fxad.nn.quantization import dequantize, quantize, quantized_ragged_dot
from fxad.nn.softmax import log_softmax, logmeanexp, one_hot, softmax, standardize
from fxad.numpy.elementwise import tanh
from fxad.numpy.reductions import logsumexp

__all__ = [
    "celu",
    "dequantize",
    "dot_product_attention",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "initializers",
    "leaky_relu",
    "linear_cross_entropy",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "mish",
    "one_hot",
    "quantize",
    "quantized_ragged_dot",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]
