"""fxad.numpy against NumPy: shapes, dtypes, axes, indexing; promotion against JAX (peers)."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp

R = np.random.default_rng(0)
SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 1, 3), (2, 0, 3)]


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype == "bool":
        return R.random(shape) > 0.5
    if dtype.startswith(("int", "uint")):
        return R.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
    x = R.standard_normal(shape)
    return (x + 1j * R.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def same(got, want, name="", rtol: float = 2e-6) -> None:
    """Equal shapes and values; dtypes are NumPy's narrowed to 32 bits."""
    pairs = zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True)
    for g, w in pairs:
        w = np.asarray(w)
        assert g.shape == w.shape, name
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
        assert g.dtype.name == narrow.get(w.dtype.name, w.dtype.name), name
        np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-6, err_msg=str(name))


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
    same(jnp.cumsum(x[6:]), np.cumsum(x[6:]))


# ---------------------------------------------------------------- shapes and order


def test_sorting_and_searching():
    x, i = draw(4, 6), draw(3, 7, dtype="int32")
    for axis in (0, 1, -1, None):
        same(jnp.sort(x, axis), np.sort(x, axis))
        same(jnp.argsort(i, axis), np.argsort(i, axis, kind="stable"))
    for axis in (0, 1, None):
        same(jnp.argmax(i, axis), np.argmax(i, axis))
        same(jnp.argmin(x, axis, keepdims=True), np.argmin(x, axis, keepdims=True))
    keys = np.sort(x[0])
    for side in ("left", "right"):
        same(jnp.searchsorted(keys, x, side), np.searchsorted(keys, x, side))
    same(jnp.unique(i), np.unique(i))
    same(jnp.unique(i, return_counts=True), np.unique(i, return_counts=True))
    same(jnp.bincount(abs(i[0]), length=12), np.bincount(abs(i[0]), minlength=12))
    same(jnp.lexsort((i[0], i[1])), np.lexsort((i[0], i[1])))
    same(jnp.interp(x, keys, x[1]), np.interp(x, keys, x[1]).astype("float32"), rtol=1e-4)
    same(jnp.nonzero(i), tuple(v.astype("int32") for v in np.nonzero(i)))
    same(jnp.histogram(x, 5), np.histogram(x, 5))
    same(jnp.isin(i, [1, 2]), np.isin(i, [1, 2]))


@pytest.mark.parametrize("seed", range(30))
def test_histograms_count_every_element(seed):
    x = np.random.default_rng(seed).standard_normal(24).astype("float32")
    for bins in (1, 5, 7):
        same(jnp.histogram(x, bins), np.histogram(x, bins))


def test_histograms_of_one_value_and_of_none():
    for x in (np.full(5, 3, "float32"), np.zeros(0, "float32"), np.arange(6)):
        same(jnp.histogram(x, 4), np.histogram(x, 4))
    x = draw(50)
    same(jnp.histogram(x, 4, (-1, 1)), np.histogram(x, 4, (-1, 1)))
    same(jnp.histogram(x, 4, density=True), np.histogram(x, 4, density=True))


@pytest.mark.parametrize("length", [0, 1, 7, 1000])
def test_a_compiled_binary_search(length):
    """Every step indexes by the step before: an expression that is shared, not a tree."""
    keys, x = np.sort(draw(length)), draw(300)
    for side in ("left", "right"):
        found = fxad.jit(lambda v, side=side: jnp.searchsorted(keys, v, side))(x)
        same(found, np.searchsorted(keys, x, side))


def test_cumulative():
    x, i = draw(3, 5), draw(3, 5, dtype="int32")
    for axis in (0, 1, None):
        same(jnp.cumsum(x, axis), np.cumsum(x, axis), rtol=1e-5)
        same(jnp.cumprod(x, axis), np.cumprod(x, axis), rtol=1e-5)
        same(jnp.cumsum(i, axis), np.cumsum(i, axis))
    same(jnp.diff(x, 2, 0), np.diff(x, 2, 0), rtol=1e-4)
    same(jnp.cumsum(np.ones((0, 3), np.float32), 0), np.zeros((0, 3), np.float32))


