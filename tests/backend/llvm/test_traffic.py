"""Results stored past the caches, rows asked for ahead: where, and that no result changes."""

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
@pytest.mark.parametrize(("rows", "past"), [(LARGE[0], True), (LARGE[0] // 2, False)])
def test_large_results_go_past_the_caches(rows, past):
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 1024)).astype(np.float32)
    lowered = fxad.jit(norm).lower(x)
    assert ("movnt" in lowered.asm) == past
    assert ("sfence" in lowered.asm) == past
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
def test_what_comes_next_is_asked_for_where_arrays_are_large(function):
    for rows, asked in ((LARGE[0], True), (512, False)):
        text = fxad.jit(function).lower(np.zeros((rows, 1024), np.float32)).asm
        assert ("prefetch" in text or "prfm" in text) == asked


def test_a_pass_that_stores_results_does_not_ask():
    """Layer norm's heaviest pass writes the result; the one before it is asked in instead."""

    def layer_norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred * fxad.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    (kernel,) = fxad.jit(layer_norm).lower(np.zeros(LARGE, np.float32)).kernels
    ((stage, places),) = traffic.asked_by(kernel.body, choose(kernel, host_target())).items()
    assert stage == id(kernel.body[1]) and [asked.buffer.role for asked in places] == ["in"]


def test_several_arrays_are_asked_for_in_passes_far_apart_where_the_processor_crosses_pages():
    def projected(x, d):
        return x - d * (x * d).sum(-1, keepdims=True)

    x, isa = np.zeros(LARGE, np.float32), host_target().isa
    (kernel,) = fxad.jit(projected).lower(x, np.ones(LARGE, np.float32)).kernels
    first, last = map(id, kernel.body)

    def asked(crosses):
        target = Target(isa).tuned(rows={"crosses_pages": crosses, "near_only": crosses})
        found = traffic.asked_by(kernel.body, choose(kernel, target)).items()
        return [(stage, len(places)) for stage, places in found]

    assert asked(False) == [(first, 2)]
    assert asked(True) == [(first, 1), (last, 1)]


def asked_at(function, *args, first=4, target=None):
    """Offsets of the first places that are asked for."""
    (kernel,) = fxad.jit(function).lower(*args).kernels
    target = target or Target(host_target().isa)
    emitted = emit(kernel, "asking", target)
    text = compile_module([emitted.text], emitted.declarations, target).assembly()
    lines = [line for line in text.splitlines() if "prefetch" in line]
    return sorted(int(line.split("\t")[-1].split("(")[0] or 0) for line in lines[:first])


@streams
def test_a_row_outside_a_pipeline_is_asked_for_in_order():
    def waves(x):  # what a pass leaves is read by the one after the next
        found = jnp.exp(x - x.mean(-1, keepdims=True))
        centred = found - found.mean(-1, keepdims=True)
        return centred / (centred * centred).sum(-1, keepdims=True)

    for width in (1024, 8192):
        x = np.zeros((2 * ROWS.far_array // 4 // width, width), np.float32)
        assert np.diff(asked_at(waves, x)).tolist() == [host_target().vector_bytes] * 3


@streams
def test_a_loop_over_one_array_asks_for_several_pages():
    """One for each vector; where there are two arrays, lines of each that are near and far."""
    x, lines = np.zeros(2 * ROWS.far_array // 4, np.float32), host_target().vector_bytes // 16
    pages = asked_at(lambda x: x * x + 1, x)[:lines]
    assert np.diff(pages).tolist() == [traffic.PAGE] * (lines - 1)
    found = asked_at(lambda x, y: x * y, x, x, first=8)
    places = [start + n * traffic.LINE for start in (ROWS.distance, ROWS.far) for n in range(4)]
    assert {at in places for at in found} == {True} and found[0] < traffic.PAGE < found[-1]


@streams
def test_a_processor_that_crosses_pages_is_asked_once():
    """But of several arrays, in the loop that stores past the caches."""
    target = Target(host_target().isa).tuned(rows={"crosses_pages": True, "near_only": True})

    def asked(function, rows):
        xs = [np.zeros((rows, 1024), np.float32)] * function.__code__.co_argcount
        return {at // traffic.PAGE for at in asked_at(function, *xs, first=None, target=target)}

    few = 2 * ROWS.far_array // 4 // 1024
    assert asked(lambda x: x * x + 1, few) == asked(lambda x: x * x + 1, LARGE[0]) == {1}
    assert asked(lambda x, y: jnp.exp(x) * y, few) == {1}
    assert asked(lambda x, y: jnp.exp(x) * y, LARGE[0]) == {0, 1, 2}


@streams
def test_a_processor_that_crosses_pages_is_not_asked_by_light_loops():
    """Over several arrays, more than are written."""

    def asks(function, crosses):
        x = np.zeros(LARGE, np.float32)
        target = Target(host_target().isa).tuned(
            rows={"crosses_pages": crosses, "near_only": crosses}
        )
        xs = [x] * function.__code__.co_argcount
        return bool(asked_at(function, *xs, first=None, target=target))

    assert not asks(lambda x, y: jnp.sqrt(x) * y, True)
    assert asks(lambda x, y: jnp.sqrt(x) * y, False)
    assert asks(lambda x, y: (x * y, x + y), True)


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
