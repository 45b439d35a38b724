"""The profiler runs what a normal run does, and its numbers add up."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.contract.autotune import table_of
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.measured import target_of
from fxad.core.errors import BadArgument


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _check(function, *args):
    report = fxad.profile(function, *args, repeats=2)
    wanted = function(*args)
    for ours, theirs in zip(fxad.tree.leaves(report.result), fxad.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert report.seconds == pytest.approx(sum(k.seconds for k in report.kernels))
    assert sum(k.share for k in report.kernels) == pytest.approx(1)
    assert len(report.events) == sum(k.calls for k in report.kernels)
    ends = [event.start + event.seconds for event in report.events]
    starts = [event.start for event in report.events]
    assert all(a <= b for a, b in zip(ends, starts[1:], strict=False))
    assert str(report).count("\n") == len(report.kernels) + 1 + len(report.notes)
    return report


def _loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def test_a_training_step() -> None:
    w, x = _draw(96, 64), _draw(256, 96)
    step = fxad.jit(lambda w, x: w - 0.1 * fxad.grad(_loss)(w, x))
    report = _check(step, w, x)
    products = [k for k in report.kernels if k.flops >= 2 * 256 * 96 * 64]
    assert len(products) == 2
    for kernel in products:
        assert kernel.gflops == pytest.approx(kernel.flops / kernel.seconds / 1e9)
        assert any("dot @ test_profile.py" in line for line in kernel.where)
        assert kernel.unit == "float32"
        assert kernel.roofline == pytest.approx(
            max(kernel.gflops / report.peaks["float32"], kernel.gbytes / report.transfer)
        )


def test_loops_branches_and_copies() -> None:
    def f(xs, c):
        def body(carry, x):
            carry = lax.cond(x[0] > 0, lambda v: jnp.sin(v) + x, lambda v: v * 2, carry)
            return carry, carry.sum()

        total, sums = lax.scan(body, c, xs, reverse=True)
        return lax.while_loop(lambda v: v.sum() < 100, lambda v: v + 3, total), sums, c

    report = _check(fxad.jit(f), _draw(7, 5), _draw(5))
    assert max(k.calls for k in report.kernels) >= 7


def test_donated_arguments_stay() -> None:
    w = jnp.asarray(_draw(64, 64))
    update = fxad.jit(lambda w: w * 0.5 + 1, donate_argnums=0)
    report = fxad.profile(update, w)
    np.testing.assert_array_equal(report.result, np.asarray(w) * np.float32(0.5) + 1)


def test_effects_happen_once() -> None:
    seen = []

    def f(x):
        fxad.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return x + 1

    report = fxad.profile(f, _draw(4))
    assert len(seen) == 1
    assert any(k.name.startswith("python") for k in report.kernels)


@pytest.mark.parametrize("options", [{"offload": "disk"}, {"offload": "host"}])
def test_values_that_wait_outside_the_arena(options) -> None:
    def loss(ws, x):
        for w in ws:
            x = fxad.checkpoint(lambda x, w: jnp.tanh(x @ w) * jnp.sin(x), **options)(x, w)
        return jnp.sum(x * x)

    weights, x = [_draw(96, 96)] * 3, _draw(256, 96)
    with fxad.config.override(offload_memory=400_000):  # most values really go to the file
        report = _check(fxad.jit(fxad.value_and_grad(loss)), weights, x)
    assert any(k.name.startswith("python") for k in report.kernels)


def test_a_loop_whose_values_wait_on_disk() -> None:
    body = fxad.checkpoint(lambda c: jnp.sin(c) * c, offload="disk")

    def f(x, n):
        return lax.fori_loop(0, n, lambda i, c: body(c), x).sum()

    with fxad.config.override(offload_memory=1_000_000):
        report = _check(fxad.jit(fxad.grad(f)), np.abs(_draw(16384)), 40)
    assert any(e.name.startswith("python") for e in report.events)


def test_chrome_trace(tmp_path) -> None:
    def f(w, x):
        return jnp.sin(x @ w) + 1

    report = fxad.profile(f, _draw(50, 50), _draw(40, 50))
    report.to_chrome(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == [event.name for event in report.events]
    assert all(e["ph"] == "X" and e["dur"] > 0 for e in events)
    (shown,) = [e["args"] for e in events if "dot" in e["name"]]
    assert set(shown) == {"GFLOP/s", "GB/s", "unit", "roofline", "from"}
    assert shown["GFLOP/s"] >= 0 and shown["roofline"].endswith("%")
    assert any(line.startswith("dot @ test_profile.py:") for line in shown["from"])


@pytest.mark.parametrize("clip", [None, 1.0])
def test_what_keeps_updates_out_of_products_is_said(clip) -> None:
    """A global norm needs all gradients before the first update."""

    def loss(w, x):
        for each in w:
            x = jnp.tanh(x @ each)
        return x.sum()

    def step(w, m, x):
        grads = fxad.grad(loss)(w, x)
        if clip is not None:
            norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads))
            grads = [g * (clip / jnp.maximum(norm, clip)) for g in grads]
        m = [0.9 * a + g for a, g in zip(m, grads, strict=True)]
        return [a - 0.1 * b for a, b in zip(w, m, strict=True)], m

    w, m = [_draw(48, 48)] * 3, [np.zeros((48, 48), np.float32)] * 3
    report = _check(fxad.jit(step), w, m, _draw(32, 48))
    if clip is None:
        assert report.notes == ()
        return
    (note,) = report.notes
    assert note.startswith(
        "3 gradients (0.0 MB) are stored before their updates, which sum @ test_"
    )
    assert str(report).endswith(f"note: {note}")


def test_numbers_that_do_not_depend_on_the_gradient_are_no_reason() -> None:
    def step(w, x, m):
        rate = 0.1 / (1 + jnp.sum(m * m))
        loss, g = fxad.value_and_grad(_loss)(w, x)
        return w - rate * g, loss, jnp.sum(g)  # the sum is a result, not the update's operand

    assert _check(fxad.jit(step), _draw(48, 48), _draw(32, 48), _draw(9)).notes == ()


def test_wrong_uses() -> None:
    with pytest.raises(BadArgument, match="inside jit"):
        fxad.jit(lambda x: fxad.profile(jnp.sin, x).result)(_draw(3))
    with pytest.raises(BadArgument, match="repeats"):
        fxad.profile(jnp.sin, _draw(3), repeats=0)


def test_layers_of_the_same_code_are_one_row() -> None:
    w = [_draw(48, 48) for _ in range(6)]

    def f(w, x):
        for each in w:
            x = jnp.tanh(x @ each)
        return x

    report = _check(fxad.jit(f), w, _draw(32, 48))
    (row,) = [k for k in report.kernels if "dot" in k.name]
    assert (row.calls, row.flops >= 6 * 2 * 32 * 48 * 48) == (6, True)
    assert len(row.where) == len(set(row.where))


def test_the_roofline(tmp_path, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    report = _check(fxad.jit(lambda x, y: jnp.tanh(x @ y).sum()), _draw(64, 64), _draw(64, 64))
    for name in ("roof.svg", "roof.png"):
        report.to_roofline(tmp_path / name)
    drawn = (tmp_path / "roof.svg").read_text()
    seen = [k for k in report.kernels if k.flops and k.share >= 1e-3]
    assert len(seen) >= 1
    assert drawn.count('id="PathCollection_') >= len(seen)
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadArgument, match=r"'roof.bmp' should end in .pdf, .png, .svg"):
        report.to_roofline(tmp_path / "roof.bmp")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where it is not installed
    with pytest.raises(BadArgument, match=r"pip install 'fxad\[plots\]'"):
        report.to_roofline(tmp_path / "roof.svg")


def test_ceilings_are_the_best_that_was_seen(monkeypatch) -> None:
    """One profile on a busy machine does not lower those after it, nor stay the last word."""
    module = importlib.import_module("fxad.api.profile")
    found, speeds = iter([50.0, 10.0, 60.0]), iter([0.1, 0.05, 0.2])
    monkeypatch.setattr("fxad.backend.llvm.peak", lambda *args: next(found))
    monkeypatch.setattr(module, "_best", lambda *args: next(speeds))
    monkeypatch.setattr(module, "_seen", {})
    x = _draw(10)
    seen = [fxad.profile(jnp.sin, x) for _ in range(3)]
    assert [report.peaks["float32"] for report in seen] == [50.0, 50.0, 60.0]
    rates = [report.transfer for report in seen]
    assert rates[1] == rates[2] == 2 * rates[0]


def test_a_product_is_held_against_the_unit_it_uses() -> None:
    """bf16 products were held against float32's peak: "437%"."""
    x = _draw(64, 64)
    low = x.astype(jnp.bfloat16)
    product = fxad.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32))
    with fxad.enable_x64():
        wide = fxad.profile(jnp.dot, x.astype(np.float64), x.astype(np.float64))
    assert [k.unit for k in wide.kernels] == ["float64"]
    report = _check(product, low, low)
    (kernel,) = [k for k in report.kernels if k.flops >= 2 * 64**3]
    table = table_of(Problem.of(product.lower(low, low).kernels[0]), target_of(None))
    assert kernel.unit == {"amx": "AMX", "avx512_bf16": "bf16 pairs"}.get(table, "float32")
    peak = report.peaks[kernel.unit]
    assert kernel.roofline == pytest.approx(
        max(kernel.gflops / peak, kernel.gbytes / report.transfer)
    )
    assert f"{kernel.unit} {peak:.0f} GFLOP/s" in str(report)
