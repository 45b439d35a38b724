"""`partition` and `combine`: parts that go together again, prefixes, and what the errors say."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxad
import fxad.numpy as jnp
from fxad import tree as ft
from fxad.core.errors import TreeError, TypeMismatch

TREES = st.recursive(
    st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=12,
)


@given(TREES)
def test_the_parts_hold_every_leaf_once_and_go_together_again(tree):
    even, odd = ft.partition(tree, lambda leaf: leaf % 2 == 0)
    assert ft.leaves(even) == [leaf for leaf in ft.leaves(tree) if leaf % 2 == 0]
    assert ft.leaves(odd) == [leaf for leaf in ft.leaves(tree) if leaf % 2]
    assert ft.combine(even, odd) == ft.combine(odd, even) == tree


def test_a_prefix_of_bools_or_of_functions_chooses():
    tree = {"a": [1, 2], "b": (3, 4)}
    chosen, rest = ft.partition(tree, {"a": True, "b": (np.bool_(False), lambda leaf: leaf > 3)})
    assert chosen == {"a": [1, 2], "b": (None, 4)}
    assert rest == {"a": [None, None], "b": (3, None)}


def test_a_mask_whose_class_can_be_called_is_a_tree():
    """As in Equinox: a registered class with `__call__` says what it says by its leaves."""

    @ft.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: object
        b: object

        def __call__(self, x):
            return x @ self.w + self.b

    chosen, rest = ft.partition(Layer(1.0, 2.0), Layer(True, False))
    assert (chosen, rest) == (Layer(1.0, None), Layer(None, 2.0))


def test_what_is_leaf_calls_a_leaf_goes_as_one():
    chosen, rest = ft.partition([(1, 2), 3], lambda x: isinstance(x, tuple), is_leaf=lambda x: True)
    assert (chosen, rest) == (None, [(1, 2), 3])  # the list itself was the leaf
    is_pair = lambda x: isinstance(x, tuple)  # noqa: E731
    chosen, rest = ft.partition([(1, 2), 3], is_pair, is_leaf=is_pair)
    assert (chosen, rest) == ([(1, 2), None], [None, 3])
    assert ft.combine(chosen, rest, is_leaf=is_pair) == [(1, 2), 3]


def test_three_parts_and_a_subtree_where_an_earlier_part_has_nothing():
    assert ft.combine([1, None, None], [None, 2, None], [7, 7, 7]) == [1, 2, 7]
    assert ft.combine({"a": None}, {"a": [1, 2]}) == {"a": [1, 2]}
    assert ft.combine([None], [None]) == [None]


def test_only_one_part_is_differentiated():
    params = {"frozen": jnp.ones(3), "trained": jnp.full(3, 2.0)}
    trained, frozen = ft.partition(params, {"frozen": False, "trained": True})

    def loss(trained):
        p = ft.combine(trained, frozen)
        return jnp.sum(p["frozen"] * p["trained"] ** 2)

    grads = fxad.grad(loss)(trained)
    assert grads["frozen"] is None
    np.testing.assert_array_equal(grads["trained"], [4.0, 4.0, 4.0])


def test_errors_say_what_was_seen():
    with pytest.raises(TreeError, match=r"\['a'\]"):
        ft.partition({"a": [1, 2]}, {"a": [True]})
    with pytest.raises(TypeMismatch, match="True or False, got 1"):
        ft.partition([1], [1])
    with pytest.raises(TypeMismatch, match="got 'yes'"):
        ft.partition([1], lambda leaf: "yes")
    with pytest.raises(TreeError):
        ft.combine([1, None], [None])
    with pytest.raises(TypeError, match="at least one tree"):
        ft.combine()
