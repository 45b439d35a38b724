"""Random programs of mixed types: compiled, they give what the interpreter gives.

Whatever is fused or mapped, by any number of threads, and whether rows go through a pipeline.

A failure names its seed; `mixed_program(seed).text` is the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mixed import mixed_program

import fxad
from fxad.api import compiled
from fxad.backend.llvm.loops import sweeps
from fxad.core.config import config


def close(found: Sequence[Any], wanted: Sequence[Any], errors: Sequence[float]) -> None:
    for f, w, error in zip(found, wanted, errors, strict=True):
        f, w = np.asarray(f), np.asarray(w)
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        if error:
            f, w = f.astype(np.float64), w.astype(np.float64)
            np.testing.assert_allclose(f, w, rtol=error, atol=error)
        else:
            np.testing.assert_array_equal(f, w)


def bits(results: Sequence[Any]) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results]


@pytest.mark.parametrize("seed", list(range(10)))
def test_compiled_code_agrees_with_the_interpreter(seed: int, monkeypatch) -> None:
    if seed % 2:
        monkeypatch.setattr(sweeps, "_comes_slowly", lambda prefetch: True)
    program = mixed_program(seed)
    f = program.function(fxad.numpy, fxad.lax, fxad.nn)
    wanted = f(*map(fxad.numpy.asarray, program.inputs))
    once = fxad.jit(f)
    found = once(*program.inputs)
    close(found, wanted, program.errors)
    for threads in (1, 2, 3):
        with config.override(num_threads=threads):
            assert bits(once(*program.inputs)) == bits(found), "threads change bits"
    with compiled.fusion(False):
        apart = fxad.jit(lambda *args: f(*args))(*program.inputs)
    assert bits(apart) == bits(found), "fusion changes bits"


@pytest.mark.parametrize("seed", list(range(100, 104)))
def test_lanes_are_single_calls(seed: int) -> None:
    program = mixed_program(seed, steps=8)
    f = program.function(fxad.numpy, fxad.lax, fxad.nn)
    lanes = fxad.jit(fxad.vmap(f))(*[np.stack([x, x, x]) for x in program.inputs])
    wanted = f(*map(fxad.numpy.asarray, program.inputs))
    for lane in range(3):
        close([np.asarray(r)[lane] for r in lanes], wanted, program.errors)


def test_a_seed_is_a_program() -> None:
    first, again = mixed_program(3), mixed_program(3)
    assert first.text == again.text
    assert bits(first.inputs) == bits(again.inputs)
