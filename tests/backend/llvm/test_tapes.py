"""Tapes in native memory: what they hold, how they grow, and that nothing of them stays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm import executable
from fxad.backend.llvm.native.tapes import NativeTape, Region, handles_of
from fxad.core.types import ArrayType, TapeType
from fxad.ir.program import OPS
from fxad.ir.tape import TapeValue

F32, I32 = ArrayType(np.dtype("f4"), (3,)), ArrayType(np.dtype("i4"), ())


@pytest.fixture
def regions(monkeypatch) -> list[Region]:
    """The regions of all runs, in order."""
    made: list[Region] = []

    class Seen(Region):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(executable, "Region", Seen)
    return made


def steps(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]


def filled(type: TapeType, seed: int, count: int) -> TapeValue:
    """A tape with some slots missing."""
    r = np.random.default_rng(seed)
    tape = TapeValue(type)
    for number in r.permutation(count)[: count - count // 3]:
        blocks = []
        for block in type.blocks:
            if isinstance(block, TapeType):
                blocks.append(filled(block, seed + int(number), 5))
            else:
                blocks.append(r.integers(0, 99, block.shape).astype(block.dtype))
        tape = OPS["tape_write"].numpy(tape, np.int32(number), *blocks)
    return tape


def slots_of(tape: TapeValue) -> dict:
    """What a tape holds as plain numbers. A slot of zeros is one that was never written."""
    found = {
        number: [slots_of(b) if isinstance(b, TapeValue) else b.tolist() for b in blocks]
        for number, blocks in sorted(tape.slots(()).items())
    }
    return {number: blocks for number, blocks in found.items() if np.any(blocks[0])}


@pytest.mark.parametrize("count", [0, 1, 4, 5, 40])
def test_tapes_move_between_the_interpreter_and_native_memory(count: int) -> None:
    type_, region = TapeType((F32, TapeType((F32, I32)), I32)), Region()
    tape = filled(type_, 1, count)
    native = NativeTape(type_, handles_of(tape, region), (region,))
    assert slots_of(native) == slots_of(tape)


def test_slots_never_written_read_as_zeros_and_negative_numbers_are_ignored() -> None:
    @fxad.jit
    def f(x):
        def probe(x):
            tape = OPS["tape_new"](type=TapeType((F32,)))
            tape = OPS["tape_write"](tape, np.int32(3), x)
            tape = OPS["tape_write"](tape, np.int32(-1), 2 * x)
            return [OPS["tape_read"](tape, np.int32(i))[0] for i in (-1, 0, 2, 3, 4, 2**30)]

        return probe(x)

    x = jnp.asarray([1.0, 2.0, 3.0])
    for number, seen in enumerate(f(x)):
        np.testing.assert_array_equal(seen, x if number == 3 else 0 * x)


def test_bytes_grow_with_the_trips_and_are_gone_afterwards(regions) -> None:
    g = fxad.jit(fxad.grad(steps))
    most = []
    for n in (1_000, 10_000, 100_000):
        g(jnp.float32(0.3), n)
        assert regions[-1].bytes == 0
        most.append(regions[-1].most)
        assert 4 * n <= most[-1] <= 2 * 8 * n + 1024  # one number a trip, at most twice as much


def test_second_order_takes_memory_and_work_linear_in_the_trips(regions) -> None:
    gg = fxad.jit(fxad.grad(fxad.grad(steps)))
    most = []
    for n in (1_000, 16_000):
        gg(jnp.float32(0.3), n)
        most.append(regions[-1].most)
    assert most[1] < 20 * most[0]


def test_a_training_loop_frees_every_trips_tapes(regions) -> None:
    def train(w, trips):
        return lax.fori_loop(0, trips, lambda i, w: w - 0.1 * fxad.grad(steps)(w, 50), w)

    most = []
    for trips in (2, 500):
        fxad.jit(train)(jnp.float32(0.3), trips)
        most.append(regions[-1].most)
    assert most[0] == most[1] > 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_memory_is_freed_when_a_run_fails(regions, error) -> None:
    def stop(i):
        if i == 900:
            raise error("enough")

    def body(s):
        fxad.debug.callback(stop, s[0])
        return s[0] + 1, jnp.sin(s[1])

    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, body, (0, x))[1]

    with pytest.raises(error) as caught:
        fxad.jit(fxad.grad(f))(jnp.float32(0.3), 1_000)
    assert caught.traceback  # the frames are still there, the memory is not
    assert regions[-1].most > 900 * 4
    assert regions[-1].bytes == 0


def test_eager_gradients_keep_their_tape_no_longer_than_its_value(regions) -> None:
    out, back = fxad.vjp(lambda x: steps(x, 1_000), jnp.float32(0.3))
    assert any(r.bytes for r in regions)
    first = back(jnp.ones_like(out))
    np.testing.assert_array_equal(first[0], back(jnp.ones_like(out))[0])
    del back
    assert not any(r.bytes for r in regions if not r.kept)


def test_a_tape_that_cannot_grow_is_a_memory_error() -> None:
    code = """
import resource, fxad, fxad.numpy as jnp
from fxad import lax

def f(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1].sum()

g = fxad.jit(fxad.grad(f))
x = jnp.ones((256, 256))
g(x, 2)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    g(x, 1_000_000)
except MemoryError as error:
    print(error)
    print(float(g(x, 3).sum()) > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "checkpoints=" in done.stdout, done.stderr
    assert "True" in done.stdout
