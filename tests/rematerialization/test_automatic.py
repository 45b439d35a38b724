"""Cheap values recomputed for the backward pass: fewer bytes, the same bits, nothing where it does
not pay."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from attempts import plan, rematerialized

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.executable import Executable
from fxad.compiler import simplified
from fxad.ir.inspection.columns import listing
from fxad.rematerialization import automatic

R = np.random.default_rng(0)
DEPTH = 8


@pytest.fixture(autouse=True)
def _arenas_of_moderate_size(monkeypatch):
    monkeypatch.setattr(automatic, "LEAST", 64 << 20)


def normed(x, scale):
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale


def loss(x, scales, ws):
    for scale, w in zip(scales, ws, strict=True):
        x = x + jnp.tanh(normed(x, scale) @ w)
    return jnp.sum(x * x)


def drawn(rows, width):
    x = R.standard_normal((rows, width)).astype(np.float32)
    scales = [R.random(width, np.float32) for _ in range(DEPTH)]
    ws = [(0.1 * R.standard_normal((width, width))).astype(np.float32) for _ in range(DEPTH)]
    return x, scales, ws


def planned(function, *args):
    """A function's traced program and plan as they are, and those after the choice."""
    program = simplified(fxad.jit(function).lower(*args).traced)
    return (program, plan(program)), rematerialized(program)


GRAD = fxad.value_and_grad(loss, argnums=(0, 1, 2))


@pytest.mark.slow
def test_norms_are_recomputed_with_the_same_bits():
    args = drawn(2048, 1024)
    (_, before), (program, after) = planned(GRAD, *args)
    assert before.arena_bytes - after.arena_bytes > 0.7 * DEPTH * args[0].nbytes
    assert "recomputed" in listing(program, ("kept",))
    leaves = fxad.tree.leaves(args)
    results = (Executable(made).run([np.array(a) for a in leaves]) for made in (after, before))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_compiled_functions_do_so_by_default():
    args = drawn(2048, 1024)
    (_, before), (_, after) = planned(GRAD, *args)
    assert fxad.jit(GRAD).lower(*args).plan.arena_bytes == after.arena_bytes < before.arena_bytes


def test_a_large_program_is_lowered_no_more_than_it_is_planned(monkeypatch):
    lowering = importlib.import_module("fxad.lower.lower")
    plain, lowered = lowering.lower, []

    def counted(program, fusion):
        lowered.append(len(program.eqns))
        return plain(program, fusion)

    args = drawn(2048, 1024)
    program = simplified(fxad.jit(GRAD).lower(*args).traced)
    monkeypatch.setattr(lowering, "lower", counted)
    changed, _ = rematerialized(program)
    assert [n for n in lowered if n > 50] == [len(program.eqns), len(changed.eqns)]


def test_small_programs_stay():
    (before, _), (after, _) = planned(GRAD, *drawn(64, 32))
    assert after is before


def test_what_takes_too_long_or_frees_too_little_stays(monkeypatch):
    args = drawn(2048, 1024)
    for name, value in (("SHARE", 1e-6), ("WORTH", 0.5)):
        with monkeypatch.context() as patched:
            patched.setattr(automatic, name, value)
            (before, _), (after, _) = planned(GRAD, *args)
        assert after is before, name


@pytest.mark.parametrize("layer", [lambda x, w: x @ w, lambda x, w: jnp.cumsum(x * w[0], axis=1)])
def test_only_single_passes_are_repeated(layer):
    def deep(x, ws):
        for w in ws:
            x = jnp.sin(layer(x, w))
        return jnp.sum(x)

    x, _, ws = drawn(2048, 1024)
    (program, made), (after, _) = planned(fxad.grad(deep, argnums=(0, 1)), x, ws)
    assert made.arena_bytes > automatic.LEAST
    counts = [sum(e.op.name in ("dot", "cumsum") for e in p.eqns) for p in (program, after)]
    assert counts[0] == counts[1] > 0
