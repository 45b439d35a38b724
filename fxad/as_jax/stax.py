"""`jax.example_libraries.stax`: layers as pairs of functions, which JAX's examples use.

init, predict = serial(Dense(64), Relu, Dense(10), LogSoftmax)
shape, params = init(key, (-1, 784))        scores = predict(params, images)

A layer is `init(key, input_shape) -> output_shape, params` and `apply(params, inputs, rng=None)`.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import fxad.numpy as jnp
from fxad import lax, random
from fxad.core.errors import BadArgument
from fxad.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from fxad.nn.initializers import glorot_normal, normal, ones, zeros

Layer: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]
Shape: TypeAlias = tuple[int, ...]

glorot, randn, logsoftmax = glorot_normal, normal, log_softmax  # older names


# ---------------------------------------------------------------- layers with parameters


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:  # noqa: B008
    """x @ W + b."""

    def init(rng: Any, input_shape: Shape) -> Any:
        first, second = random.split(rng)
        w = W_init(first, (input_shape[-1], out_dim))
        return (*input_shape[:-1], out_dim), (w, b_init(second, (out_dim,)))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        w, b = params
        return inputs @ w + b

    return init, apply


def _convolution(
    dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], padding: Any,
    W_init: Any, b_init: Any, shape_of: Callable[..., Shape], convolve: Callable[..., Any],
) -> Layer:  # fmt: skip
    """A layer whose product with the kernel is `convolve`, of shape `shape_of`."""
    lhs, rhs, out = dimension_numbers
    make = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))

    def init(rng: Any, input_shape: Shape) -> Any:
        sizes = iter(filter_shape)
        features = {"O": out_chan, "I": input_shape[lhs.index("C")]}
        kernel = tuple(features[c] if c in features else next(sizes) for c in rhs)
        first, second = random.split(rng)
        bias = tuple(out_chan if c == "C" else 1 for c in out)
        shape = shape_of(input_shape, kernel, padding, dimension_numbers)
        return shape, (make(first, kernel), b_init(second, bias))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        w, b = params
        return convolve(inputs, w, padding, dimension_numbers) + b

    return init, apply


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution and a bias for each feature."""
    steps = strides or (1,) * len(filter_shape)
    return _convolution(
        dimension_numbers, out_chan, filter_shape, padding, W_init, b_init,
        lambda x, w, pads, numbers: lax.conv_general_shape_tuple(x, w, steps, pads, numbers),
        lambda x, w, pads, numbers: lax.conv_general_dilated(
            x, w, steps, pads, dimension_numbers=numbers
        ),
    )  # fmt: skip


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),  # noqa: B008
) -> Layer:
    """A transposed convolution and a bias for each feature."""
    steps = strides or (1,) * len(filter_shape)
    return _convolution(
        dimension_numbers, out_chan, filter_shape, padding, W_init, b_init,
        lambda x, w, pads, numbers: lax.conv_transpose_shape_tuple(x, w, steps, pads, numbers),
        lambda x, w, pads, numbers: lax.conv_transpose(
            x, w, steps, pads, dimension_numbers=numbers
        ),
    )  # fmt: skip


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Each feature with mean 0 and variance 1 over `axis`, then scaled and moved."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init(rng: Any, input_shape: Shape) -> Any:
        kept = tuple(size for i, size in enumerate(input_shape) if i not in axes)
        first, second = random.split(rng)
        beta = beta_init(first, kept) if center else ()
        return input_shape, (beta, gamma_init(second, kept) if scale else ())

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        z = standardize(x, axes, epsilon=epsilon)
        z = jnp.expand_dims(gamma, axes) * z if scale else z
        return z + jnp.expand_dims(beta, axes) if center else z

    return init, apply


# ---------------------------------------------------------------- layers without


