"""fxad.numpy against NumPy: arithmetic, reductions, products, dtypes, statistics; promotion against
JAX (peers)."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle

import numpy as np
import pytest
from numpy_draws import draw, same

import fxad
import fxad.numpy as jnp
from fxad.core.errors import AxisError, ShapeError, TypeMismatch

SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 1, 3), (2, 0, 3)]


# ---------------------------------------------------------------- elementwise

UNARY = """abs negative positive sign floor ceil trunc rint square exp expm1 sin cos tan sinh cosh
tanh arctan arcsinh isnan isfinite isinf logical_not reciprocal deg2rad rad2deg sinc conj real imag
angle signbit cbrt exp2 fabs""".split()
BINARY = """add subtract multiply maximum minimum fmax fmin arctan2 hypot logaddexp copysign equal
not_equal less less_equal greater greater_equal logical_and logical_or logical_xor heaviside
divide floor_divide remainder fmod float_power""".split()
INTEGER = "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm floor_divide remainder"


def test_unary():
    for name, shape in itertools.product(UNARY, SHAPES):
        x = draw(*shape) + 3
        same(getattr(jnp, name)(x), getattr(np, name)(x), name, rtol=1e-5)


def test_binary_broadcasting():
    pairs = [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((0, 3), (3,)), ((2, 1, 3), (4, 1))]
    for name, (a, b) in itertools.product(BINARY, pairs):
        x, y = abs(draw(*a)) + 0.5, abs(draw(*b)) + 0.5
        got, want = getattr(jnp, name)(x, y), getattr(np, name)(x, y)
        same(got, want.astype("float32") if want.dtype == "float64" else want, name, rtol=1e-5)


def test_integers():
    for name in INTEGER.split():
        for dtype in ("int8", "int32", "uint8"):
            x, y = draw(4, 5, dtype=dtype), abs(draw(5, dtype=dtype)) % 5 + 1
            same(getattr(jnp, name)(x, y), getattr(np, name)(x, y.astype(dtype)), name)
    x = np.array([7, -7, 7, -7], np.int32)
    y = np.array([2, 2, -2, -2], np.int32)
    same(jnp.asarray(x) // y, x // y)
    same(jnp.asarray(x) % y, x % y)
    same(divmod(jnp.asarray(x), y), np.divmod(x, y))
    below = np.array([-1, -1, -2, -3, -1, 0], np.int32)
    powers = jnp.power(np.array([1, -1, -1, -1, 2, 0], np.int32), below)
    assert powers.tolist() == [1, -1, 1, -1, 0, 1]  # 1 / x**-y towards 0
    assert int(jnp.asarray(5) // 0) == 0  # documented: no trap, no garbage
    assert int(jnp.asarray(5) % 0) == 0


def test_operators_and_reflection():
    x, n = draw(3), np.float32(2)
    a = jnp.asarray(x)
    for got, want in [
        (2 - a, 2 - x), (a - 2, x - 2), (n / a, n / x), (x + a, x + x), (a**2, x**2),
        (2.0**a, np.float32(2) ** x), (-a, -x), (abs(a), abs(x)), (x @ a, x @ x), (a @ x, x @ x),
        (a > 0, x > 0), (a <= 0, x <= 0), (x == a, x == x), (~(a > 0), ~(x > 0)),
        (round(a, 1), np.round(x, 1)), (a % 1.5, x % np.float32(1.5)), (5 // a, 5 // x),
    ]:  # fmt: skip
        assert isinstance(got, fxad.Array)
        same(got, want, rtol=1e-5)


# ---------------------------------------------------------------- reductions

REDUCTIONS = ["sum", "prod", "mean", "max", "min", "any", "all", "var", "std", "ptp", "median"]
AXES = [None, 0, -1, 1, (0, 1), (0, 2), (2, 0, 1), ()]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    x = draw(3, 4, 2)
    for axis, keepdims in itertools.product(AXES, (False, True)):
        if name in ("median", "ptp") and axis == ():
            continue
        want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        same(getattr(jnp, name)(x, axis=axis, keepdims=keepdims), want, (name, axis), rtol=1e-5)
    if name in ("sum", "prod", "any", "all"):
        for shape in [(0,), (2, 0)]:
            empty = np.zeros(shape, np.float32)
            same(getattr(jnp, name)(empty, axis=-1), getattr(np, name)(empty, axis=-1))


def test_reductions_with_where_and_initial():
    x, m = draw(4, 5), draw(4, 5, dtype="bool")
    same(jnp.sum(x, 0, where=m), np.sum(x, 0, where=m))
    same(jnp.sum(x, 1, where=m, initial=3), np.sum(x, 1, where=m, initial=3))
    same(jnp.prod(x, where=m), np.prod(x, where=m), rtol=1e-5)
    same(jnp.max(x, 1, where=m, initial=-7), np.max(x, 1, where=m, initial=-7))
    same(jnp.min(x, initial=-9), np.min(x, initial=-9))
    same(jnp.mean(x, 1, where=m | (x > 0)), np.mean(x, 1, where=m | (x > 0)))
    same(jnp.var(x, 0, ddof=1), np.var(x, 0, ddof=1), rtol=1e-5)
    same(jnp.any(x > 0, 1, where=m), np.any(x > 0, 1, where=m))
    same(jnp.count_nonzero(m, 1), np.count_nonzero(m, 1))
    same(jnp.average(x, 0, weights=abs(x[:, 0])), np.average(x, 0, weights=abs(x[:, 0])), rtol=1e-5)
    cube, weights = np.cos(np.arange(24, dtype="float32")).reshape(2, 3, 4), x[:2, :4] ** 2
    for axis, given in (((0, 2), weights), ((-1, 0), weights.T)):
        wanted = (cube * weights[:, None]).sum((0, 2), keepdims=True) / weights.sum()
        same(jnp.average(cube, axis, given, keepdims=True), wanted, rtol=1e-5)
    same(jnp.quantile(x, 0.3, 1), np.quantile(x, np.float32(0.3), 1), rtol=1e-5)
    same(jnp.percentile(x, np.array([10, 90]), 0), np.percentile(x, [10, 90], 0), rtol=1e-5)
    n = np.where(m, x, np.nan).astype(np.float32)
    same(jnp.nansum(n, 1), np.nansum(n, 1))
    same(jnp.nanmax(n), np.nanmax(n))
    same(jnp.nanmean(n), np.nanmean(n), rtol=1e-5)


def test_reductions_of_narrow_types():
    small = np.full(300, 100, np.int8)
    assert int(jnp.sum(small)) == 30000  # sums of small integers widen
    assert jnp.sum(small).dtype == np.int32
    assert jnp.mean(np.arange(4)).dtype == np.float32
    half = np.full(5000, 1.0, np.float16)
    assert float(jnp.sum(half)) == 5000.0  # accumulates in float32
    assert jnp.sum(half).dtype == np.float16
    assert jnp.sum(np.ones(3, bool)).dtype == np.int32


def test_nan_and_order():
    x = np.array([3, np.nan, -1, np.inf, -np.inf, np.nan, 0], np.float32)
    assert np.isnan(jnp.max(x))
    assert int(jnp.argmax(x)) == int(np.argmax(x))
    assert int(jnp.argmin(x)) == int(np.argmin(x))
    same(jnp.sort(x), np.sort(x))
    same(jnp.argsort(x), np.argsort(x, kind="stable"))
    same(jnp.nan_to_num(x), np.nan_to_num(x))
    chosen = (np.stack([x > 0, x < 0]), np.stack([x, -x]), np.float32(7))
    same(jnp.select(*chosen), np.select(*chosen))
    same(jnp.heaviside(x, 0.5), np.heaviside(x, np.float32(0.5)))
    z = np.stack([x, x[::-1]], -1).view(np.complex64)
    for given in ({}, {"nan": 3.0, "posinf": 4.0, "neginf": 5.0}):
        same(jnp.nan_to_num(z, **given), np.nan_to_num(z, **given))
    same(jnp.cumsum(x[6:]), np.cumsum(x[6:]))


# ---------------------------------------------------------------- products

EINSUMS = [
    "ij,jk->ik", "ij,kj", "bij,bjk->bik", "ij->ji", "ii->i", "ii", "ij->", "ij,ij->", "i,j->ij",
    "bhtd,bhsd->bhts", "...ij,...jk->...ik", "ij,jk,kl->il", "ijk,k->ij", "ij,i->j", "abc,cd,bd->a",
    "i...,i...->...",
]  # fmt: skip


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_einsum(subscripts):
    sizes = dict(zip("abcdhijklst", (2, 3, 4, 5, 2, 3, 3, 4, 2, 3, 2), strict=True))
    if "ii" in subscripts:
        shapes = [(3, 3)]
    else:
        terms = subscripts.split("->")[0].split(",")
        shapes = [
            tuple(n for c in t.replace("...", ".") for n in ([2] if c == "." else [sizes[c]]))
            for t in terms
        ]
    args = [draw(*s) for s in shapes]
    same(jnp.einsum(subscripts, *args), np.einsum(subscripts, *args), subscripts, rtol=1e-5)


def test_products():
    shapes = [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
    ]
    for a, b in shapes:
        x, y = draw(*a), draw(*b)
        same(jnp.matmul(x, y), np.matmul(x, y), (a, b), rtol=1e-5)
        same(fxad.jit(jnp.matmul)(x, y), np.matmul(x, y), (a, b), rtol=1e-5)
    x, y = draw(2, 3, 4), draw(4, 3, 5)
    same(jnp.tensordot(x, y, 1), np.tensordot(x, y, 1), rtol=1e-5)
    same(jnp.tensordot(x, y, ((1, 2), (1, 0))), np.tensordot(x, y, ((1, 2), (1, 0))), rtol=1e-5)
    same(jnp.dot(x, y[:, 0]), np.dot(x, y[:, 0]), rtol=1e-5)
    same(jnp.inner(x, x), np.inner(x, x), rtol=1e-5)
    same(jnp.outer(x[0], y[0]), np.outer(x[0], y[0]), rtol=1e-5)
    same(jnp.kron(x[0], y[0]), np.kron(x[0], y[0]), rtol=1e-5)
    same(jnp.vdot(x, x), np.vdot(x, x), rtol=1e-5)
    same(jnp.cross(x[0, :, :3], x[1, :, :3]), np.cross(x[0, :, :3], x[1, :, :3]), rtol=1e-4)
    z = draw(3, 3, dtype="complex64")
    same(z @ jnp.asarray(z), z @ z, rtol=1e-5)
    i = draw(3, 3, dtype="int32")
    same(jnp.asarray(i) @ i, i @ i)
    same(jnp.convolve(x[0, 0], y[:3, 0, 0]), np.convolve(x[0, 0], y[:3, 0, 0]), rtol=1e-4)
    long, z = draw(6), draw(4, dtype="complex64")
    for n, m, mode in itertools.product((2, 3, 4, 6), (2, 3, 5, 6), ("same", "valid", "full")):
        for name, a in (("convolve", long), ("correlate", long), ("correlate", z)):
            got, want = (getattr(xp, name)(a[:n], long[:m], mode) for xp in (jnp, np))
            same(got, want, (name, n, m, mode), rtol=1e-4)


# ---------------------------------------------------------------- dtypes


def test_dtypes_can_be_called_and_compared():
    assert jnp.float32(3).dtype == jnp.float32
    assert np.dtype(jnp.bfloat16).name == "bfloat16"
    assert fxad.jit(lambda x: jnp.int32(x) + 1)(2.7).dtype == jnp.int32
    assert jnp.finfo(jnp.bfloat16).eps == 2**-7
    assert jnp.finfo(np.float32).bits == 32
    assert jnp.iinfo(jnp.zeros(1, jnp.int8)).max == 127
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert not jnp.issubdtype(np.int32, jnp.floating)
    assert jnp.isdtype(jnp.int32, "signed integer")
    assert not jnp.isdtype(jnp.float32, "signed integer")


def test_a_dtype_that_can_be_called_is_a_class_like_numpys():
    kinds = [v for v in vars(jnp).values() if type(v) is type(jnp.int32)]
    assert len(set(kinds)) >= 17
    for kind in kinds:
        numpys = kind.dtype.type
        assert kind == numpys and numpys == kind and hash(kind) == hash(numpys)
        assert {numpys: 1}[kind] == {kind: 1}[numpys] == 1
        assert kind == kind.dtype and kind.dtype == kind  # whose hash is another in NumPy too
        assert not any(kind == other for other in (None, 3, kind.__name__, int, float, bool))
        assert isinstance(kind, type) and not isinstance(kind(1), kind)
        assert isinstance(numpys(1), kind) and not isinstance(1, kind)
        assert issubclass(kind, kind) and not issubclass(kind, np.generic)
        assert pickle.loads(pickle.dumps(kind)) is copy.deepcopy(kind) is kind
        assert repr(kind) == str(kind) == f"fxad.numpy.{kind.__name__}"
        assert kind.itemsize == kind.dtype.itemsize and not hasattr(kind, "shape")
    assert jnp.int32 != jnp.int64 and jnp.int32 != np.float32
    assert not jnp.isscalar(jnp.int32)
    assert (jnp.int32 | None) == (None | jnp.int32)
    one = functools.singledispatch(lambda x: 0)
    one.register(jnp.int32, lambda x: 1)
    assert one(1) == 0


@pytest.mark.peers
def test_promotion_is_that_of_jax():
    jax = pytest.importorskip("jax")
    names = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 bfloat16 float16 float32
    float64 complex64 complex128""".split()
    values = [np.ones(1, jnp.dtype(n)) for n in names] + [True, 2, 2.0, 2j]
    for x64 in (False, True):
        jax.config.update("jax_enable_x64", x64)
        try:
            with fxad.enable_x64(x64):
                for a, b in itertools.product(values, repeat=2):
                    want = jax.numpy.result_type(a, b)
                    assert jnp.add(a, b).dtype == want, (a, b)
                    assert jnp.result_type(a, b) == want, (a, b)
        finally:
            jax.config.update("jax_enable_x64", False)


