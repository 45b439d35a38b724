"""Memory of results: aligned, recycled, given back."""

import numpy as np
import pytest
from plans_by_hand import Slots, add, arange

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native import memory
from fxad.ir.plan import Run


def test_large_results_are_aligned_and_recycled():
    n = 1 << 16
    s = Slots()
    x, y = s.argument(n), s.result(n)
    executable = Executable(s.plan([Run(add(n), (x, x, y))], [y]))
    x = arange(n)
    y = executable.run([x])[0]
    first, part = y.ctypes.data, y[5:9].T
    assert first % 64 == 0
    del y
    z = executable.run([x])[0]
    assert z.ctypes.data != first  # a view is still alive
    np.testing.assert_array_equal(part, arange(n)[5:9] * 2)
    del part
    assert executable.run([x])[0].ctypes.data == first


def test_idle_memory_is_bounded():
    blocks = memory.BlockPool(bound=1 << 20)
    taken = [blocks.take(200_000) for _ in range(20)]
    assert all(block.size >= 200_000 and block.address % 64 == 0 for block in taken)
    for block in taken:
        blocks.give(block)
    assert 0 < blocks.idle_bytes <= 1 << 20
    assert blocks.take(150_000) is taken[-6] or blocks.idle_bytes < 1 << 20
    blocks.trim()
    assert blocks.idle_bytes == 0
    with pytest.raises(MemoryError, match="cannot get"):
        blocks.take(1 << 60)


def test_what_was_handed_back_last_is_taken_first_and_counted():
    blocks = memory.BlockPool(bound=1 << 30)
    first = blocks.take(100_000)
    one = blocks.in_use
    blocks.give(first)
    assert blocks.idle_bytes == first.size
    assert blocks.take(100_000) is first
    assert blocks.in_use == blocks.high_water == one
    blocks.give(first)
    other = blocks.take(300_000)  # counts what was handed back
    assert blocks.in_use == blocks.high_water == other.taken
    several = [blocks.take(100_000) for _ in range(100)]
    for block in several:
        blocks.give(block)
    assert {id(blocks.take(100_000)) for _ in several} == {id(block) for block in several}


def test_sizes_of_freed_blocks_are_forgotten():
    """A search for the next larger size would pass all of them."""
    blocks = memory.BlockPool(bound=1 << 20)
    for pages in range(1, 200):
        blocks.give(blocks.take(4096 * pages))
    blocks.trim()
    assert blocks._sizes == [] and blocks._idle == {} and blocks.idle_bytes == 0
    kept = blocks.take(8192)
    blocks.give(kept)
    assert blocks._sizes == [8192] and blocks.take(5000) is kept


def test_memory_nobody_wants_for_a_while_is_returned(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    blocks = memory.BlockPool(bound=1 << 30)
    old, recent = blocks.take(1 << 20), blocks.take(3 << 20)
    blocks.give(old)
    assert blocks.idle_bytes == old.size
    now[0] += 10
    blocks.give(recent)
    assert blocks.take(3 << 20) is recent  # a hit frees nothing
    assert blocks.idle_bytes == old.size
    blocks.give(recent)
    blocks.take(50 << 20)  # fresh memory: what is stale makes room
    assert blocks.idle_bytes == recent.size


def test_a_first_use_replaces_as_much_idle_memory_as_it_needs(monkeypatch):
    monkeypatch.setattr(memory.time, "monotonic", lambda: 100.0)  # nothing is stale
    blocks = memory.BlockPool(bound=1 << 30)
    sizes = [8 << 20, 20 << 20, 90 << 20]
    taken = [blocks.take(size) for size in sizes]
    sizes = [block.size for block in taken]
    for block in taken:
        blocks.give(block)
    blocks.take(2 << 20)  # not a first use
    assert blocks.idle_bytes == sum(sizes)
    blocks.take(3 << 20, first=True)  # all idle blocks are far larger
    assert blocks.idle_bytes == sum(sizes)
    assert blocks.take(46 << 20, first=True) is taken[2]  # nothing fresh is needed
    blocks.give(taken[2])
    blocks.take(44 << 20, first=True)
    assert blocks.idle_bytes == sizes[2]
    blocks.take(200 << 20, first=True)
    assert blocks.idle_bytes == 0


def test_a_programs_first_run_takes_the_place_of_what_set_it_up():
    memory.blocks.trim()
    memory.blocks.give(memory.blocks.take(40 << 20))
    step = fxad.jit(lambda x: jnp.sum(jnp.sin(x @ x) @ x))
    x = np.ones((3000, 3000), np.float32)
    float(step(x))
    arena = step.lower(x).plan.arena_bytes
    assert arena > 60 << 20
    assert memory.blocks.idle_bytes < 1.1 * arena


def test_before_large_blocks_for_first_runs_leftovers_are_given_back(monkeypatch):
    trimmed = []
    monkeypatch.setattr(memory.leftovers, "give_back", lambda: trimmed.append(1))
    blocks = memory.BlockPool(bound=1 << 30)
    large = 2 * memory._TRIMMED
    blocks.take(memory._TRIMMED // 2, first=True)
    block = blocks.take(large)
    blocks.give(block)
    assert blocks.take(large, first=True) is block and not trimmed
    blocks.take(large, first=True)
    assert len(trimmed) == 1
