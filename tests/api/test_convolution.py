"""lax convolutions and fxad.scipy.signal against loops in NumPy, differences and JAX (peers)."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.scipy import signal

R = np.random.default_rng(13)


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def by_loops(x, w, strides, pads, holes, spread, groups=1):
    """[N, C, s...] with [O, I, k...]: every output element on its own."""
    n, c, *sizes = x.shape
    outs, ins, *kernel = w.shape
    full = [(s - 1) * h + 1 for s, h in zip(sizes, holes, strict=True)]
    grid = np.zeros((n, c, *full))
    grid[(slice(None), slice(None), *(slice(None, None, h) for h in holes))] = x
    grid = np.pad(grid, [(0, 0), (0, 0), *[(max(a, 0), max(b, 0)) for a, b in pads]])
    cut = [
        slice(max(-a, 0), g - max(-b, 0)) for (a, b), g in zip(pads, grid.shape[2:], strict=True)
    ]
    grid = grid[(slice(None), slice(None), *cut)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    sizes = zip(grid.shape[2:], reach, strides, strict=True)
    lengths = [max((g - r) // s + 1, 0) for g, r, s in sizes]
    out = np.zeros((n, outs, *lengths))
    for place in itertools.product(*map(range, lengths)):
        window = tuple(
            slice(p * s, p * s + r, d)
            for p, s, r, d in zip(place, strides, reach, spread, strict=True)
        )
        patch = grid[(slice(None), slice(None), *window)].reshape(n, groups, ins, -1)
        taps = w.reshape(groups, outs // groups, ins, -1)
        out[(slice(None), slice(None), *place)] = np.einsum("ngik,goik->ngo", patch, taps).reshape(
            n, outs
        )
    return out


CASES = [
    ((5,), (3,), (1,), [(1, 1)], (1,), (1,), 1),
    ((40,), (35,), (2,), [(0, 3)], (1,), (1,), 1),
    ((6, 5), (3, 2), (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1), 1),
    ((6, 5), (3, 2), (2, 3), [(1, 2), (2, 0)], (1, 1), (2, 1), 1),
    ((4, 5), (3, 3), (1, 2), [(2, 2), (-1, 2)], (2, 3), (1, 2), 1),
    ((5, 4), (2, 2), (1, 1), [(1, 0), (0, 1)], (1, 1), (1, 1), 2),
    ((5, 4), (2, 2), (1, 1), [(1, 0), (0, 1)], (1, 1), (1, 1), 4),
    ((3, 4, 5), (2, 2, 3), (1, 2, 1), [(0, 1), (0, 0), (1, 1)], (1, 1, 1), (1, 1, 1), 1),
    ((1, 3), (4, 2), (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1), 1),  # no window fits
    ((4,), (3,), (2,), [(0, 1)], (1,), (4,), 1),
]


@pytest.mark.parametrize(("sizes", "kernel", "strides", "pads", "holes", "spread", "groups"), CASES)
def test_like_loops(sizes, kernel, strides, pads, holes, spread, groups) -> None:
    x = R.standard_normal((2, 4, *sizes))
    w = R.standard_normal((8, 4 // groups, *kernel))
    _check_by_loops(x, w, strides, pads, holes, spread, groups)


def _check_by_loops(x, w, strides, pads, holes, spread, groups) -> None:
    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, pads, holes, spread, feature_group_count=groups
        )

    wanted = by_loops(x, w, strides, pads, holes, spread, groups)
    np.testing.assert_allclose(conv(x, w), wanted, atol=1e-12)
    np.testing.assert_allclose(fxad.jit(conv)(x, w), wanted, atol=1e-12)
    weights = R.standard_normal(wanted.shape)
    dx, dw = fxad.jit(fxad.grad(lambda x, w: jnp.sum(conv(x, w) * weights), argnums=(0, 1)))(x, w)
    # It is linear in each operand: <gradient, way> is the value along the way.
    for way, got in ((R.standard_normal(x.shape), dx), (R.standard_normal(w.shape), dw)):
        moved = conv(way, w) if got is dx else conv(x, way)
        assert float(jnp.vdot(got, way)) == pytest.approx(float(jnp.sum(moved * weights)))


# One feature of the result for each: slices are added, many of them in loops.
ALONE = [
    ((9,), (3,), (1,), [(1, 1)], (1,), (1,)),
    ((90,), (50,), (1,), [(49, 49)], (1,), (1,)),
    ((90,), (33,), (2,), [(3, 0)], (2,), (2,)),
    ((9, 8), (3, 4), (1, 2), [(1, 1), (0, 2)], (1, 1), (2, 1)),
    ((12, 11), (7, 6), (2, 1), [(6, 6), (3, 1)], (1, 1), (1, 2)),
    ((7, 60), (2, 40), (1, 3), [(1, 0), (2, 2)], (1, 2), (1, 1)),
    ((5, 6, 7), (3, 4, 4), (1, 1, 2), [(1, 1), (0, 3), (2, 2)], (1, 1, 1), (1, 2, 1)),
    ((3, 2), (3, 4), (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1)),  # no window fits
]


@pytest.mark.parametrize(("sizes", "kernel", "strides", "pads", "holes", "spread"), ALONE)
@pytest.mark.parametrize("features", [1, 3])
def test_features_apart(features, sizes, kernel, strides, pads, holes, spread) -> None:
    x, w = R.standard_normal((2, features, *sizes)), R.standard_normal((features, 1, *kernel))
    _check_by_loops(x, w, strides, pads, holes, spread, features)


def test_features_apart_in_few_bits() -> None:
    """Sums are of float32, and of the dtype that is asked for; infinities stay where they are."""
    x, w = R.standard_normal((1, 2, 300)), R.standard_normal((2, 1, 60))
    wanted = by_loops(x, w, (1,), [(0, 0)], (1,), (1,), 2)
    for dtype, wide, bound in (
        ("float16", None, 2e-2), ("bfloat16", None, 0.15), ("bfloat16", "float32", 0.1),
        ("float32", None, 1e-5), ("float32", "float64", 1e-5), ("float8_e4m3fn", "float32", 1.5),
    ):  # fmt: skip
        given = jnp.asarray(x, dtype), jnp.asarray(w, dtype)
        how = {"feature_group_count": 2, "preferred_element_type": wide}
        out = fxad.jit(lambda x, w, how=how: lax.conv_general_dilated(x, w, (1,), "VALID", **how))
        assert out(*given).dtype == jnp.dtype(wide or dtype)
        np.testing.assert_allclose(np.asarray(out(*given), float), wanted, atol=bound)
    x[0, 0, 150] = np.inf
    reached = ~np.isfinite(lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=2))
    assert reached.sum() == reached[0, 0, 91:151].sum() == 60


def test_features_apart_compiled_and_not() -> None:
    """Few ops outside jit, one loop inside: the same sums, and the same things are refused."""

    def conv(x: Any, w: Any, wide: Any = None) -> Any:
        how = {"feature_group_count": 2, "preferred_element_type": wide}
        return lax.conv_general_dilated(x, w, (1,), "VALID", **how)

    both = (conv, fxad.jit(conv, static_argnums=2))
    ones = jnp.ones((1, 2, 300), "float8_e4m3fn"), jnp.ones((2, 1, 31), "float8_e4m3fn")
    whole = jnp.ones((1, 2, 300), "int8"), jnp.ones((2, 1, 31), "int8")
    for f in both:
        assert float(f(*ones).max()) == 32  # 31 is none of its numbers; 16 + 1 would not be either
        assert f(*whole, np.int32).dtype == np.int32 and int(f(*whole, np.int32).max()) == 31
        assert f(jnp.ones((1, 2, 300), bool), jnp.ones((2, 1, 31), bool)).all()
        assert f(jnp.ones((1, 2, 5)), jnp.ones((2, 1, 0))).shape == (1, 2, 6)
        for given, wide in ((ones, "int32"), (whole, "float32"), (whole, "bool")):
            with pytest.raises(TypeMismatch, match="their dtype or a wider one of its kind"):
                f(*given, wide)


def test_layouts_and_padding_by_name() -> None:
    x, w = R.standard_normal((2, 3, 7, 6)), R.standard_normal((5, 3, 3, 2))
    plain = np.asarray(lax.conv(x, w, (2, 1), "SAME"))
    assert plain.shape == (2, 5, 4, 6)
    np.testing.assert_allclose(plain, by_loops(x, w, (2, 1), [(1, 1), (0, 1)], (1, 1), (1, 1)))
    channels_last = lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1),
        w.transpose(2, 3, 1, 0),
        (2, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(channels_last, plain.transpose(0, 2, 3, 1))
    numbers = lax.conv_dimension_numbers(x.shape, w.shape, ("NCHW", "OIHW", "CNWH"))
    turned = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=numbers)
    np.testing.assert_allclose(turned, plain.transpose(1, 0, 3, 2))
    np.testing.assert_allclose(
        lax.conv_with_general_padding(x, w, (1, 1), "VALID"),
        by_loops(x, w, (1, 1), [(0, 0)] * 2, (1, 1), (1, 1)),
    )
    lanes = fxad.vmap(lambda k: lax.conv(x, k, (2, 1), "SAME"))(np.stack([w, 2 * w]))
    np.testing.assert_allclose(lanes, np.stack([plain, 2 * plain]))
    half = lax.conv(x.astype(np.float16), w.astype(np.float16), (1, 1), "SAME")
    assert half.dtype == np.float16


def _peak(function) -> int:
    """Bytes that a call has at once, beside what was there."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LARGE = {  # the operands and settings of a convolution whose windows are large
    "two axes": ((8, 16, 16, 8), (3, 3, 8, 8), ([2, 1], "SAME"), {}),
    "holes": ((8, 9, 9, 8), (3, 3, 8, 8), ((1, 1), [[1, 2], [np.int64(2), 0]], [2, 2], [1, 2]), {}),
    "groups": ((8, 16, 16, 8), (3, 3, 4, 8), ((1, 1), "VALID"), {"feature_group_count": 2}),
    "wide": (
        (8, 16, 16, 8),
        (3, 3, 8, 8),
        ((1, 1), "VALID"),
        {"preferred_element_type": "float64", "precision": "highest"},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_ones_outside_jit_are_compiled(name: str) -> None:
    of_x, of_w, settings, more = LARGE[name]
    layout = ("NHWC", "HWIO", "NHWC")
    x, w = R.standard_normal(of_x, np.float32), R.standard_normal(of_w, np.float32)

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, *settings, dimension_numbers=layout, **more)

    with fxad.disable_jit():
        expected = convolved(x, w)
        copies = _peak(lambda: convolved(x, w))
    out = convolved(x, w)
    assert out.dtype == expected.dtype
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    assert _peak(lambda: convolved(x, w)) < copies / 2  # windows are read where they are
    ct = R.standard_normal(out.shape).astype(out.dtype)
    slopes = fxad.vjp(convolved, x, w)[1](ct)
    with fxad.disable_jit():
        wanted = fxad.vjp(convolved, x, w)[1](ct)
    for slope, other in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-4, atol=1e-3)
    lanes = fxad.vmap(convolved, in_axes=(0, None))(np.stack([x, -x]), w)
    np.testing.assert_allclose(lanes, np.stack([expected, -np.asarray(expected)]), 1e-5, 1e-4)