# ---------------------------------------------------------------- statistics, polynomials


def test_statistics():
    x = draw(4, 6)
    n = np.where(x > 1, np.nan, x).astype(np.float32)
    for axis in (None, 0, 1):
        for name in ("nanvar", "nanstd", "nanmedian", "nanargmax", "nanargmin", "nancumsum"):
            same(getattr(jnp, name)(n, axis), getattr(np, name)(n, axis), name, rtol=1e-5)
        same(jnp.nanquantile(n, 0.3, axis), np.nanquantile(n, np.float32(0.3), axis), rtol=1e-5)
    same(jnp.nanpercentile(n, [20, 80], 0), np.nanpercentile(n, [20, 80], 0), rtol=1e-5)
    same(jnp.cov(x), np.cov(x).astype("float32"), rtol=1e-5)
    same(jnp.cov(x[0], x[1], ddof=0), np.cov(x[0], x[1], ddof=0).astype("float32"), rtol=1e-5)
    same(jnp.corrcoef(x), np.corrcoef(x).astype("float32"), rtol=1e-5)
    same(jnp.gradient(x), list(np.gradient(x)), rtol=1e-5)
    same(jnp.gradient(x, 0.5, axis=1), np.gradient(x, 0.5, axis=1), rtol=1e-5)
    p, q = draw(4), draw(3)
    same(jnp.polyval(p, x), np.polyval(p, x), rtol=1e-4)
    same(jnp.polyval(p[:0], x), np.zeros_like(x))
    same(jnp.polyval(np.zeros((0, 6), np.float32), x), np.zeros_like(x))
    bools = np.array([True, False])
    same(jnp.polyval(bools, bools), bools)
    same(jnp.polymul(p, q), np.polymul(p, q), rtol=1e-5)
    zeros = np.zeros(2, np.float32)
    trimmed = jnp.polymul(np.append(zeros, p), np.append(zeros, q), trim_leading_zeros=True)
    same(trimmed, np.polymul(p, q), rtol=1e-5)
    assert jnp.polymul(zeros, q, trim_leading_zeros=True).tolist() == [0, 0, 0]
    found = jnp.polydiv(np.float32([1, 3, 5, 7]), np.float32([1, 1]), trim_leading_zeros=True)
    same(found, (np.float32([1, 2, 3]), np.float32([4])))
    same(jnp.polyadd(p, q), np.polyadd(p, q))
    same(jnp.polysub(q, p), np.polysub(q, p))
    same(jnp.polyder(p, 2), np.polyder(p, 2).astype("float32"))
    same(jnp.polyint(p), np.polyint(p).astype("float32"))
    for name in ("hanning", "hamming", "blackman"):
        same(getattr(jnp, name)(9), getattr(np, name)(9), name, rtol=1e-5)
    same(jnp.bartlett(8), np.bartlett(8).astype("float32"))
    same(jnp.kaiser(8, 3.5), np.kaiser(8, 3.5).astype("float32"))
    same(jnp.modf(x), np.modf(x), rtol=1e-5)
    same(jnp.unwrap(np.cumsum(x * 3, 1)), np.unwrap(np.cumsum(x * 3, 1)), rtol=1e-5)
    for dtype, period in (("int32", 4), ("int32", 5), ("uint8", 4)):  # integers stay integers
        turns = np.array([0, 1, 3, 0, 1, 3, 1, 0], dtype)
        wanted = np.unwrap(turns.astype(int), period=period).astype(dtype)
        same(jnp.unwrap(turns, period=period), wanted)
    same(jnp.matvec(x[None], x[0]), (x @ x[0])[None], rtol=1e-5)  # NumPy's is of 2.2
    assert bool(jnp.array_equiv(x[:1], np.repeat(x[:1], 3, 0)))


