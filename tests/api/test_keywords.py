"""Keywords under JAX's names: what they do, and that those with one value here refuse others."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax, nn, random, scipy, tree, tree_util
from fxad.core.errors import BadArgument, TypeMismatch

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SQUARE = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)


REFUSED = {
    "sum": lambda: jnp.sum(X, out=X),
    "all": lambda: jnp.all(X, 0, X),
    "median": lambda: jnp.median(X, out=X),
    "take": lambda: jnp.take(X, 0, out=X),
    "quantile": lambda: jnp.quantile(X, 0.5, weights=X),
    "sort": lambda: jnp.sort(X, kind="stable"),
    "copy": lambda: jnp.copy(X, "F"),
    "meshgrid": lambda: jnp.meshgrid(X[0], copy=False),
    "gradient": lambda: jnp.gradient(X, edge_order=2),
    "take_along_axis": lambda: jnp.take_along_axis(X, X.argsort(), wrap_negative_indices=False),
    "svd": lambda: jnp.linalg.svd(X, subset_by_index=(0, 1)),
    "matrix_rank": lambda: jnp.linalg.matrix_rank(X, tol=0.1),
    "eigh": lambda: scipy.linalg.eigh(SQUARE, SQUARE),
    "sqrtm": lambda: scipy.linalg.sqrtm(SQUARE, blocksize=2),
    "convolve2d": lambda: scipy.signal.convolve2d(X, X, boundary="wrap"),
    "correlate2d": lambda: scipy.signal.correlate2d(X, X, fillvalue=1),
    "factorial": lambda: scipy.special.factorial(3, exact=True),
    "key": lambda: random.key(0, dtype="uint32"),
    "gumbel": lambda: random.gumbel(random.key(0), mode="high"),
    "bernoulli": lambda: random.bernoulli(random.key(0), mode="high"),
    "dot_product_attention": lambda: nn.dot_product_attention(
        *[np.ones((1, 2, 1, 4), np.float32)] * 3, implementation="cudnn"
    ),
    "make_ir": lambda: fxad.make_jaxpr(np.sin, axis_env=[("i", 2)]),
    "device_put": lambda: fxad.device_put(X, src="gpu"),
    "as_text": lambda: fxad.jit(jnp.sin).lower(1.0).as_text("hlo"),
    "local_devices": lambda: fxad.local_devices(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_keyword_that_cannot_be_obeyed_is_an_error(name):
    with pytest.raises(BadArgument, match=name):
        REFUSED[name]()


def test_transformations_name_their_function_fun():
    f = lambda x: x**3  # noqa: E731
    assert fxad.grad(fun=f)(2.0) == 12
    assert fxad.value_and_grad(fun=f)(2.0) == (8, 12)
    assert fxad.jit(fxad.vmap(fun=f))(X).shape == X.shape
    assert fxad.jvp(fun=f, primals=(2.0,), tangents=(1.0,)) == (8, 12)
    assert fxad.checkpoint(fun=f)(2.0) == 8
    assert fxad.custom_jvp(fun=f).function is f


def test_trees():
    pair = (1, (2, 3))
    add = lambda a, b: a + b  # noqa: E731
    assert tree.reduce(function=add, tree=pair, initializer=10) == 16
    assert tree.reduce(add, pair, 10) == 16
    with pytest.raises(TypeError):
        tree.reduce(add, pair, initializer=None)  # None is a start like any other
    outer, inner = tree.structure((0, 0)), tree.structure([0, 0, 0])
    swapped = tree.transpose(
        outer_treedef=outer, inner_treedef=inner, pytree_to_transpose=([1, 2, 3], [4, 5, 6])
    )
    assert swapped == [(1, 4), (2, 5), (3, 6)]

    class Box:
        def __init__(self, value):
            self.value = value

    class Keyed(Box):
        pass

    tree_util.register_pytree_node(
        nodetype=Box,
        flatten_func=lambda b: ((b.value,), None),
        unflatten_func=lambda _, children: Box(*children),
    )
    tree_util.register_pytree_with_keys(
        nodetype=Keyed,
        flatten_with_keys=lambda b: (((tree_util.GetAttrKey("value"), b.value),), None),
        unflatten_func=lambda _, children: Keyed(*children),
        flatten_func=lambda b: ((b.value,), None),
    )
    assert tree.map(lambda v: v + 1, Box(1)).value == 2
    assert tree_util.keystr(keys=tree.leaves_with_path(Keyed(1))[0][0]) == ".value"


def test_elementwise_functions_take_x():
    assert lax.exp(x=0.0) == 1
    assert lax.add(x=1, y=2) == 3
    assert jnp.round(a=2.34, decimals=1) == pytest.approx(2.3)
    assert jnp.angle(z=1j, deg=True) == pytest.approx(90)
    assert lax.mul(np.uint8(200), np.uint8(2), out_dtype=np.int32) == 400
    assert lax.switch(1, [lambda x: x, lambda x: -x], operand=3) == -3


def test_where_with_a_size():
    flags = np.array([True, False, True])
    sized = fxad.jit(lambda c: jnp.where(c, size=3, fill_value=-1))
    assert sized(flags)[0].tolist() == [0, 2, -1]
    with pytest.raises(TypeMismatch, match="size"):
        jnp.where(flags, 1, 2, size=3)


def test_products_take_precision_and_a_dtype():
    a = np.array([100, 100, 100], np.int8)
    for f in (jnp.vdot, jnp.inner, jnp.vecdot):
        assert f(a, a, preferred_element_type=np.int32) == 30000
    assert jnp.tensordot(a, a, 1, preferred_element_type=np.int32) == 30000
    wide = jnp.convolve(a, a, precision="highest", preferred_element_type=np.int32)
    assert wide.tolist() == np.convolve(a.astype(int), a.astype(int)).tolist()
    assert lax.dot(X, X, dimension_numbers=(((1,), (1,)), ((), ()))).tolist() == (X @ X.T).tolist()


def test_sums_of_small_integers_without_promotion():
    a = np.array([100, 100], np.int8)
    assert jnp.sum(a, promote_integers=False).dtype == np.int8
    assert int(jnp.sum(a)) == 200
    assert jnp.prod(a, promote_integers=False) == np.int8(10000 - 39 * 256)


def test_negative_starts_of_slices():
    x = jnp.arange(5)
    plain = lax.dynamic_slice(x, (jnp.int32(-2),), (2,), allow_negative_indices=False)
    assert plain.tolist() == [0, 1]
    assert lax.dynamic_slice(x, (jnp.int32(-2),), (2,)).tolist() == [3, 4]
    new = lax.dynamic_update_slice_in_dim(x, jnp.array([9]), -1, 0, allow_negative_indices=False)
    assert new.tolist() == [9, 1, 2, 3, 4]


def test_make_jaxpr_returns_shapes():
    program, shapes = fxad.make_jaxpr(lambda x: {"y": x.sum(0)}, return_shape=True)(X)
    assert "sum" in str(program)
    assert shapes["y"].shape == (3,) and shapes["y"].dtype == np.float32


def test_linear_algebra_hints():
    factor = scipy.linalg.cho_factor(SQUARE, lower=True, overwrite_a=True, check_finite=False)
    np.testing.assert_allclose(scipy.linalg.cho_solve(factor, SQUARE), np.eye(2), atol=1e-6)
    values = scipy.linalg.eigh(SQUARE, None, True, True)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(SQUARE), rtol=1e-6)
    low = np.array([[1.0, 2.0], [7.0, 3.0]], np.float32)
    np.testing.assert_allclose(
        scipy.linalg.expm(A=low, upper_triangular=True), scipy.linalg.expm(np.triu(low)), rtol=1e-6
    )
    assert scipy.special.comb(4, 2, repetition=True) == pytest.approx(10, rel=1e-5)


def test_the_text_of_what_is_lowered():
    lowered = fxad.jit(lambda x: jnp.sin(x)).lower(1.0)
    assert "test_keywords.py" in lowered.as_text(debug_info=True)
    assert lowered.compile(compiler_options={})(0.0) == 0
    assert "sin(" in lowered.compile().as_text()


def test_methods_take_what_functions_take():
    x = jnp.asarray(X)
    assert x.sum(0, None, None, True).shape == (1, 3)
    assert np.sum(x) == 15  # NumPy passes out=None
    with pytest.raises(BadArgument, match="out"):
        x.max(0, X)


def test_shape_structs_like_an_array():
    struct = fxad.ShapeDtypeStruct.like(jnp.asarray(X))
    assert struct == fxad.ShapeDtypeStruct((2, 3), np.float32)
    assert fxad.ShapeDtypeStruct.like(jnp.asarray(1.0)).weak_type
    assert struct.update(dtype=np.int32) == fxad.ShapeDtypeStruct((2, 3), np.int32)
    assert fxad.ShapeDtypeStruct.like(struct) == struct
    with pytest.raises(TypeError, match="size"):
        struct.update(size=3)


def test_values_that_are_known_are_computed_while_tracing():
    @fxad.jit
    def f(x):
        with fxad.ensure_compile_time_eval():
            size = int(jnp.sum(jnp.arange(3)))
            rows = lax.fori_loop(0, 3, lambda i, c: c + i, 0)
            doubled = x * 2
        assert int(rows) == 3
        return doubled[:size], jnp.sum(jnp.ones(2)) * x[0]

    first, second = f(np.arange(5, dtype=np.float32))
    assert first.tolist() == [0, 2, 4] and second == 0
    with pytest.raises(fxad.errors.ConcretizationError):
        fxad.jit(lambda: int(jnp.sum(jnp.arange(3))))()

    def inside(c, _):
        with fxad.ensure_compile_time_eval():
            return c * float(jnp.exp(0.0)), None

    assert fxad.grad(lambda x: lax.scan(inside, x, None, length=2)[0])(3.0) == 1
