"""What a user of PyTorch tries first: the answer says what to write instead."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.trace.torch_methods import INSTEAD

X = jnp.ones((2, 3))


class Module:
    def __init__(self):
        self.layers = [{"w": jnp.ones((3, 2))}]

    def __call__(self, x):
        return x @ self.layers[0]["w"]


def test_methods_of_tensors_are_named_as_they_are_here():
    with pytest.raises(AttributeError, match=r"no attribute 'numpy'; write numpy\.asarray\(x\)"):
        _ = X.numpy
    with pytest.raises(AttributeError, match=r"'detach'; write fxad\.stop_gradient\(x\)"):
        fxad.jit(lambda x: x.detach())(X)
    with pytest.raises(AttributeError, match="^'Array' object has no attribute 'unheard'$"):
        _ = X.unheard
    assert not [name for name in INSTEAD if hasattr(X, name)]
    assert not hasattr(X, "__cuda_array_interface__")
    for same in (copy.deepcopy(X), copy.copy(X), pickle.loads(pickle.dumps(X))):
        np.testing.assert_array_equal(same, X)


@pytest.mark.parametrize("transform", [fxad.jit, fxad.grad])
def test_objects_that_hold_arrays_are_to_be_registered(transform):
    with pytest.raises(TypeMismatch, match=r"is a Module.*@fxad\.tree\.register_dataclass"):
        transform(lambda module: module(X).sum())(Module())


def test_other_objects_are_static_or_left_out():
    with pytest.raises(TypeMismatch, match="mark it static"):
        fxad.jit(lambda f: f(X))(np.sum)
    with pytest.raises(TypeMismatch, match="if it holds arrays"):
        fxad.jit(lambda options: X)(SimpleNamespace(depth=3))


def test_labels_of_pytorch_need_its_ignored_label():
    table, labels = 9 * jnp.eye(3), np.array([0, 1, -100], np.int32)
    with pytest.raises(BadArgument, match="ignore=-100"):
        fxad.nn.linear_cross_entropy(jnp.eye(3), table, labels)
    loss = fxad.nn.linear_cross_entropy(jnp.eye(3), table, labels, ignore=-100)
    assert loss == fxad.nn.linear_cross_entropy(jnp.eye(3), table, np.array([0, 1, -1], np.int32))
