"""Streaming stores of results, rows that are prefetched: where, and that no result changes."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.base import traffic
from fxad.backend.llvm.base.schedule import Target, choose
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.measured import target_of
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.aligned import LINE
from fxad.core.config import config

ROWS = DEFAULT.rows
LARGE = (ROWS.streamed // 4 // 1024, 1024)

streams = pytest.mark.skipif(
    target_of(config.isa).isa not in ("avx512", "avx2"), reason="no streaming stores"
)


def norm(x):
    return x - x.mean(-1, keepdims=True)


def norm_of(x):
    return x - x.mean(-1, keepdims=True, dtype=np.float64).astype(np.float32)


@streams
@pytest.mark.parametrize(("rows", "streaming"), [(LARGE[0], True), (LARGE[0] // 2, False)])
def test_stores_of_large_results_are_streaming(rows, streaming):
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 1024)).astype(np.float32)
    lowered = fxad.jit(norm).lower(x)
    assert ("movnt" in lowered.asm) == streaming
    assert ("sfence" in lowered.asm) == streaming
    np.testing.assert_allclose(fxad.jit(norm)(x), norm_of(x), rtol=0, atol=1e-6)


@streams
def test_over_its_operand_a_result_goes_through_the_caches():
    """Many large rows; a donated argument and a fresh result have the same bits."""
    x = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, LARGE).astype(np.float32))
    fresh = np.array(fxad.jit(norm)(x))
    place = np.asarray(x).ctypes.data
    moved = fxad.jit(norm, donate_argnums=0)(x)
    assert np.asarray(moved).ctypes.data == place
    assert np.array_equal(fresh, moved)


@streams
def test_rows_that_begin_inside_a_line():
    x = np.random.default_rng(0).uniform(-1, 1, (8500, 1027)).astype(np.float32)
    assert x.nbytes >= ROWS.streamed
    # Past the caches from a row's first whole line on, where a vector is a line.
    assert ("movnt" in fxad.jit(norm).lower(x).asm) == (target_of(config.isa).vector_bytes == LINE)
    np.testing.assert_allclose(fxad.jit(norm)(x), norm_of(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("function", [norm, lambda x: x * x + 1])
def test_what_comes_next_is_prefetched_where_arrays_are_large(function):
    for rows, prefetched in ((LARGE[0], True), (512, False)):
        text = fxad.jit(function).lower(np.zeros((rows, 1024), np.float32)).asm
        assert ("prefetch" in text or "prfm" in text) == prefetched


def test_a_sweep_that_stores_results_does_not_prefetch():
    """Layer norm's heaviest sweep writes the result; the one before it prefetches instead."""

    def layer_norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred * fxad.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    (kernel,) = fxad.jit(layer_norm).lower(np.zeros(LARGE, np.float32)).kernels
    ((stage, places),) = traffic.row_prefetches(kernel.body, choose(kernel, host_target())).items()
    assert stage is kernel.body[1] and [row.buffer.role for row in places] == ["in"]


def test_several_arrays_are_prefetched_in_sweeps_far_apart_where_the_processor_crosses_pages():
    def projected(x, d):
        return x - d * (x * d).sum(-1, keepdims=True)

    x, isa = np.zeros(LARGE, np.float32), host_target().isa
    (kernel,) = fxad.jit(projected).lower(x, np.ones(LARGE, np.float32)).kernels
    first, last = kernel.body

    def prefetched(crosses):
        target = Target(isa).tuned(rows={"crosses_pages": crosses, "near_only": crosses})
        found = traffic.row_prefetches(kernel.body, choose(kernel, target)).items()
        return [(stage, len(places)) for stage, places in found]

    assert prefetched(False) == [(first, 2)]
    assert prefetched(True) == [(first, 1), (last, 1)]


def prefetched_at(function, *args, first=4, target=None):
    """Offsets of the first places that are prefetched."""
    (kernel,) = fxad.jit(function).lower(*args).kernels
    target = target or Target(host_target().isa)
    emitted = emit(kernel, "asking", target)
    text = compile_module([emitted.text], emitted.declarations, target).assembly()
    lines = [line for line in text.splitlines() if "prefetch" in line]
    return sorted(int(line.split("\t")[-1].split("(")[0] or 0) for line in lines[:first])


@streams
def test_a_row_outside_a_pipeline_is_prefetched_in_order():
    def waves(x):  # what a sweep leaves is read by the one after the next
        found = jnp.exp(x - x.mean(-1, keepdims=True))
        centred = found - found.mean(-1, keepdims=True)
        return centred / (centred * centred).sum(-1, keepdims=True)

    for width in (1024, 8192):
        x = np.zeros((2 * ROWS.far_array // 4 // width, width), np.float32)
        assert np.diff(prefetched_at(waves, x)).tolist() == [host_target().vector_bytes] * 3


@streams
def test_a_loop_over_one_array_asks_for_several_pages():
    """One for each vector; where there are two arrays, lines of each that are near and far."""
    x, lines = np.zeros(2 * ROWS.far_array // 4, np.float32), host_target().vector_bytes // 16
    pages = prefetched_at(lambda x: x * x + 1, x)[:lines]
    assert np.diff(pages).tolist() == [traffic.PAGE] * (lines - 1)
    found = prefetched_at(lambda x, y: x * y, x, x, first=8)
    places = [start + n * traffic.LINE for start in (ROWS.distance, ROWS.far) for n in range(4)]
    assert {at in places for at in found} == {True} and found[0] < traffic.PAGE < found[-1]


@streams
def test_a_processor_that_crosses_pages_needs_one_prefetch():
    """But of several arrays, in the loop with streaming stores."""
    target = Target(host_target().isa).tuned(rows={"crosses_pages": True, "near_only": True})

    def prefetched(function, rows):
        xs = [np.zeros((rows, 1024), np.float32)] * function.__code__.co_argcount
        places = prefetched_at(function, *xs, first=None, target=target)
        return {at // traffic.PAGE for at in places}

    few = 2 * ROWS.far_array // 4 // 1024
    assert prefetched(lambda x: x * x + 1, few) == prefetched(lambda x: x * x + 1, LARGE[0]) == {1}
    assert prefetched(lambda x, y: jnp.exp(x) * y, few) == {1}
    assert prefetched(lambda x, y: jnp.exp(x) * y, LARGE[0]) == {0, 1, 2}


@streams
def test_a_processor_that_crosses_pages_needs_no_prefetches_in_light_loops():
    """Over several arrays, more than are written."""

    def prefetches(function, crosses):
        x = np.zeros(LARGE, np.float32)
        target = Target(host_target().isa).tuned(
            rows={"crosses_pages": crosses, "near_only": crosses}
        )
        xs = [x] * function.__code__.co_argcount
        return bool(prefetched_at(function, *xs, first=None, target=target))

    assert not prefetches(lambda x, y: jnp.sqrt(x) * y, True)
    assert prefetches(lambda x, y: jnp.sqrt(x) * y, False)
    assert prefetches(lambda x, y: (x * y, x + y), True)


def test_threads_do_not_change_what_is_streamed():
    x = np.random.default_rng(0).uniform(-1, 1, LARGE).astype(np.float32)
    found, before = [], fxad.get_num_threads()
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            found.append(np.array(fxad.jit(norm)(x)))
    finally:
        fxad.set_num_threads(before)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
