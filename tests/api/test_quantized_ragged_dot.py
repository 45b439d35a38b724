"""quantized_ragged_dot against loops over groups with the dequantised matrices, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.nn import dequantize, quantize, quantized_ragged_dot

SIZES = np.array([10, 0, 25, 3], np.int32)  # of 40 rows: two belong to no group


def drawn(format, rows=24, columns=70):
    r = np.random.default_rng(0)
    made = [quantize(r.standard_normal((rows, columns)).astype(np.float32), format) for _ in SIZES]
    codes, scales = (jnp.stack(part) for part in zip(*made, strict=True))
    whole = [np.asarray(dequantize(*one, columns, format), np.float64) for one in made]
    return codes, scales, whole, r


def by_groups(x, matrices):
    """Rows of each group times its matrix; nothing of those that are left."""
    found, start = np.zeros((len(x), matrices[0].shape[1])), 0
    for size, matrix in zip(SIZES, matrices, strict=True):
        found[start : start + size] = x[start : start + size] @ matrix
        start += size
    return found


@pytest.mark.parametrize("format", ["nf4", "int8"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("wrap", [fxad.jit, lambda f: f], ids=["jit", "eager"])
def test_products_and_gradients_are_those_of_dequantised_matrices(format, axis, wrap):
    codes, scales, whole, r = drawn(format)
    matrices = [m.T if axis == 1 else m for m in whole]
    x = r.standard_normal((40, len(matrices[0])))
    weigh = r.standard_normal((40, matrices[0].shape[1]))

    def product(x):
        return quantized_ragged_dot(x, codes, scales, SIZES, 70, format, axis=axis)

    def loss(x):
        return jnp.sum(jnp.tanh(product(x)) * weigh.astype(x.dtype))

    narrow = x.astype(np.float32)
    expected = by_groups(x, matrices)
    np.testing.assert_allclose(wrap(product)(narrow), expected, rtol=1e-4, atol=1e-5)
    slope = by_groups(weigh * (1 - np.tanh(expected) ** 2), [m.T for m in matrices])
    np.testing.assert_allclose(wrap(fxad.grad(loss))(narrow), slope, rtol=1e-4, atol=1e-4)
    tangent = fxad.jvp(product, (narrow,), (narrow,))[1]
    np.testing.assert_allclose(tangent, expected, rtol=1e-4, atol=1e-5)
    lanes = fxad.vmap(product)(np.stack([narrow, 2 * narrow]))
    np.testing.assert_allclose(lanes[1], 2 * expected, rtol=1e-4, atol=1e-5)


def test_no_matrix_is_in_memory():
    codes, scales, _, r = drawn("nf4", 192, 640)
    x = r.standard_normal((40, 640)).astype(np.float32)

    def loss(x, codes, scales):
        return jnp.sum(jnp.tanh(quantized_ragged_dot(x, codes, scales, SIZES, 640)))

    plan = fxad.jit(fxad.grad(loss)).lower(x, codes, scales).plan
    assert not [s for s in plan.slots if s.type.size >= 192 * 640 and s.place == "arena"]
    assert fxad.grad(loss, argnums=2)(x, codes, scales).sum() == 0  # constants, as is said


def test_factors_of_few_bits_may_be_summed_in_float32():
    codes, scales, whole, r = drawn("nf4")
    x = jnp.asarray(r.standard_normal((40, 70)), jnp.bfloat16)
    wide = quantized_ragged_dot(x, codes, scales, SIZES, 70, preferred_element_type=jnp.float32)
    near = [np.asarray(jnp.asarray(m, jnp.bfloat16), np.float64).T for m in whole]
    assert wide.dtype == jnp.float32
    expected = by_groups(np.asarray(x, np.float64), near)
    np.testing.assert_allclose(wide, expected, rtol=1e-4, atol=1e-4)
    assert quantized_ragged_dot(x, codes, scales, SIZES, 70).dtype == jnp.bfloat16


def test_bad_operands_are_named():
    codes, scales, _, _ = drawn("nf4")
    x = np.ones((40, 70), np.float32)
    with pytest.raises(ShapeError, match="do not go together over axis 0"):
        quantized_ragged_dot(x, codes, scales, SIZES, 70, axis=0)
    with pytest.raises(ShapeError, match="do not go together"):
        quantized_ragged_dot(x, codes, scales, SIZES[:2], 70)
    with pytest.raises(ShapeError, match="are not those of 70 columns"):
        quantized_ragged_dot(x, codes[:, :, :32], scales, SIZES, 70)
    with pytest.raises(TypeMismatch, match="integer sizes"):
        quantized_ragged_dot(x, codes, scales, SIZES.astype(np.float32), 70)
    with pytest.raises(TypeMismatch, match="format must be one of"):
        quantized_ragged_dot(x, codes, scales, SIZES, 70, "nf3")
