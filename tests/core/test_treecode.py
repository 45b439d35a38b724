"""Code written for one structure against the walk over any."""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxad.core import pytree, treecode
from fxad.core.treecode import builder, flattener


class Pair(NamedTuple):
    first: object
    second: object


@pytree.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    weight: object
    name: str = dataclasses.field(metadata={"static": True})


KEYS = st.one_of(st.text(max_size=3), st.integers(-2, 2))


def nodes(inner):
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.integers(-2, 2), inner, max_size=3),
        st.tuples(inner, inner).map(lambda p: Pair(*p)),
        st.lists(st.tuples(KEYS, inner), max_size=3).map(collections.OrderedDict),
        st.tuples(inner, st.sampled_from("ab")).map(lambda p: Layer(*p)),
        st.none(),
    )


TREES = st.recursive(st.floats(allow_nan=False), nodes, max_leaves=12)


@given(TREES)
def test_a_tree_comes_apart_and_together(tree):
    leaves, treedef = pytree.flatten(tree)
    assert flattener(treedef)(tree) == leaves
    renewed = [object() for _ in leaves]
    built = builder(treedef)(renewed)
    assert pytree.structure(built) == treedef
    assert pytree.leaves(built) == renewed


@given(TREES, TREES)
def test_another_structure_is_told_apart(one, other):
    leaves, treedef = pytree.flatten(one)
    found = flattener(pytree.structure(other))(one)
    if found is None:
        assert treedef != pytree.structure(other)
    elif all(type(leaf) is float for leaf in found):  # a node where a leaf should be stays whole
        assert treedef == pytree.structure(other)
        assert found == leaves


@given(TREES, TREES)
def test_parts_of_one_structure_share_a_function(one, other):
    with mock.patch.object(treecode, "PART", 1):
        tree = {"a": one, "b": [one, other], "c": (other,)}
        leaves, treedef = pytree.flatten(tree)
        flat = flattener.__wrapped__(treedef)
        assert flat(tree) == leaves
        for another in ({**tree, "a": [one, 1.0]}, {**tree, "c": (other, one)}, [tree]):
            found = flat(another)
            if found is not None and all(type(leaf) is float for leaf in found):
                assert pytree.structure(another) == treedef


def test_the_code_of_a_training_state_is_short():
    layer = {f"w{i}": float(i) for i in range(treecode.PART)}
    state = ({"layers": [layer] * 12}, {"layers": [layer] * 12})
    leaves, treedef = pytree.flatten(state)
    flat = flattener(treedef)
    assert flat(state) == leaves and len(flat.__code__.co_code) < len(leaves)
    changed = ({"layers": [layer] * 12}, {"layers": [*[layer] * 11, {**layer, "w0": (1.0,)}]})
    assert flat(changed) == pytree.leaves(changed, is_leaf=lambda v: v == (1.0,))
    short = {k: layer[k] for k in list(layer)[1:]}
    assert flat(({"layers": [layer] * 12}, {"layers": [*[layer] * 11, short]})) is None


@pytest.mark.parametrize(
    "other",
    [
        {"a": 1},
        {"a": 1, "c": (2, 3)},
        {"a": 1, "b": (2, 3), "c": 4},
        {"a": 1, "b": [2, 3]},
        {"a": 1, "b": (2,)},
        {"a": 1, "b": (2, 3, 4)},
        {"a": 1, "b": Pair(2, 3)},
        {"a": 1, "b": 2},
        {"a": 1, "b": None},
        collections.OrderedDict(a=1, b=(2, 3)),
        [1, (2, 3)],
        7,
    ],
)
def test_near_misses(other):
    assert flattener(pytree.structure({"a": 1, "b": (2, 3)}))(other) is None


def test_static_parts_are_compared():
    flat = flattener(pytree.structure(Layer(1, "x")))
    assert flat(Layer(5, "x")) == [5]
    assert flat(Layer(5, "y")) is None


def test_deep_and_wide_trees():
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    for tree in (deep, {f"k{i}": i for i in range(3000)}):
        leaves, treedef = pytree.flatten(tree)
        assert flattener(treedef)(tree) == leaves
        assert builder(treedef)(leaves) == tree
