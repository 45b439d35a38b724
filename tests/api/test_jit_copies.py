"""Copies and pickles of jitted functions: what a pool of processes and a copied config ask for."""

import copy
import functools
import pickle

import numpy as np
import pytest

import fxad

X = np.arange(3, dtype=np.float32)


@functools.partial(fxad.jit, static_argnames="k")
def decorated(x, k=2):
    return x * k


class Holder:
    doubled = fxad.jit(lambda x: x * 2)

    @fxad.jit
    def inside(x):
        return x + 1


def plain(x, y):
    return x * y


def test_copies_are_the_function_itself():
    decorated(X)  # holds compiled code from now on
    lowered = decorated.lower(X)
    for thing in (decorated, lowered, lowered.compile()):
        assert copy.copy(thing) is thing
        assert copy.deepcopy({"step": [thing]})["step"][0] is thing


def test_pickled_by_name_where_that_leads_back():
    for function in (decorated, Holder.inside):
        assert pickle.loads(pickle.dumps(function)) is function


def test_pickled_as_function_and_options_elsewhere():
    made = fxad.jit(plain, donate_argnums=0, memory_budget="1GiB")
    made(X + 0, X)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again(X + 0, X), X * X)
    given = fxad.numpy.asarray(X) + 1
    again(given, X)
    with pytest.raises(fxad.errors.DonatedError):
        np.asarray(given)
    partial = fxad.jit(functools.partial(plain, X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(partial))(X), X * X)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(Holder.doubled)