def test_parameters_that_may_be_traced():
    x = np.cos(np.arange(20, dtype="float32") ** 2).reshape(4, 5)

    def every(ddof, beta, k, rtol):
        return (
            (jnp.var(x, 1, ddof=ddof), jnp.std(x, ddof=ddof), jnp.var(x, 0, ddof=4 * ddof)),
            (jnp.kaiser(7, beta), jnp.eye(3, 4, k=k), jnp.tri(3, 4, k=k - 7), jnp.tri(3, k=-k)),
            jnp.linalg.pinv(x, rtol=rtol),
        )

    wanted = (
        (np.var(x, 1, ddof=1), np.std(x, ddof=1), np.full(5, np.nan, "float32")),
        (np.kaiser(7, 8.5), np.eye(3, 4, 1), np.zeros((3, 4)), np.tri(3, k=-1)),
        np.linalg.pinv(x, np.float32(0.3)),
    )
    for function in (every, fxad.jit(every)):
        same(function(1, 8.5, 1, 0.3), wanted, rtol=1e-4)
    slope = fxad.grad(lambda ddof: jnp.var(x[0], ddof=ddof))(1.0)
    same(slope, np.var(x[0], ddof=1) / 4, rtol=1e-5)


def test_sums_in_bool_say_whether_any_is_true():
    x, m = np.array([[0, 0, 2], [0, 0, 0]]), np.array([True, True, False])
    for name in ("sum", "prod", "cumsum", "cumprod"):
        ours, theirs = getattr(jnp, name), getattr(np, name)
        for axis in (0, 1):
            same(ours(x, axis, dtype=bool), theirs(x, axis, dtype=bool), name)
    same(jnp.sum(x, 1, bool, where=m), np.array([False, False]))
    same(jnp.sum(x, 1, bool, initial=1), np.array([True, True]))


