"""softmax and its relatives, and one_hot.

p = softmax(logits, where=mask)      # 0 where the mask is false
"""

from __future__ import annotations

import math
from typing import Any

from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, promoted, value_of
from fxad.numpy.creation import iota, ones_like
from fxad.numpy.elementwise import equal, exp, isinf, log, rsqrt
from fxad.numpy.elementwise import where as choose
from fxad.numpy.reductions import logsumexp, max, mean, sum
from fxad.numpy.reductions import var as variance_of
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed


def _shifted(name: str, x: Any, axis: Any, where: Any, initial: Any) -> Array:
    """x minus its maximum; the gradient does not see the shift. Masked elements give -inf."""
    (value,) = promoted(name, x, inexact=True, numbers=False)
    if where is not None:
        value = choose(where, value, -math.inf)
    peak = OPS["stop_gradient"](max(value, axis, keepdims=True, initial=initial))
    if where is not None:  # a row that is masked everywhere has no maximum
        peak = choose(isinf(peak), 0.0, peak)
    return value - peak


@replayed
@gives_strong
def softmax(x: Any, axis: Any = -1, where: Any = None, initial: Any = -math.inf) -> Array:
    """exp(x) / sum(exp(x)) over an axis (or several).

    where: bools; elements where it is false count as absent and give 0. initial: a lower bound
    for the maximum that is subtracted.

    >>> fxad.nn.softmax(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([0.09 , 0.245, 0.665], dtype=float32)
    >>> fxad.nn.softmax(jnp.array([1.0, 2.0, 3.0]), where=jnp.array([True, False, True])).round(3)
    Array([0.119, 0.   , 0.881], dtype=float32)
    """
    terms = exp(_shifted("softmax", x, axis, where, initial))
    total = sum(terms, axis, keepdims=True)
    if where is not None:
        total = choose(total == 0, 1.0, total)
    if _is_lowest(initial) and terms.dtype.itemsize >= 4:
        # The maximum's own term makes the total at least 1. A product takes a thirtieth of a
        # quotient's time; in a narrow float its second rounding would show.
        return terms * (1.0 / total)
    return terms / total


def _is_lowest(initial: Any) -> bool:
    return isinstance(initial, float) and initial == -math.inf


@replayed
@gives_strong
def log_softmax(x: Any, axis: Any = -1, where: Any = None, initial: Any = -math.inf) -> Array:
    """log(softmax(x)), accurate for small probabilities. Masked elements give -inf.

    >>> fxad.nn.log_softmax(jnp.array([0.0, 100.0]))
    Array([-100.,    0.], dtype=float32)
    """
    shifted = _shifted("log_softmax", x, axis, where, initial)
    total = sum(exp(shifted), axis, keepdims=True)
    if where is not None:
        total = choose(total == 0, 1.0, total)
    return shifted - log(total)


@replayed
@gives_strong
def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over an axis (or several). The variance is that of
    the differences from the mean, whichever algorithm is asked for.

    >>> fxad.nn.standardize(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([-1.225,  0.   ,  1.225], dtype=float32)
    """
    (value,) = promoted("standardize", x, inexact=True, numbers=False)
    if mean is None:
        mean = _mean(value, axis, where)
    if variance is None:
        variance = variance_of(value, axis, keepdims=True, where=where)
    return (value - mean) * rsqrt(variance + epsilon)


def _mean(value: Array, axis: Any, where: Any) -> Array:
    return mean(value, axis, keepdims=True, where=where)


@replayed
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """A new axis of length num_classes, 1 at position x and 0 elsewhere (all 0 out of range).

    >>> fxad.nn.one_hot(jnp.array([0, 2, 5]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    labels = value_of(x, "one_hot")
    wanted = dt.default_float() if dtype is None else dt.canonicalize(dtype, explicit=True)
    at = axis_index(axis, labels.ndim + 1, "one_hot")
    shape = (*labels.shape[:at], num_classes.__index__(), *labels.shape[at:])
    column = (*labels.shape[:at], 1, *labels.shape[at:])
    classes = cast(iota(dt.int32, shape, at), labels.dtype)
    return cast(equal(OPS["reshape"](labels, shape=column), classes), wanted)


@replayed
def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) over axes without overflow; where: bools, which elements count.

    >>> fxad.nn.logmeanexp(jnp.array([1000.0, 1001.0])).round(2)
    Array(1000.62, dtype=float32)
    """
    (value,) = promoted("logmeanexp", x, inexact=True, numbers=False)
    if where is None:
        count = sum(ones_like(value), axis, keepdims=keepdims)
    else:
        count = sum(choose(where, ones_like(value), 0.0), axis, keepdims=keepdims)
        value = choose(where, value, -math.inf)
    return logsumexp(value, axis, keepdims=keepdims) - log(count)