MOVES = {
    "reshape": lambda m, x: [m.reshape(x, (4, -1)), m.ravel(x), x.reshape(2, 12), x.T, x.flatten()],
    "axes": lambda m, x: [
        m.transpose(x, (2, 0, 1)),
        m.swapaxes(x, 0, 2),
        m.moveaxis(x, 0, -1),
        m.moveaxis(x, (0, 1), (1, 2)),
        m.expand_dims(x, (0, 2)),
        m.squeeze(x[None]),
        m.rollaxis(x, 2),
        m.atleast_3d(x[0]),
    ],
    "join": lambda m, x: [
        m.concatenate([x, x], 1),
        m.stack([x, x], -1),
        m.vstack([x, x]),
        m.hstack([x, x]),
        m.dstack([x, x]),
        m.column_stack([x[0, 0], x[0, 1]]),
        m.concatenate([x, x], None),
        m.append(x, x),
    ],
    "split": lambda m, x: [
        *m.split(x, 3, 1),
        *m.array_split(x, 3, 2),
        *m.split(x, [1, 2], 2),
        *m.vsplit(x, 2),
    ],
    "repeat": lambda m, x: [
        m.repeat(x, 2, 1),
        m.repeat(x, 2),
        m.repeat(x, [1, 2], 0),
        m.tile(x, 2),
        m.tile(x, (2, 1, 1, 2)),
    ],
    "flip": lambda m, x: [
        m.flip(x),
        m.flip(x, 1),
        m.fliplr(x),
        m.flipud(x),
        m.rot90(x),
        m.rot90(x, 3, (1, 2)),
    ],
    "roll": lambda m, x: [
        m.roll(x, 5),
        m.roll(x, -1, 1),
        m.roll(x, (1, 2), (0, 2)),
        m.roll(x, 30, 0),
    ],
    "pad": lambda m, x: [
        m.pad(x, 1),
        m.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=3.0),
        m.pad(x, 1, "edge"),
        m.pad(x, 1, "reflect"),
        m.pad(x, 1, "symmetric"),
        m.pad(x, 1, "wrap"),
    ],
    "triangles": lambda m, x: [
        m.tril(x),
        m.triu(x, 1),
        m.tril(x[0], -1),
        m.diag(x[0]),
        m.diag(x[0, 0], 1),
        m.diagonal(x, 1, 0, 2),
        m.trace(x),
        m.eye(3, 4, 1),
        m.tri(3, 2),
    ],
    "broadcast": lambda m, x: [
        m.broadcast_to(x[0, 0], (2, 4)),
        *m.broadcast_arrays(x, x[0, :1]),
        *m.meshgrid(x[0, 0], x[0, :, 0]),
    ],
    "choice": lambda m, x: [
        m.where(x > 0, x, 0),
        m.clip(x, -0.5, 0.5),
        m.clip(x, None, 0.1),
        m.select([x > 1, x > 0], [x, -x], 7),
    ],
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name):
    x = draw(2, 3, 4)
    same(MOVES[name](jnp, jnp.asarray(x)), MOVES[name](np, x), name)
    same(fxad.jit(lambda v: MOVES[name](jnp, v))(x), MOVES[name](np, x), name)


def test_creation():
    for args in [(5,), (2, 7), (0, 1, 0.25), (5, 0, -2)]:
        same(jnp.arange(*args), np.arange(*args))
    same(jnp.linspace(0, 1, 7), np.linspace(0, 1, 7))
    same(jnp.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, endpoint=False))
    same(jnp.logspace(0, 2, 3), np.logspace(0, 2, 3), rtol=1e-5)
    same(jnp.full((2, 2), 3), np.full((2, 2), 3))
    same(jnp.ones_like(draw(2)), np.ones(2, np.float32))
    same(jnp.array([[1, 2.5], [3, 4]]), np.array([[1, 2.5], [3, 4]]))
    assert jnp.array([1, jnp.float32(2)]).dtype == np.float32
    same(jnp.indices((2, 3)), np.indices((2, 3)))
    same(jnp.tril_indices(3), np.tril_indices(3))
    assert jnp.zeros(3, bool).dtype == bool
    assert jnp.float32(2).dtype == np.float32


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


# ---------------------------------------------------------------- indexing