def test_batch_groups_are_separate_convolutions() -> None:
    x, w = R.standard_normal((4, 3, 5)), R.standard_normal((6, 3, 2))
    got = lax.conv_general_dilated(x, w, (1,), "VALID", batch_group_count=2)
    parts = [lax.conv(x[2 * g : 2 * g + 2], w[3 * g : 3 * g + 3], (1,), "VALID") for g in (0, 1)]
    np.testing.assert_allclose(got, np.concatenate(parts, 1))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_convolution_is_the_gradient(stride: int) -> None:
    x, w = R.standard_normal((1, 6 * stride, 2)), R.standard_normal((3, 2, 4))
    numbers = ("NWC", "WIO", "NWC")

    def forward(x: Any) -> Any:
        return lax.conv_general_dilated(x, w, (stride,), "SAME", dimension_numbers=numbers)

    out, pull = fxad.vjp(forward, x)
    (wanted,) = pull(out)
    got = lax.conv_transpose(out, w, (stride,), "SAME", transpose_kernel=True)
    np.testing.assert_allclose(got, wanted)


def test_what_does_not_fit() -> None:
    x, w = np.ones((1, 4, 5, 5)), np.ones((2, 3, 2, 2))
    with pytest.raises(ShapeError, match="does not fit"):
        lax.conv(x, w, (1, 1), "SAME")
    with pytest.raises(ShapeError, match="equally many axes"):
        lax.conv(x, w[0], (1, 1), "SAME")
    for arguments in (((1,), "SAME"), ((1, 1), "EVEN"), ((1, 1), [(0, 0)]), ((0, 1), "SAME")):
        with pytest.raises(BadArgument):
            lax.conv(x, np.ones((2, 4, 2, 2)), *arguments)
    with pytest.raises(BadArgument, match="dimension_numbers"):
        lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHW"))


