"""Kernels that go over their rows in a pipeline: which do, and that no bit changes."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.backend.llvm import emit
from fxad.backend.llvm.base import traffic
from fxad.backend.llvm.base.schedule import Target, choose
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.cache import KernelCache
from fxad.backend.llvm.loops.sweeps import row_sweeps
from fxad.backend.llvm.measured import target_of, tuned_by
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.core.errors import CheckError

wide = pytest.mark.skipif(host_target().isa != "avx512", reason="fewer registers, fewer pipelines")


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def layer_norm_of(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def softmax(x):
    size = jnp.exp(x - x.max(-1, keepdims=True))
    return size / size.sum(-1, keepdims=True)


def softmax_of(x):
    size = np.exp(x - x.max(-1, keepdims=True))
    return size / size.sum(-1, keepdims=True)


def spread(x):
    """Reductions alone, whose results are one number a row."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return ((x - low) / (high - low)).sum(-1), low


def spread_of(x):
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return ((x - low) / (high - low)).sum(-1), low


def gradient(x):
    """Layer norm's, of a cotangent x^2."""
    return fxad.vjp(layer_norm, x)[1](x * x)[0]


def gradient_of(x):
    y, d = layer_norm_of(x), x * x
    size = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (d - d.mean(-1, keepdims=True) - y * (d * y).mean(-1, keepdims=True)) / size


def values(rows, width, dtype=np.float32):
    return np.random.default_rng(0).normal(0, 2, (rows, width)).astype(dtype)


CROSSING = Target(host_target().isa).tuned(rows={"crosses_pages": True, "near_only": True})
ROWS = DEFAULT.rows


def sweeps(function, *args, target=None):
    """How many sweeps each kernel makes in a pipeline."""
    kernels = fxad.jit(function).lower(*args).kernels
    target = target or target_of(config.isa)
    return [len(row_sweeps(k.body, choose(k, target))) for k in kernels]


def leaves(found):
    return [np.array(a) for a in (found if isinstance(found, tuple) else (found,))]


@pytest.fixture
def without(monkeypatch):
    """Runs a function whose kernels go sweep after sweep."""

    def run(function, *args):
        emitted = []
        with monkeypatch.context() as patch:
            patch.setattr(emit, "row_sweeps", lambda stages, schedule: emitted.append(stages) or [])
            patch.setattr(compiled, "_executables", type(compiled._executables)())
            patch.setattr("fxad.backend.llvm.cache.kernels._codes", type(KernelCache()._codes)())
            found = leaves(fxad.jit(lambda *xs: function(*xs))(*args))
        assert emitted  # else a cache served the code to compare with
        return found

    return run


@pytest.fixture
def again():
    """Long rows may come from the second level as often as they like."""
    with tuned_by(host_target().tuning.with_("test", rows={"rereads": 9})):
        yield


FUNCTIONS = [
    (layer_norm, layer_norm_of, 3),
    (softmax, softmax_of, 3),
    (spread, spread_of, 3),
    (gradient, gradient_of, 5),
]
SWEPT = [(*f, shape) for f in FUNCTIONS for shape in ((260, 4096), (130, 8205), (30, 50_257))]
# Short rows have a pipeline in large arrays alone: the fewest reductions and the most.
SWEPT += [(*f, (28_000, 301)) for f in FUNCTIONS[2:]]