def test_sums_of_exponentials_of_complex_numbers():
    z = np.array([[1 + 2j, -1 + 0.5j], [300 - 1j, 299 + 3j]], np.complex64)
    direct = np.log(np.exp(z.astype(complex)).sum(1)).astype("complex64")
    same(jnp.logsumexp(z, 1), direct, rtol=1e-5)
    same(jnp.logaddexp(z[:, 0], z[:, 1]), direct, rtol=1e-5)
    size, sign = jnp.logsumexp(z, 1, return_sign=True)
    same(size, direct.real, rtol=1e-5)
    same(sign, np.exp(1j * direct.imag).astype("complex64"), rtol=1e-5)
    same(jnp.logsumexp(np.zeros(2, "float32"), b=np.array([1j, 1])), np.log(np.complex64(1 + 1j)))
    assert jnp.isnan(jnp.logsumexp(jnp.zeros(2), b=jnp.array([1.0, -2.0])))
    assert jnp.logsumexp(jnp.full(2, -jnp.inf + 0j)) == -jnp.inf


def test_apply_over_axes():
    x = draw(2, 3, 4)
    for axes in ([0], (0, 2), [1, -1], 2, [], range(3)):
        want = np.apply_over_axes(np.sum, x, axes) if np.size(axes) else x
        same(jnp.apply_over_axes(jnp.sum, x, axes), want, rtol=1e-5)
    same(jnp.apply_over_axes(jnp.cumsum, x, [0, 2]), x.cumsum(0).cumsum(2), rtol=1e-5)
    assert fxad.grad(lambda x: jnp.apply_over_axes(jnp.prod, x, [0, 1]).sum())(x).shape == x.shape
    with pytest.raises(ShapeError, match=r"makes f32\[1,2,3,4\] of f32\[2,3,4\]"):
        jnp.apply_over_axes(lambda a, axis: a[None], x, [0])
    with pytest.raises(AxisError, match="axis 3 is out of range"):
        jnp.apply_over_axes(jnp.sum, x, [3])


