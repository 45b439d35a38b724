"""What JAX's users expect of structures: their errors, `compose`, `walk`, leaves by path."""

from __future__ import annotations

import dataclasses
from collections import namedtuple

import numpy as np
import pytest

from fxad import tree as ft
from fxad.core.errors import TreeError

Point = namedtuple("Point", ["x", "y"])
Pair2 = namedtuple("Pair2", ["x", "y"])


@ft.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    weight: object
    bias: object
    name: object = dataclasses.field(default="layer", metadata={"static": True})


def test_static_data_that_cannot_be_hashed_or_compared():
    listed = [ft.structure(Layer(1, 2, name=[name])) for name in "aab"]
    assert hash(listed[0]) == hash(listed[1])
    assert listed[0] == listed[1] != listed[2]
    arrays = [ft.structure(Layer(1, 2, name=np.arange(2))) for _ in range(2)]
    with pytest.raises(TreeError, match="checking equality of metadata.*array"):
        assert arrays[0] == arrays[1]


def test_flatten_functions_must_give_children_and_data():
    for number, (given, said) in enumerate([("hello", "'hello'"), ((7, 7), "is iterable, got")]):
        cls = type(f"Wrong{number}", (), {})
        ft.register_node(cls, lambda x, given=given: given, lambda data, children: None)
        with pytest.raises(TreeError, match=rf"\(children, aux_data\) tuple.*{said}"):
            ft.flatten(cls())


def test_errors_say_what_stands_where_a_node_should():
    for expected, seen, said in [
        ([1, 2], [7], r"List arity mismatch: 1 != 2; list: \[7\]"),
        ((1,), [7], r"Expected tuple, got \[7\]"),
        ({"a": 1}, {"b": 7}, r"keys: \['a'\]; dict: {'b': 7}.*only in the latter: \['b'\]"),
        (None, 3, "Expected None, got 3"),
        (Point(1, 2), (1, 2), "Expected named tuple"),
        (Point(1, 2), Pair2(1, 2), "Named tuple type mismatch: .*Point.*Pair2"),
        (Layer(1, 2), 3, "Custom node type mismatch: .*Layer.*value: 3"),
        (Layer(1, 2), Layer(1, 2, "x"), "static parts .*layer"),
        ([0], list(range(500)), r"\.\.\."),
    ]:
        with pytest.raises(TreeError, match=said) as caught:
            ft.structure({"k": [expected]}).flatten_up_to({"k": [seen]})
        assert "differ at ['k'][0]" in str(caught.value)


def test_compose_and_walk():
    outer = ft.structure({"a": 0, "b": [0]})
    composed = outer.compose(ft.structure((0, 0)))
    assert composed == ft.structure({"a": (1, 2), "b": [(3, 4)]})
    seen = []
    total = composed.walk(
        lambda values, data: seen.append(data) or sum(values), lambda x: 10 * x, [1, 2, 3, 4]
    )
    assert total == 100
    assert seen == [None, None, None, ["a", "b"]]
    assert outer.walk(lambda values, _: values, None, "xy") == ("x", ("y",))


def test_leaves_by_their_path():
    def deep(path, subtree):
        return len(path) == 2

    tree = {"a": [1, (2, 3)]}
    pairs = ft.leaves_with_path(tree, is_leaf=deep, is_leaf_takes_path=True)
    assert [leaf for _, leaf in pairs] == [1, (2, 3)]
    mapped = ft.map_with_path(
        lambda path, x: ft.keystr(path), tree, is_leaf=deep, is_leaf_takes_path=True
    )
    assert mapped == {"a": ["['a'][0]", "['a'][1]"]}


def test_prefix_errors_name_every_place():
    errors = ft.prefix_errors([(1,), (2,), {"a": 0}], [[3], (4, 5), {"a": 1, "b": 2}])
    texts = [str(error("in_axes")) for error in errors]
    for text, kind in zip(texts, ("types", "lengths of tuple", "numbers"), strict=True):
        assert f"pytree structure error: different {kind}" in text
    assert "in_axes[1]" in texts[1]
    assert "symmetric difference on key sets is\n    b" in texts[2]
    assert ft.prefix_errors((1, 2), ((3, 4), 5)) == []


def test_keys_of_different_kinds_hash_apart():
    assert hash(ft.SequenceKey(1)) == hash(ft.SequenceKey(1)) != hash(ft.FlattenedIndexKey(1))


def test_static_fields():
    @ft.register_dataclass
    @dataclasses.dataclass
    class Layer2:
        weight: object
        kind: str = ft.static(default="dense", metadata={"note": 1})

    assert ft.leaves(Layer2(1)) == [1]
    assert ft.map(lambda x: 2 * x, Layer2(1, "sparse")) == Layer2(2, "sparse")
    assert dataclasses.fields(Layer2)[1].metadata == {"static": True, "note": 1}


def test_one_level_with_keys():
    pairs, data = ft.flatten_one_level_with_keys({"b": [1], "a": 2})
    assert pairs == [(ft.DictKey("a"), 2), (ft.DictKey("b"), [1])]
    assert data == ("a", "b")
    with pytest.raises(TreeError, match="can't tree-flatten type"):
        ft.flatten_one_level_with_keys(3)
