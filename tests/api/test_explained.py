"""`fxad.explain`: what the page says is what was compiled and measured."""

from __future__ import annotations

import re

import numpy as np

import fxad
import fxad.numpy as jnp

W, X = np.ones((64, 64), np.float32), np.ones((96, 64), np.float32)


def loss(w, x):
    h = jnp.tanh(x @ w)
    return jnp.sum(jnp.sin(h) * h)


def page(f, *args, **options) -> str:
    return str(fxad.explain(f, **options)(*args))


def test_the_page_says_what_ran() -> None:
    found = fxad.explain(fxad.jit(fxad.grad(loss)))(W, X)
    text = str(found)
    lowered, report = found.lowered, found.profile
    assert f"{len(lowered.traced.eqns)} equations as traced" in text
    assert f"{len(lowered.program.eqns)} after the passes" in text
    for kernel in report.kernels:
        assert f"{kernel.name} x {kernel.calls}: bound by " in text
        assert kernel.where[0] in text
    assert f"arguments {40.0} KiB" in text
    titles = [line for line in text.split("\n") if line and not line.startswith(" ")]
    assert titles[:3] == ["what ran", "kernels, the dearest first", "memory"]
    assert repr(found) == text


def test_what_the_backward_pass_keeps_and_recomputes() -> None:
    saved = re.findall(r"saved for the backward pass: (\d+) values", page(fxad.grad(loss), W, X))
    assert saved and int(saved[0]) >= 1
    assert "recomputed for" in page(fxad.grad(fxad.checkpoint(loss)), W, X)


def test_advice_follows_from_what_was_found() -> None:
    def called(x):
        return fxad.debug.pure_callback(lambda v: v * 2, x, x) + 1

    assert "Python is called back" in page(called, X)
    big = np.ones((4096, 1100), np.float32)
    assert "donate_argnums" in page(lambda x: x * 2, big)
    assert "donate_argnums" not in page(
        fxad.jit(lambda x: x * 2, donate_argnums=0), jnp.asarray(big)
    )
    assert "checkpoint" in page(fxad.grad(lambda x: jnp.sum(jnp.exp(jnp.sort(x)))), big, repeats=1)


def test_attention_is_named() -> None:
    q = np.ones((1, 16, 2, 8), np.float32)
    assert "attention" in page(lambda q: fxad.nn.dot_product_attention(q, q, q), q)