def nested(x: np.ndarray, k: np.ndarray, mode: str) -> np.ndarray:
    full = np.zeros(
        [n + m - 1 for n, m in zip(x.shape, k.shape, strict=True)], np.result_type(x, k)
    )
    for place in np.ndindex(*k.shape):
        region = tuple(slice(p, p + n) for p, n in zip(place, x.shape, strict=True))
        full[region] += x * k[place]
    if mode == "full":
        return full
    small, large = np.minimum(x.shape, k.shape), np.maximum(x.shape, k.shape)
    wanted = x.shape if mode == "same" else large - small + 1
    return full[
        tuple(
            slice((f - n) // 2, (f - n) // 2 + n) for f, n in zip(full.shape, wanted, strict=True)
        )
    ]


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    "shapes", [((7,), (3,)), ((3,), (8,)), ((4, 5), (2, 3)), ((4, 4, 3), (2, 3, 2))]
)
def test_signal(mode: str, shapes: tuple) -> None:
    x, k = (R.standard_normal(s) for s in shapes)
    wanted = nested(x, k, mode)
    np.testing.assert_allclose(signal.convolve(x, k, mode), wanted, atol=1e-12)
    flipped = np.flip(k)
    np.testing.assert_allclose(
        fxad.jit(lambda a, b: signal.correlate(a, b, mode))(x, flipped), wanted, atol=1e-12
    )
    weights = R.standard_normal(wanted.shape)
    dx, dk = fxad.grad(lambda a, b: jnp.sum(signal.convolve(a, b, mode) * weights), argnums=(0, 1))(
        x, k
    )
    total = float(np.sum(wanted * weights))
    assert float(jnp.vdot(dx, x)) == pytest.approx(total)
    assert float(jnp.vdot(dk, k)) == pytest.approx(total)


