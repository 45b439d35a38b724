"""Pytrees: order, round trips, paths, prefixes, registration, and what the errors name."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
from collections import OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxad import tree as ft
from fxad.core.errors import TreeError

Point = namedtuple("Point", ["x", "y"])


@ft.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    weight: object
    bias: object
    name: str = dataclasses.field(default="layer", metadata={"static": True})


@ft.register_node_class
class Pair:
    def __init__(self, left, right, tag=None):
        self.left, self.right, self.tag = left, right, tag

    def __repr__(self):
        return f"Pair({self.left!r}, {self.right!r}, {self.tag!r})"

    def tree_flatten(self):
        return (self.left, self.right), self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        left, right = children
        assert type(children) is tuple
        return cls(left, right, tag)

    def __eq__(self, other):
        return (self.left, self.right, self.tag) == (other.left, other.right, other.tag)


class Plain:
    def __init__(self, x, y):
        self.x, self.y = x, y


EXAMPLES = [
    3,
    None,
    (),
    [],
    {},
    {"b": 1, "a": [2, (3, None)]},
    OrderedDict([("b", 1), ("a", 2)]),
    defaultdict(list, {"z": 1, "y": {"q": 2}}),
    Point(1, [2, Point(3, None)]),
    [Layer(1, {"x": 2}), (None, (), [[4]])],
    {3: "c", 1: "a", 2: None},
    Pair([1, 2], {"k": Pair(3, 4)}, tag="t"),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_examples_round_trip(example):
    leaves, treedef = ft.flatten(example)
    rebuilt = ft.unflatten(treedef, leaves)
    assert rebuilt == example and type(rebuilt) is type(example)
    again = ft.structure(example)
    assert again == treedef and hash(again) == hash(treedef)
    assert treedef.num_leaves == len(leaves)
    assert sum(child.num_leaves for child in treedef.children()) in (len(leaves), 0)


def test_order_and_text():
    example = {"b": Point(1, [2]), "a": (Layer(3, None),), "c": OrderedDict(z=4, y=5)}
    leaves, treedef = ft.flatten(example)
    assert leaves == [3, 1, 2, 4, 5]
    assert str(treedef) == (
        "PyTreeDef({'a': (CustomNode(Layer[('layer',)], [*, None]),), "
        "'b': CustomNode(namedtuple[Point], [*, [*]]), "
        "'c': CustomNode(OrderedDict[('z', 'y')], [*, *])})"
    )
    assert str(ft.structure(Pair(1, 2, "t"))) == "PyTreeDef(CustomNode(Pair[t], [*, *]))"


def test_defaultdict_keeps_its_factory():
    rebuilt = ft.map(lambda x: x + 1, defaultdict(list, {"a": 1}))
    assert rebuilt == {"a": 2} and rebuilt["new"] == []


def test_structures_that_must_differ():
    alike = [
        [1, 2],
        (1, 2),
        Point(1, 2),
        {"a": 1, "b": 2},
        {"a": 1, "c": 2},
        OrderedDict(a=1, b=2),
        OrderedDict(b=1, a=2),
        defaultdict(int, a=1, b=2),
        Layer(1, 2),
        Layer(1, 2, "other"),
        Pair(1, 2),
        [[1], 2],
        [1, [2]],
    ]
    assert len({ft.structure(t) for t in alike}) == len(alike)


def test_treedefs_survive_copy_and_pickle():
    treedef = ft.structure([1, {"a": (2, None)}])
    assert copy.deepcopy(treedef) == treedef
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef).unflatten([1, 2]) == [1, {"a": (2, None)}]


keys = st.text("abc", max_size=2)
trees = st.recursive(
    st.integers() | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.builds(Point, inner, inner),
        st.builds(Layer, inner, inner, keys),
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_properties(tree):
    leaves, treedef = ft.flatten(tree)
    assert ft.unflatten(treedef, leaves) == tree
    assert ft.map(lambda x: x, tree) == tree
    pairs, with_path = ft.flatten_with_path(tree)
    assert with_path == treedef and [leaf for _, leaf in pairs] == leaves
    assert len({path for path, _ in pairs}) == len(pairs)
    for path, leaf in pairs:
        assert eval("tree" + ft.keystr(path), {}, {"tree": tree}) is leaf
    assert ft.broadcast_prefix(7, tree) == [7] * len(leaves)
    assert treedef.flatten_up_to(tree) == leaves
    stopped, outer = ft.flatten(tree, is_leaf=lambda x: isinstance(x, list))
    assert ft.unflatten(outer, stopped) == tree
    if isinstance(tree, list):
        assert len(stopped) == 1 and stopped[0] is tree


def test_map_reduce_all_and_is_leaf():
    tree = {"a": [1, 2], "b": None}
    assert ft.map(lambda x, y: (x, y), tree, {"a": [3, [4, 5]], "b": None}) == {
        "a": [(1, 3), (2, [4, 5])],
        "b": None,
    }
    assert ft.map(lambda x: 0 if x is None else x, tree, is_leaf=lambda x: x is None) == {
        "a": [1, 2],
        "b": 0,
    }
    assert ft.reduce(lambda x, y: x + y, tree) == 3
    assert ft.reduce(lambda x, y: x + y, tree, 10) == 13
    assert ft.reduce(lambda x, y: x, {}, None) is None
    assert ft.all(tree) and not ft.all([1, 0])
    assert ft.all_leaves([1, "x"]) and not ft.all_leaves([1, ()])
    assert ft.map_with_path(lambda p, x, y: ft.keystr(p) + str(x + y), [1], [2]) == ["[0]3"]


def test_paths():
    tree = {"w": [Layer(1, 2)], "p": Point(3, 4), "c": Pair(5, 6)}
    shown = [ft.keystr(path) for path, _ in ft.leaves_with_path(tree)]
    assert shown == [
        "['c'][<flat index 0>]",
        "['c'][<flat index 1>]",
        "['p'].x",
        "['p'].y",
        "['w'][0].weight",
        "['w'][0].bias",
    ]
    path = (ft.DictKey("w"), ft.SequenceKey(0), ft.AttrKey("bias"))
    assert ft.keystr(path, simple=True, separator="/") == "w/0/bias"


def test_a_structure_knows_the_paths_of_its_leaves():
    """As they are in a tree of it, without making one."""
    held = {"b": [1, (2, None)], "a": Pair(3, [4]), "c": Layer(5, 6)}
    pairs, treedef = ft.flatten_with_path(held)
    assert treedef.paths() == [path for path, _ in pairs]
    assert ft.structure(None).paths() == []
    assert ft.structure(1).paths() == [()]


def test_transpose():
    outer = ft.structure({"a": 0, "b": 0})
    tree = {"a": (1, [2]), "b": (3, [4])}
    turned = ({"a": 1, "b": 3}, [{"a": 2, "b": 4}])
    assert ft.transpose(outer, ft.structure((0, [0])), tree) == turned
    assert ft.transpose(outer, None, tree) == turned
    assert ft.transpose(ft.structure([]), ft.structure((0, 0)), []) == ([], [])
    with pytest.raises(TreeError, match="transpose"):
        ft.transpose(outer, ft.structure((0, 0)), tree)


def test_prefixes():
    tree = ({"a": 1, "b": [2, 3]}, 4)
    assert ft.broadcast_prefix(({"a": 0, "b": 5}, 9), tree) == [0, 5, 5, 9]
    none_is_leaf = {"is_leaf": lambda x: x is None}
    assert ft.broadcast_prefix((None, 0), ft.structure(tree), **none_is_leaf) == [None] * 3 + [0]
    assert ft.broadcast((0, 1), tree) == ({"a": 0, "b": [0, 0]}, 1)
    assert ft.flatten_prefix((0, 1), tree) == [(0, tree[0]), (1, 4)]
    with pytest.raises(
        TreeError, match=r"types(.|\n)*\[0\]\['b'\]: the prefix has tuple of 1.* list of 2"
    ):
        ft.broadcast_prefix(({"a": 0, "b": (1,)}, 2), tree)
    with pytest.raises(
        TreeError, match=r"metadata(.|\n)*\[0\].*only in the former: \['c'\].*: \['b'\]"
    ):
        ft.broadcast_prefix(({"a": 0, "c": 1}, 2), tree)
    with pytest.raises(TreeError, match="lengths of tuple(.|\n)*tuple of 3.* tuple of 2"):
        ft.broadcast_prefix((0, 1, 2), tree)
    with pytest.raises(TreeError, match="prefix has None"):
        ft.broadcast_prefix((None, 0), tree)


def test_structure_errors_name_the_path():
    with pytest.raises(TreeError, match=r"\['a'\]\[1\]: Expected list, got 2\."):
        ft.map(lambda x, y: x, {"a": [1, [2]]}, {"a": [1, 2]})
    with pytest.raises(TreeError, match=r"carry: .*at \.weight: .*tuple of 1.*tuple of 2"):
        ft.same_structure_or_raise(Layer((1,), 2), Layer((1, 1), 2), "carry")
    with pytest.raises(TreeError, match="the root.*static parts"):
        ft.same_structure_or_raise(Layer(1, 2, "a"), Layer(1, 2, "b"), "carry")
    ft.same_structure_or_raise([1, 2], [3, 4], "carry")
    with pytest.raises(TreeError, match="2 leaves, got 3"):
        ft.unflatten(ft.structure([1, 2]), [1, 2, 3])
    with pytest.raises(TypeError, match="treedef, leaves"):
        ft.unflatten([1, 2], ft.structure([1, 2]))
    with pytest.raises(TreeError, match="sortable.*int, str"):
        ft.flatten({"a": 1, 2: 3})


def test_dataclass_registration():
    @ft.register_dataclass(data_fields=["b"])
    @dataclasses.dataclass
    class Given:
        a: int
        b: int
        c: int = dataclasses.field(init=False, default=0)

    assert ft.leaves(Given(1, 2)) == [2]
    assert ft.map(lambda x: x * 5, Given(1, 2)) == Given(1, 10)
    with pytest.raises(ValueError, match="already"):
        ft.register_dataclass(Given)
    with pytest.raises(TypeError, match="required when nodetype is not a dataclass"):
        ft.register_dataclass(Plain)
    with pytest.raises(TypeError, match="must both be specified"):
        ft.register_dataclass(Plain, data_fields=["x"])
    with pytest.raises(TypeError, match="needs a class, got 3"):
        ft.register_dataclass(3, ["x"], ["y"])
    ft.register_dataclass(Plain, ["x"], ["y"])
    assert ft.leaves(ft.map(lambda x: 2 * x, Plain(y=1, x=[3]))) == [6]

    @dataclasses.dataclass
    class Wrong:
        a: int
        b: int

    assert ft.leaves(Wrong(1, 2)) == [Wrong(1, 2)]
    with pytest.raises(ValueError, match="Missing fields: {'b'}. Unexpected fields: {'z'}"):
        ft.register_dataclass(Wrong, data_fields=["a"], meta_fields=["z"])
    ft.register_dataclass(Wrong)  # was seen as a leaf above
    assert ft.leaves(Wrong(1, 2)) == [1, 2]


def test_nodes_with_keys():
    class Keyed:
        def __init__(self, x, y):
            self.x, self.y = x, y

    ft.register_pytree_with_keys(
        Keyed,
        lambda k: (((ft.GetAttrKey("x"), k.x), (ft.GetAttrKey("y"), k.y)), None),
        lambda _, children: Keyed(*children),
    )
    assert [ft.keystr(p) for p, _ in ft.leaves_with_path(Keyed(1, [2]))] == [".x", ".y[0]"]
    with pytest.raises(TreeError, match=r"differ at \.y: .*list of 1"):
        ft.same_structure_or_raise(Keyed(1, [2]), Keyed(1, 2), "x")


def test_partial_is_a_tree():
    doubled = ft.map(lambda x: 2 * x, ft.Partial(max, 1, key=3))
    assert (doubled.args, doubled.keywords, doubled.func) == ((2,), {"key": 6}, max)


def test_leaf_error_names_the_fix():
    @dataclasses.dataclass
    class State:
        x: int

    path = (ft.DictKey("s"),)
    for leaf, fix in [
        (State(1), r"\['s'\] is a State.*register_dataclass above class State"),
        (State, "pass an instance"),
        ("text", "a number: leave it out of the tree"),
        ({1, 2}, "plain dict, list or tuple"),
        (object(), r"an object.*register_node\(object"),
    ]:
        error = ft.leaf_error(leaf, path)
        assert isinstance(error, TypeError)
        with pytest.raises(TypeError, match=fix):
            raise error


def test_classes_seen_as_leaves_are_not_kept_without_bound():
    for _ in range(3):
        assert (
            ft.leaves([type(f"C{i}", (), {})() for i in range(600)])[0].__class__.__name__ == "C0"
        )


@pytest.mark.peers
def test_same_order_and_paths_as_jax():
    jtu = pytest.importorskip("jax.tree_util")
    nested = [
        {"b": [1, {"z": 2, "a": (3, None)}], "a": OrderedDict(q=4, p=[5, 6])},
        [defaultdict(int, {"y": 1, "x": Point(2, [3])}), (), {}, None, {10: 4, 9: 5}],
    ]
    for tree in nested:
        theirs, _ = jtu.tree_flatten_with_path(tree)
        ours = ft.leaves_with_path(tree)
        assert [leaf for _, leaf in ours] == [leaf for _, leaf in theirs]
        assert [ft.keystr(p) for p, _ in ours] == [jtu.keystr(p) for p, _ in theirs]
    assert ft.leaves(nested) == jtu.tree_leaves(nested)


def test_partials_of_partials_keep_their_own_arguments():
    def f(*args, **named):
        return args, named

    inner = functools.partial(f, 1, a=2)
    outer = ft.Partial(inner, 3, b=4)
    assert (outer.args, outer.keywords) == ((3,), {"b": 4})
    assert outer(5) == ((1, 3, 5), {"a": 2, "b": 4})
    assert outer.func == inner
    assert hash(outer.func) == hash(ft.Partial(inner).func)
    assert ft.structure(outer) == ft.structure(ft.Partial(inner, 7, b=8))
    doubled = ft.map(lambda x: 2 * x, outer)
    assert doubled(5) == ((1, 6, 5), {"a": 2, "b": 8})
    assert ft.Partial(ft.Partial(f, 1), 2).args == (2,)


def test_the_names_of_tree_util_can_be_imported():
    from fxad import tree, tree_util
    from fxad.tree_util import Partial, tree_map

    assert tree_map is tree.map
    assert Partial is tree.Partial
    assert all(hasattr(tree_util, name) for name in tree.__all__)