def test_vectorize_and_apply_along_axis():
    x, y = draw(4, 1, 3), draw(5, 3)
    got = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, y)
    same(got, np.einsum("ijk,jk->ij", np.broadcast_to(x, (4, 5, 3)), y), rtol=1e-5)
    same(jnp.vectorize(lambda a, b, k: a * b + k, excluded=(2,))(x, y, 2.0), x * y + 2)
    product = jnp.vectorize(lambda a, b=None, how="": a * b if how == "*" else a, excluded={"how"})
    same(product(x, b=y, how="*"), x * y)
    same(product(x, None), x)
    same(
        jnp.apply_along_axis(lambda row: (row.sum(), row[:2]), 1, y),
        (y.sum(1), y[:, :2]),
        rtol=1e-5,
    )
    same(jnp.apply_along_axis(jnp.cumsum, 1, y), np.apply_along_axis(np.cumsum, 1, y), rtol=1e-5)
    same(jnp.apply_along_axis(jnp.sum, 0, y), np.apply_along_axis(np.sum, 0, y), rtol=1e-5)
    same(jnp.apply_along_axis(jnp.diag, 0, y), np.apply_along_axis(np.diag, 0, y))
    same(
        jnp.einsum(x, [0, 1, 2], y, [3, 2], [0, 3]),
        np.einsum(x, [0, 1, 2], y, [3, 2], [0, 3]),
        rtol=1e-5,
    )


