"""GPT-2 written with plain ops: its attention is found, and loss and gradients are JAX's."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

import fxad
from benchmarks import naive_gpt2, train_step
from fxad.ir.program import subprograms
from fxad_nn import models

CONFIG = models.preset("tiny")


def _case(layers):
    args = argparse.Namespace(batch=2, tokens=12)
    params = naive_gpt2.parameters(CONFIG, layers == "scan")
    return params, *train_step.batch(args, CONFIG.vocab)


def _run(package, *args):
    code = naive_gpt2.written_for(package)
    step = code.jax.jit(code.jax.value_and_grad(code.loss), static_argnums=3)
    value, grads = step(*args, CONFIG.heads)
    return np.asarray(value), [np.asarray(g) for g in code.jax.tree.leaves(grads)]


def _names(program):
    for eqn in program.eqns:
        yield eqn.op.name
        for _, inner in subprograms(eqn):
            yield from _names(inner)


@pytest.mark.parametrize(("layers", "count"), [("loop", CONFIG.layers), ("scan", 1)])
def test_every_layer_attends_without_scores_and_gradients_stay(layers, count):
    code = naive_gpt2.written_for("fxad")
    step = fxad.jit(fxad.grad(code.loss), static_argnums=3)
    names = [*_names(step.lower(*_case(layers), CONFIG.heads).program)]
    assert names.count("flash_attention") == names.count("flash_attention_grad") == count
    value, grads = _run("fxad", *_case(layers))
    with fxad.config.override(recognise=False):
        plain, slopes = _run("fxad", *_case(layers))
    np.testing.assert_allclose(value, plain, rtol=1e-6)
    for a, b in zip(grads, slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6 * np.abs(b).max() + 1e-9)


@pytest.mark.peers
@pytest.mark.parametrize("layers", ["loop", "scan"])
def test_loss_and_gradients_are_those_of_jax(layers):
    pytest.importorskip("jax")
    value, grads = _run("fxad", *_case(layers))
    theirs, slopes = _run("jax", *_case(layers))
    np.testing.assert_allclose(value, theirs, rtol=1e-6)
    for a, b in zip(grads, slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6 * np.abs(b).max() + 1e-9)