class Indices:
    """Random indices of every kind, drawn with a seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.r = random.Random(seed), np.random.default_rng(seed)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice([1, 2, 3, 4]) for _ in range(self.rng.randint(1, 4)))

    def index(self, shape: tuple[int, ...]):
        rng, items, axis, dots = self.rng, [], 0, False
        arrays = rng.choice([(2,), (3,), (2, 3), (1,), (), (0,)])
        while axis < len(shape):
            size = shape[axis]
            kind = rng.choice(["int", "slice", "slice", "none", "dots", "array", "array", "mask"])
            if kind == "none":
                items.append(None)
            elif kind == "dots":
                if not dots:
                    items.append(Ellipsis)
                    axis += rng.randint(0, len(shape) - axis)
                dots = True
            elif kind == "int":
                items.append(rng.choice([int, np.int32, jnp.int32])(rng.randint(-size, size - 1)))
                axis += 1
            elif kind == "slice":
                ends = [None, *range(-size - 1, size + 2)]
                step = rng.choice([None, 1, 2, -1, -2, 3])
                items.append(slice(rng.choice(ends), rng.choice(ends), step))
                axis += 1
            elif kind == "array":
                own = arrays if rng.random() < 0.7 else (1,) * len(arrays)
                items.append(self.r.integers(-size, size, own))
                axis += 1
            elif len(arrays) == 1:
                count = rng.randint(1, min(2, len(shape) - axis))
                mask = np.zeros(shape[axis : axis + count], bool)
                if mask.size >= arrays[0]:
                    mask.ravel()[self.r.permutation(mask.size)[: arrays[0]]] = True
                    items.append(mask)
                    axis += count
        return items[0] if len(items) == 1 else tuple(items)


UPDATES = [
    ("add", np.add.at), ("subtract", np.subtract.at), ("multiply", np.multiply.at),
    ("min", np.minimum.at), ("max", np.maximum.at),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_indexing_of_every_kind(seed):
    draws = Indices(seed)
    for number in range(40):
        shape = draws.shape()
        x = draws.r.integers(-50, 50, shape).astype(np.float32)
        index = draws.index(shape)
        plain = fxad.tree.map(np.asarray, index) if isinstance(index, fxad.Array) else index
        if isinstance(index, tuple):
            plain = tuple(np.asarray(i) if isinstance(i, fxad.Array) else i for i in index)
        label = f"{shape}[{index}]"
        try:
            want = x[plain]
        except IndexError:
            with pytest.raises(IndexError):
                jnp.asarray(x)[index]
            continue
        a = jnp.asarray(x)
        np.testing.assert_array_equal(a[index], want, err_msg=label)
        np.testing.assert_array_equal(a.at[index].get(), want, err_msg=label)
        weights = draws.r.integers(-5, 5, want.shape).astype(np.float32)
        expected = np.zeros_like(x)
        np.add.at(expected, plain, weights)
        got = fxad.grad(lambda v, i=index, w=weights: jnp.sum(v[i] * w))(x)
        np.testing.assert_array_equal(got, expected, err_msg=label)
        for method, update in UPDATES:
            values = weights if number % 2 else np.float32(3)
            expected = x.copy()
            update(expected, plain, values)
            got = getattr(a.at[index], method)(values)
            np.testing.assert_array_equal(got, expected, err_msg=f"{method} {label}")
        expected = x.copy()
        expected[plain] = 7
        np.testing.assert_array_equal(a.at[index].set(7), expected, err_msg=label)
        if number % 8 == 0:
            both = fxad.jit(lambda v, i=index: (v[i], v.at[i].add(2.0)))(x)
            expected = x.copy()
            np.add.at(expected, plain, np.float32(2))
            np.testing.assert_array_equal(both[0], want, err_msg=label)
            np.testing.assert_array_equal(both[1], expected, err_msg=label)


def test_indices_out_of_range():
    x = jnp.arange(4.0)
    far = np.array([1, 9, -9])
    for f in (lambda v, i: v[i], fxad.jit(lambda v, i: v[i])):
        np.testing.assert_array_equal(f(x, far), [1.0, 3.0, 0.0])  # clamped
    np.testing.assert_array_equal(x.at[far].set(5.0), [0, 5, 2, 3])  # dropped
    np.testing.assert_array_equal(x.at[far].get(mode="fill", fill_value=-1), [1, -1, -1])
    with pytest.raises(IndexError, match=r"index 4.*axis 0.*f32\[4\].*test_numpy\.py"):
        x[4]
    with pytest.raises(IndexError, match="Too many indices"):
        fxad.jit(lambda v: v[0, 0])(x)


def test_traced_indices():
    x, i = draw(5, 4), np.int32(2)
    f = fxad.jit(lambda v, i: (v[i], v[i, 1], v[:, i], v[i, None], v.at[i].set(0.0), v[-i]))
    want = x.copy()
    want[2] = 0
    same(f(x, i), (x[2], x[2, 1], x[:, 2], x[2, None], want, x[-2]))


def test_take_and_friends():
    x, i = draw(3, 4), np.array([[0, 2], [1, 1]])
    for axis in (None, 0, 1):
        same(jnp.take(x, i, axis), np.take(x, i, axis))
    j = draw(3, 2, dtype="int32") % 4
    same(jnp.take_along_axis(x, j, 1), np.take_along_axis(x, j, 1))
    same(jnp.compress([True, False, True], x, 0), np.compress([True, False, True], x, 0))
    same(jnp.argwhere(x > 0), np.argwhere(x > 0))
    same(jnp.unravel_index(np.arange(5), (2, 3)), np.unravel_index(np.arange(5), (2, 3)))
    same(jnp.ravel_multi_index((i, i), (3, 4)), np.ravel_multi_index((i, i), (3, 4)))


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
    assert {jnp.float32: 1}[np.dtype("float32")] == 1


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


# ---------------------------------------------------------------- grids, statistics, polynomials


def test_grids():
    same(jnp.mgrid[0:3, 1:4], np.mgrid[0:3, 1:4])
    same(jnp.ogrid[0:3, 0:1:4j], list(np.ogrid[0:3, 0:1:4j]))
    same(jnp.mgrid[0:1:3j], np.mgrid[0:1:3j])
    same(jnp.r_[1.0, 2:5, [7, 8]], np.r_[1.0, 2:5, [7, 8]])
    same(jnp.c_[[1, 2], [3, 4]], np.c_[[1, 2], [3, 4]])
    x = draw(4, 5)
    same(jnp.asarray(x)[jnp.ix_([0, 2], [1, 3, 4])], x[np.ix_([0, 2], [1, 3, 4])])
    same(jnp.block([[x, x], [x, x]]), np.block([[x, x], [x, x]]))
    same(jnp.block([x[0], 1.0]), np.block([x[0], 1.0]).astype("float32"))
    same(jnp.diagflat(x[:2, :2]), np.diagflat(x[:2, :2]))
    same(jnp.geomspace(1, 1000, 4), np.geomspace(1, 1000, 4), rtol=1e-5)
    same(
        jnp.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
        np.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
    )
    filled = x[:, :4].copy()
    np.fill_diagonal(filled, 9)
    same(jnp.fill_diagonal(x[:, :4], 9, inplace=False), filled)
    same(jnp.frombuffer(b"\1\2\3", np.uint8), np.array([1, 2, 3], np.uint8))


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
    same(jnp.polymul(p, q), np.polymul(p, q), rtol=1e-5)
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
    same(jnp.matvec(x[None], x[0]), np.matvec(x[None], x[0]), rtol=1e-5)
    assert bool(jnp.array_equiv(x[:1], np.repeat(x[:1], 3, 0)))


def test_vectorize_and_apply_along_axis():
    x, y = draw(4, 1, 3), draw(5, 3)
    got = jnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, y)
    same(got, np.einsum("ijk,jk->ij", np.broadcast_to(x, (4, 5, 3)), y), rtol=1e-5)
    same(jnp.vectorize(lambda a, b, k: a * b + k, excluded=(2,))(x, y, 2.0), x * y + 2)
    same(jnp.apply_along_axis(jnp.cumsum, 1, y), np.apply_along_axis(np.cumsum, 1, y), rtol=1e-5)
    same(jnp.apply_along_axis(jnp.sum, 0, y), np.apply_along_axis(np.sum, 0, y), rtol=1e-5)
    same(jnp.apply_along_axis(jnp.diag, 0, y), np.apply_along_axis(np.diag, 0, y))
    same(
        jnp.einsum(x, [0, 1, 2], y, [3, 2], [0, 3]),
        np.einsum(x, [0, 1, 2], y, [3, 2], [0, 3]),
        rtol=1e-5,
    )


@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_updates_at_a_traced_mask(method):
    x, m = draw(4, 3), draw(4, dtype="bool")
    for mask, value in ((x > 0, 0.25), (m, np.float32([1, 2, 3])), (m, 2.0)):
        want = getattr(jnp.asarray(x).at[mask], method)(value)  # the mask is known: positions
        got = fxad.jit(lambda v, k, u=value: getattr(v.at[k], method)(u))(x, mask)
        np.testing.assert_array_equal(got, want)
        slopes = fxad.jit(fxad.grad(lambda v, k, u=value: getattr(v.at[k], method)(u).sum()))
        eager = fxad.grad(lambda v, k=mask, u=value: getattr(v.at[k], method)(u).sum())
        np.testing.assert_array_equal(slopes(x, mask), eager(x))