def test_sinc_and_its_derivatives_near_zero():
    """Against Taylor's series of sin(y) / y, y = pi x: the quotient's rule loses digits."""
    small = np.array([0.0, 1e-9, -1e-4, 0.03, -0.2])
    y = np.pi * small
    series = [
        1 - y**2 / 6 + y**4 / 120 - y**6 / 5040 + y**8 / 362880 - y**10 / 39916800,
        np.pi * (-y / 3 + y**3 / 30 - y**5 / 840 + y**7 / 45360 - y**9 / 3991680),
        np.pi**2 * (-1 / 3 + y**2 / 10 - y**4 / 168 + y**6 / 6480 - y**8 / 443520),
    ]
    with fxad.enable_x64():
        function = jnp.sinc
        for want in series:
            got = fxad.vmap(function)(small)
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=0)
            np.testing.assert_allclose(fxad.jit(fxad.vmap(function))(small), got, rtol=1e-13)
            function = fxad.grad(function)


def test_the_text_of_an_empty_array_has_its_shape():
    assert repr(jnp.zeros((0, 3), "float32")) == "Array([], shape=(0, 3), dtype=float32)"
    assert repr(jnp.zeros(0, "int8")) == "Array([], shape=(0,), dtype=int8)"


def test_integers_round_to_tens():
    x = np.array([12, 15, 25, -15, -25, -26, 0, 99], np.int32)
    for decimals in (-1, -2, -12, 0, 3):
        same(jnp.round(x, decimals), np.round(x.astype(float), decimals).astype("int32"), decimals)


def test_complex_numbers_are_no_real_ones():
    for put in (lambda: jnp.zeros(3).at[0].set(1j), lambda: jnp.full(2, 1j, "float32")):
        with pytest.raises(TypeMismatch, match=r"the complex number 1j is no float32; take its"):
            put()


def test_bools_add_up_without_promotion_too():
    flags = jnp.array([True, True])
    assert repr(jnp.sum(flags, promote_integers=False)) == "Array(2, dtype=int32)"
    assert repr(jnp.prod(flags, promote_integers=False)) == "Array(1, dtype=int32)"
    assert jnp.sum(flags, dtype=bool).dtype == bool
    assert jnp.zeros((0, 3), jnp.int16).byteswap().shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.int32])
def test_divisors_of_the_least_integer_are_positive(dtype):
    x, least = np.array([1, 2, 3, 7, -12, 0], dtype), np.iinfo(dtype).min
    np.testing.assert_array_equal(jnp.gcd(x, dtype(least)), np.gcd(x, dtype(least)))
    np.testing.assert_array_equal(jnp.gcd(dtype(least), x[:5]), np.gcd(dtype(least), x[:5]))
