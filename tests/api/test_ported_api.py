"""Details of the API that code written for JAX relies on."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax, nn, tree
from fxad.core.errors import DeviceError, TypeMismatch

Z = np.array([1.0 + 2j, 3.0 - 1j], np.complex64)


def test_linearize_with_aux():
    for wrap in (lambda f: f, fxad.jit):

        def f(x):
            out, push, aux = fxad.linearize(lambda x: (x**2, {"x": x + 1}), x, has_aux=True)
            return out, push(1.0), aux

        out, tangent, aux = wrap(f)(3.0)
        assert [float(v) for v in (out, tangent, aux["x"])] == [9.0, 6.0, 4.0]


def test_holomorphic_jacobians():
    expected = np.diag(2 * Z)
    for jacobian in (fxad.jacrev, fxad.jacfwd):
        np.testing.assert_allclose(
            jacobian(lambda z: z**2, holomorphic=True)(Z), expected, rtol=1e-6
        )
        with pytest.raises(TypeMismatch, match="must be complex"):
            jacobian(lambda x: x, holomorphic=True)(1.0)
        with pytest.raises(TypeMismatch, match="must be a float"):
            jacobian(lambda x: x)(np.arange(3))
    with pytest.raises(TypeMismatch, match="holomorphic=True"):
        fxad.jacfwd(lambda z: z**2)(Z)
    second = fxad.hessian(lambda z: z**3, holomorphic=True)(Z[0])
    assert complex(second) == pytest.approx(6 * complex(Z[0]), rel=1e-6)
    assert fxad.jacrev(lambda n: n * 2.0, allow_int=True)(3) is not None


def test_defaults_of_custom_functions_are_arguments():
    @fxad.custom_jvp
    def f(x, y=2.0):
        return x * y

    f.defjvp(lambda p, t: (f(*p), 5.0 * t[0] + 7.0 * t[1]))
    assert float(fxad.grad(f)(1.0)) == 5.0
    assert float(fxad.grad(lambda y: f(1.0, y))(1.0)) == 7.0
    assert float(fxad.jit(fxad.grad(f))(1.0)) == 5.0


def test_reverse_associative_scan_runs_from_the_end():
    words = np.array([[1, 2], [3, 4], [5, 6]], np.int32)

    def shift(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    tens = np.full_like(words, 10)
    out = lax.associative_scan(shift, (tens, words), reverse=True)[1]
    assert out.tolist() == [[531, 642], [53, 64], [5, 6]]
    out = lax.associative_scan(shift, (tens, words))[1]
    assert out.tolist() == [[1, 2], [13, 24], [135, 246]]


def test_lanes_of_cond_keep_gradients_finite():
    """Branches that a lane does not take have no say in its gradient, be they infinite there."""

    def safe_root(x):
        return lax.cond(x > 0, jnp.sqrt, lambda x: 0.0 * x, x)

    xs = np.array([0.0, 4.0, -1.0], np.float32)
    for wrap in (lambda f: f, fxad.jit):
        grads = wrap(fxad.grad(lambda x: fxad.vmap(safe_root)(x).sum()))(xs)
        assert grads.tolist() == [0.0, 0.25, 0.0]

        def three(i, x):
            return lax.switch(i, [jnp.log, jnp.sqrt, lambda x: 3.0 * x], x)

        def total(x):
            return fxad.vmap(three)(np.array([2, 1, 0, 7], np.int32), x).sum()

        zeros = np.array([0.0, 4.0, 2.0, 0.0], np.float32)
        assert wrap(fxad.grad(total))(zeros).tolist() == [3.0, 0.25, 0.5, 3.0]


def test_cond_with_an_operand_for_each_branch():
    def f(x):
        return lax.cond(x < 3, None, lambda _: 2.0, x, lambda x: 2.0 * x)

    assert [float(f(2.0)), float(f(4.0)), float(fxad.grad(f)(4.0))] == [2.0, 8.0, 2.0]


def test_lengths_must_be_integers():
    with pytest.raises(TypeMismatch, match="`length`.* must be an int"):
        lax.scan(lambda c, x: (c, x), 0.0, None, length=3.5)


def test_structure_errors_are_type_errors_too():
    with pytest.raises(TypeError):
        lax.scan(lambda c, x: ((c, x), ()), 0, np.arange(3))
    with pytest.raises(ValueError, match="structure"):
        tree.map(operator.add, {"a": 1}, {"b": 1})


def test_updates_at_repeated_and_masked_places():
    x = jnp.array([2.0, 3.0, 4.0])
    twice = np.array([0, 0, 2])
    assert x.at[twice].power(np.array([2.0, 3.0, 0.5])).tolist() == [64.0, 3.0, 2.0]
    assert x.at[True].set(7.0).tolist() == [7.0] * 3
    assert x.at[False].set(7.0).tolist() == [2.0, 3.0, 4.0]
    assert x.at[np.bool_(True)].add(jnp.arange(3.0)).tolist() == [2.0, 4.0, 6.0]
    assert x.at[(0, 2),].get().tolist() == [2.0, 4.0]
    assert x.at[(0, 2),].set(1.0).tolist() == [1.0, 3.0, 1.0]


def test_small_agreements():
    assert tree.treedef_is_leaf(tree.structure(()))
    assert nn.relu6(np.array([7, -1])).dtype == np.float32
    flags = jnp.einsum("ij->i", np.array([[True, False], [False, False]]))
    assert flags.tolist() == [True, False]
    mask = np.array([True, False, True])
    x = np.array([1.0, 50.0, 2.0], np.float32)
    assert float(nn.logsumexp(x, where=mask)) == pytest.approx(np.log(np.exp(1) + np.exp(2)))
    assert fxad.device_count() == fxad.local_device_count() == len(fxad.devices()) == 1
    assert fxad.devices()[0].platform == "cpu"
    with pytest.raises(DeviceError, match="Unknown backend 'gpu'; there is 'cpu'"):
        fxad.devices("gpu")
    assert (fxad.process_index(), fxad.process_count()) == (0, 1)
    assert jnp.asarray(2.0).weak_type
    assert not jnp.ones(2).weak_type
    assert (jnp.arange(3) ** 0.5).weak_type  # of int32 and a Python float
    assert not (jnp.ones(3) ** 0.5).weak_type
    shape = fxad.ShapeDtypeStruct((), np.float32)
    out = fxad.vmap(lambda x: fxad.pure_callback(np.sin, shape, x, vmap_method="sequential"))(x)
    np.testing.assert_allclose(out, np.sin(x), rtol=1e-6)