def test_signal_of_complex_numbers_and_matrices() -> None:
    z, w = R.standard_normal(5) + 1j, R.standard_normal(3) + 2j
    np.testing.assert_allclose(signal.correlate(z, w), np.correlate(z, w, "full"))
    np.testing.assert_allclose(signal.convolve(z, w), np.convolve(z, w))
    a, b = R.standard_normal((4, 4)), R.standard_normal((2, 3))
    np.testing.assert_allclose(signal.convolve2d(a, b, "same"), nested(a, b, "same"))
    np.testing.assert_allclose(signal.correlate2d(a, b), nested(a, np.flip(b), "full"))
    with pytest.raises(BadArgument, match="mode"):
        signal.convolve(a, b, "half")
    with pytest.raises(ShapeError, match="lies within"):
        signal.convolve(a, np.ones((2, 9)), "valid")
    with pytest.raises(ShapeError, match="takes matrices"):
        signal.convolve2d(z, w)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_correlate2d_has_a_middle_of_its_own(rows: int, columns: int) -> None:
    # What scipy.signal 1.17.1 gives, where a kernel of one 1 says which element is the middle.
    a = np.arange(12.0).reshape(3, 4)
    corner = np.array([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(signal.correlate2d(a, corner, "same"), a)
    np.testing.assert_array_equal(signal.correlate(a, corner, "same")[0], [0, 0, 0, 0])
    k = R.standard_normal((rows, columns)) + 1j * R.standard_normal((rows, columns))
    high, wide = (rows - 1) // 2, (columns - 1) // 2
    outside = np.pad(a, [(high, rows - 1 - high), (wide, columns - 1 - wide)])
    windows = np.lib.stride_tricks.sliding_window_view(outside, k.shape)
    wanted = np.einsum("ijkl,kl->ij", windows, k.conj())
    np.testing.assert_allclose(signal.correlate2d(a, k, "same"), wanted, atol=1e-12)
    np.testing.assert_allclose(signal.correlate2d(a, k), signal.correlate(a, k, "full"), atol=1e-12)


def test_correlate2d_within_the_kernel() -> None:
    # [[1j]] within [[1, 2j]]: SciPy 1.17.1 and JAX conjugate the smaller one.
    got = signal.correlate2d(np.array([[1j]]), np.array([[1, 2j]]), "valid")
    np.testing.assert_allclose(got, [[2, -1j]])
    same = signal.correlate2d(np.array([[1j]]), np.array([[3 + 1j]]), "valid")
    np.testing.assert_allclose(same, [[1 + 3j]])


def test_patches_are_the_windows() -> None:
    x = R.standard_normal((2, 6, 7, 3)).astype(np.float32)
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))[:, ::2]
    axes = ("NHWC", "HWIO", "NHWC")
    got = lax.conv_general_dilated_patches(x, (3, 2), (2, 1), "VALID", dimension_numbers=axes)
    np.testing.assert_array_equal(got, wanted.reshape(2, 2, 6, 18))
    w = R.standard_normal((4, 3, 3, 2)).astype(np.float32)  # OIHW
    options = {"lhs_dilation": (2, 1), "rhs_dilation": (1, 2)}
    turned = ("NHWC", "OIHW", "NCHW")
    strides, pads = (1, 2), [(2, -1), (1, 1)]
    patches = lax.conv_general_dilated_patches(
        x, (3, 2), strides, pads, dimension_numbers=turned, **options
    )
    product = np.einsum("nphw,op->nohw", patches, w.reshape(4, -1))
    want = lax.conv_general_dilated(x, w, strides, pads, dimension_numbers=turned, **options)
    np.testing.assert_allclose(product, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(BadArgument, match="window_strides"):
        lax.conv_general_dilated_patches(x, (3, 2), (1,), "VALID", dimension_numbers=axes)
    for shape in ((3,), 3, (0, 2)):
        with pytest.raises(BadArgument, match="filter_shape must be 2 positive ints"):
            lax.conv_general_dilated_patches(x, shape, (1, 1), "VALID")
    with pytest.raises(ShapeError, match="equally many axes"):
        lax.conv_general_dilated_patches(x[0, 0, 0], (), (), "VALID")


@pytest.mark.peers
def test_patches_like_jax() -> None:
    theirs = pytest.importorskip("jax").lax
    x = R.standard_normal((2, 6, 7, 3)).astype(np.float32)
    for axes in (None, ("NHWC", "HWIO", "NCHW"), ("NHWC", "WIHO", "NWHC")):
        for options in ({}, {"lhs_dilation": (2, 1)}, {"rhs_dilation": (1, 2)}):
            given = (2, 3), (2, 1), "SAME" if not options else [(1, 0), (2, 1)]
            got, wanted = (
                lib.conv_general_dilated_patches(x, *given, dimension_numbers=axes, **options)
                for lib in (lax, theirs)
            )
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.peers
def test_like_jax() -> None:
    theirs = pytest.importorskip("jax").lax
    x = R.standard_normal((4, 6, 9, 8)).astype(np.float32)
    w = R.standard_normal((8, 6, 3, 2)).astype(np.float32)
    near = {"rtol": 1e-4, "atol": 1e-4}
    for strides, pad, holes, spread in itertools.product(
        ((1, 1), (2, 3)), ("SAME", "VALID", [(-1, 2), (2, -1)]), (None, (2, 1)), (None, (2, 2))
    ):
        if holes and isinstance(pad, str):
            continue
        wanted = theirs.conv_general_dilated(x, w, strides, pad, holes, spread)
        np.testing.assert_allclose(
            lax.conv_general_dilated(x, w, strides, pad, holes, spread), wanted, **near
        )
    x = R.standard_normal((2, 5, 6, 3)).astype(np.float32)
    w = R.standard_normal((3, 2, 3, 4)).astype(np.float32)
    for strides, pad, flip in itertools.product(
        ((1, 1), (2, 3), (4, 4)), ("SAME", "VALID", [(1, 1), (2, 0)]), (False, True)
    ):
        kernel = w.swapaxes(2, 3) if flip else w
        wanted = theirs.conv_transpose(x, kernel, strides, pad, transpose_kernel=flip)
        np.testing.assert_allclose(
            lax.conv_transpose(x, kernel, strides, pad, transpose_kernel=flip), wanted, **near
        )


@pytest.mark.parametrize("length", [3, 200])
def test_results_are_weak_where_both_operands_are(length: int) -> None:
    weak = jnp.ones(length)
    weak.weak = True
    for f in (jnp.convolve, jnp.correlate):
        for call in (f, fxad.jit(f)):
            assert call(weak, weak).weak_type
            assert not call(weak, jnp.ones(3)).weak_type


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_infinities_reach_what_they_are_a_part_of(name: str) -> None:
    f = getattr(jnp, name)
    for special in (np.inf, np.nan):
        for place in (0, -1):
            x = np.array([1.0, 2, 3, 4, 5])
            x[place] = special
            for mode in ("full", "same", "valid"):
                wanted = getattr(np, name)(x, np.ones(3), mode)
                np.testing.assert_array_equal(f(x, np.ones(3), mode), wanted)
                np.testing.assert_array_equal(
                    fxad.jit(lambda x, mode=mode: f(x, np.ones(3), mode))(x), wanted
                )