def _plain(shape_of: Callable[[Any], Any], function: Callable[[Any], Any]) -> Layer:
    """A layer that has no parameters."""
    return (
        lambda rng, input_shape: (shape_of(input_shape), ()),
        lambda params, inputs, **kwargs: function(inputs),
    )


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """fun(inputs, **fun_kwargs)."""
    return _plain(lambda shape: shape, lambda x: fun(x, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)
Identity = elementwise(lambda x: x)
Flatten = _plain(
    lambda shape: (shape[0], math.prod(shape[1:])), lambda x: jnp.reshape(x, (x.shape[0], -1))
)
FanInSum = _plain(lambda shapes: shapes[0], builtins.sum)


def FanOut(num: int) -> Layer:
    """The inputs as often as that."""
    return _plain(lambda shape: [shape] * num, lambda x: [x] * num)


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs joined along an axis."""

    def shape_of(shapes: Sequence[Shape]) -> Shape:
        at = axis % len(shapes[0])
        joined = builtins.sum(shape[at] for shape in shapes)
        return (*shapes[0][:at], joined, *shapes[0][at + 1 :])

    return _plain(shape_of, lambda inputs: jnp.concatenate(inputs, axis))


def _pooling(name: str, reducer: Any, start: float, mean: bool = False) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: str = "VALID",
        spec: str | None = None,
    ) -> Layer:
        spatial = tuple(window_shape)
        steps = tuple(strides or (1,) * len(spatial))
        whole = (0, len(spatial) + 1) if spec is None else (spec.index("N"), spec.index("C"))
        for at in sorted(whole):
            spatial = (*spatial[:at], 1, *spatial[at:])
            steps = (*steps[:at], 1, *steps[at:])

        def shape_of(shape: Shape) -> Shape:
            pads = lax.padtype_to_pads(shape, spatial, steps, padding)
            return lax.reduce_window_shape_tuple(shape, spatial, steps, pads)

        def pooled(x: Any) -> Any:
            found = lax.reduce_window(x, start, reducer, spatial, steps, padding)
            if not mean:
                return found
            # What lies outside does not count.
            one = jnp.ones([1 if i in whole else n for i, n in enumerate(x.shape)], dtype=x.dtype)
            return found / lax.reduce_window(one, start, reducer, spatial, steps, padding)

        return _plain(shape_of, pooled)

    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = (
        "A fold of windows along the spatial axes: all but the first and the last, or those that "
        '`spec` ("NHWC") names otherwise than N and C.'
    )
    return layer


MaxPool = _pooling("MaxPool", lax.max, -math.inf)
SumPool = _pooling("SumPool", lax.add, 0.0)
AvgPool = _pooling("AvgPool", lax.add, 0.0, mean=True)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Keeps elements with probability `rate`, divided by it; all in another mode than "train".

    Raises BadArgument where it is applied without `rng=`.
    """

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        if (rng := kwargs.get("rng")) is None:
            raise BadArgument("Dropout: apply needs a key: apply(params, inputs, rng=key)")
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return (lambda rng, input_shape: (input_shape, ())), apply


# ---------------------------------------------------------------- layers of layers


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def serial(*layers: Layer) -> Layer:
    """One layer after the other; parameters are a list."""

    def init(rng: Any, input_shape: Any) -> Any:
        params = []
        for init_layer, _ in layers:
            rng, own = random.split(rng)
            input_shape, param = init_layer(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        for (_, layer), param, key in zip(layers, params, keys, strict=True):
            inputs = layer(param, inputs, rng=key, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Each layer on an input of its own: of lists, between FanOut and FanInSum."""

    def init(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        rows = zip(layers, keys, input_shape, strict=True)
        return zip(*(layer(key, shape) for (layer, _), key, shape in rows), strict=True)

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        rows = zip(layers, params, inputs, keys, strict=True)
        return [layer(param, x, rng=key, **kwargs) for (_, layer), param, x, key in rows]

    return init, apply


def shape_dependent(make_layer: Callable[[Shape], Layer]) -> Layer:
    """The layer that `make_layer` makes of the shape of its inputs."""
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
    )