@wide
@pytest.mark.parametrize(("function", "reference", "count", "shape"), SWEPT)
def test_as_exact_as_pass_after_pass(function, reference, count, shape, without, again):
    x = values(*shape)
    assert x.nbytes >= ROWS.far_array and max(sweeps(function, x)) == count
    found = leaves(fxad.jit(function)(x))
    expected = reference(x.astype(np.float64))
    for a, b in zip(found, leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    for a, b in zip(found, without(function, x), strict=True):
        assert np.array_equal(a, b)


@wide
@pytest.mark.parametrize("shape", [(8200, 1024), (8200, 1031)])
def test_results_written_with_streaming_stores(shape, without):
    x = values(*shape)
    assert x.nbytes >= ROWS.streamed and sweeps(layer_norm, x) == [3]
    (found,) = leaves(fxad.jit(layer_norm)(x))
    np.testing.assert_allclose(found, layer_norm_of(x.astype(np.float64)), rtol=1e-4, atol=1e-5)
    assert np.array_equal(found, without(layer_norm, x)[0])


@wide
def test_any_number_of_threads_and_rows():
    """Threads begin and end a pipeline wherever their rows do."""
    before = fxad.get_num_threads()
    x = values(9, 120_000)
    assert sweeps(softmax, x) == [3]
    try:
        found = []
        for threads in (1, 2, 3, 5, 9):
            fxad.set_num_threads(threads)
            found.append(np.array(fxad.jit(softmax)(x)))
    finally:
        fxad.set_num_threads(before)
    assert all(np.array_equal(found[0], other) for other in found)
    np.testing.assert_allclose(found[0], softmax_of(x.astype(np.float64)), rtol=2e-5)


def highest(x):
    return x / x.max(-1, keepdims=True)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", [(260, 4096), (130, 8205)])
def test_one_reduction_has_a_pipeline_on_narrower_vectors_too(shape, isa, without):
    try:
        host_target(isa)
    except CheckError:
        pytest.skip(f"this machine does not run {isa}")
    x = values(*shape)
    with config.override(isa=isa):
        assert sweeps(highest, x) == [2]
        (found,) = leaves(fxad.jit(highest)(x))
        assert np.array_equal(found, without(highest, x)[0])
    assert np.array_equal(found, x / x.max(-1, keepdims=True))


def test_over_a_donated_operand():
    x = jnp.asarray(values(500, 4096))
    expected = np.array(fxad.jit(layer_norm)(x))
    assert np.array_equal(expected, fxad.jit(layer_norm, donate_argnums=0)(x))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_floats(dtype, without):
    x = jnp.asarray(values(400, 8192)).astype(dtype)
    found = leaves(fxad.jit(softmax)(x))
    for a, b in zip(found, without(softmax, x), strict=True):
        assert np.array_equal(a, b)
    expected = softmax_of(np.asarray(x).astype(np.float64))
    # x less the greatest, up to 20, is rounded to 8 or 11 bits, then its exponential.
    tolerance = {"float64": 1e-13, "bfloat16": 6e-2, "float16": 8e-3}[dtype]
    np.testing.assert_allclose(found[0].astype(np.float64), expected, rtol=tolerance, atol=1e-6)


def test_nan_and_infinity_stay_in_their_rows():
    x = values(300, 4096)
    x[3, 1000], x[5, 0], x[299, 17] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = softmax_of(x.astype(np.float64))
    np.testing.assert_allclose(fxad.jit(softmax)(x), expected, rtol=2e-5, atol=1e-7)


def test_small_arrays_go_pass_after_pass():
    assert sweeps(layer_norm, values(100, 4096)) == [0]
    assert sweeps(layer_norm, values(2000, 1024)) == [0]  # 8 MB in short rows


def cotangent(x, d):
    """Layer norm's gradient: four sweeps, in which there are three rows of x and two of d."""
    return fxad.vjp(layer_norm, x)[1](d)[0]


@wide
def test_rows_that_only_fit_the_nearest_cache_one_by_one_go_pass_after_pass():
    x, d = values(4096, 2048), values(4096, 2048) + 1
    assert sweeps(cotangent, x, d) == [0]
    fitting, target = (values(8192, 1024), values(8192, 1024)), Target(host_target().isa)
    assert max(sweeps(cotangent, *fitting, target=target)) >= 4


@wide
def test_several_arrays_read_again_go_pass_after_pass_where_the_processor_crosses_pages():
    def gradient_of_softmax(x, d):  # which reads d once
        return fxad.vjp(fxad.nn.softmax, x)[1](d)[0]

    x, d = values(8192, 1024), values(8192, 1024) + 1
    assert sweeps(cotangent, x, d, target=CROSSING) == [0]
    assert sweeps(gradient_of_softmax, x, d, target=CROSSING) == [3]
    assert sweeps(layer_norm, x, target=CROSSING) == [3]


@wide
def test_long_rows_that_come_from_the_second_cache_too_often_go_pass_after_pass():
    x = values(2048, 4096)
    vectors = np.ones(4096, np.float32), np.zeros(4096, np.float32)

    def scaled(x, scale, bias):
        return layer_norm(x) * scale + bias

    assert sweeps(layer_norm, x) == [3]  # two rows of x again
    assert sweeps(scaled, x, *vectors) == [0]  # and the vectors
    assert sweeps(scaled, values(8192, 1024), *(v[:1024] for v in vectors)) == [3]  # all fit


@wide
def test_what_follows_is_prefetched_near_and_where_there_is_room_far(without):
    """Of one array some way ahead and farther; of several that are crowded the next rows far."""

    def scaled(x, d):
        return (x - x.max(-1, keepdims=True)) * d

    def prefetches(function, *args, target=None):
        """Bytes ahead of the present row, and the level of cache."""
        (kernel,) = fxad.jit(function).lower(*args).kernels
        target = target or Target(host_target().isa)
        found = row_sweeps(kernel.body, choose(kernel, target))
        return [(4 * a.row.const, a.level) for p in found for a in p.prefetches]

    near, far = (ROWS.near, traffic.FIRST), (ROWS.farther, traffic.SECOND)
    x, d = values(8192, 1024), values(8192, 1024) + 1
    long, wide = x.reshape(512, -1), d.reshape(512, -1)
    assert prefetches(layer_norm, x) == prefetches(layer_norm, long) == [near, far]
    assert prefetches(layer_norm, x, target=CROSSING) == [(ROWS.midway, traffic.FIRST), far]
    assert prefetches(scaled, x, d) == prefetches(scaled, long, wide) == [near] * 2
    crowded = [(ROWS.distance, traffic.FIRST), (x.strides[0], traffic.SECOND)]
    assert prefetches(cotangent, x, d) == crowded * 2
    (found,) = leaves(fxad.jit(cotangent)(x, d))
    assert np.array_equal(found, without(cotangent, x, d)[0])
    apart = values(8192, 2048)
    crowded = [(ROWS.distance, traffic.FIRST), (apart.strides[0], traffic.SECOND)]
    assert prefetches(scaled, apart, apart + 1) == crowded * 2
    assert prefetches(scaled, apart, apart + 1, target=CROSSING) == [near] * 2
    assert prefetches(lambda x: softmax(x[:, :1024]), apart) == [(apart.strides[0], traffic.FIRST)]


def test_a_row_that_is_needed_for_longer_is_not_in_a_pipeline():
    """What the first sweep leaves is read by the third: the row behind it would have lost it."""

    def function(x):
        waves = jnp.exp(x - x.mean(-1, keepdims=True))
        centred = waves - waves.mean(-1, keepdims=True)
        return centred / (centred * centred).sum(-1, keepdims=True)

    def reference(x):
        waves = np.exp(x - x.mean(-1, keepdims=True))
        centred = waves - waves.mean(-1, keepdims=True)
        return centred / (centred * centred).sum(-1, keepdims=True)

    x = values(300, 4096) / 4
    np.testing.assert_allclose(
        fxad.jit(function)(x), reference(x.astype(np.float64)), rtol=2e-4, atol=1e-8
    )
