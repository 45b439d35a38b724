"""What reverse mode keeps, as it is printed."""

from __future__ import annotations

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad.debug import print_saved_residuals


def printed(capsys, f, *args, **kwargs):
    print_saved_residuals(f, *args, **kwargs)
    lines = capsys.readouterr().out.splitlines()
    return sorted(line.partition(" from test_residuals.py")[0] for line in lines)


def test_each_value_that_is_kept(capsys):
    found = printed(capsys, lambda x, y: jnp.sin(x) * y, 1.0, 2.0)
    assert found == ["f32[] from the argument y", "f32[] output of cos", "f32[] output of sin"]
    print_saved_residuals(jnp.exp, 1.0)
    assert "output of exp from" in capsys.readouterr().out


def test_a_checkpoint_keeps_its_arguments(capsys):
    weights = np.ones((3, 3), np.float32)
    f = lambda w, x: jnp.tanh(w @ jnp.tanh(w @ x))  # noqa: E731
    assert len(printed(capsys, f, weights, weights[0])) > 2
    found = printed(capsys, fxad.checkpoint(f), weights, weights[0])
    assert found == ["f32[3,3] from the argument w", "f32[3] from the argument x"]


def test_captured_arrays_and_what_needs_nothing(capsys):
    weights = jnp.arange(3.0)
    assert printed(capsys, lambda x: x * weights, weights) == ["f32[3] from a constant"]
    assert printed(capsys, lambda x: x + weights, weights) == []
