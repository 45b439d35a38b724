"""Names that packages import and seldom use: present, and an error where fxad has nothing."""

from __future__ import annotations

from tests.as_jax.test_alias import aliased


def test_there_are_no_mutable_arrays_and_making_one_says_so():
    aliased("""
import jax, pytest
from jax._src.state.types import AbstractRef
from jax.extend.core import Effect
assert not isinstance(jax.numpy.ones(2), jax.Ref | AbstractRef)
assert jax.ref.Ref is jax.Ref and issubclass(type("Mine", (Effect,), {}), Effect)
for make in (jax.new_ref, jax.Ref, AbstractRef):
    with pytest.raises(NotImplementedError, match="no mutable arrays"):
        make(0.0)
with pytest.raises(AttributeError, match="no mutable arrays"):
    jax.freeze
""")


def test_hijax_classes_are_derived_from_and_never_run():
    aliased("""
import jax, pytest
from jax.experimental import hijax
class Make(hijax.HiPrimitive):
    def impl(self, x): return x
class Type(hijax.MutableHiType):
    def __init__(self, leaves): self.leaves = leaves
hijax.register_hitype(Make, lambda x: Type(x))
make = Make("make")
for call in (lambda: make.bind(1), lambda: Type(()), lambda: jax.experimental.cur_qdd(1)):
    with pytest.raises(NotImplementedError, match="hijax"):
        call()
""")


def test_the_registry_of_pytrees():
    """Wanted values are JAX's."""
    aliased("""
import collections, jax
from jax._src.tree_util import _registry
registry = jax.tree_util.default_registry
Pair = collections.namedtuple("Pair", "a b")
class Mine:
    def __init__(self, x): self.x = x
class Other(Mine): pass
assert registry.flatten_one_level({"b": 1, "a": [2]}) == ([[2], 1], ("a", "b"))
assert registry.flatten_one_level([1, 2]) == ([1, 2], None)
assert registry.flatten_one_level((4,)) == ((4,), None)
assert registry.flatten_one_level(None) == ((), None)
assert registry.flatten_one_level(Pair(1, 2)) == ([1, 2], Pair)
assert registry.flatten_one_level(3) is None and registry.flatten_one_level_with_keys(3) is None
key = jax.tree_util.SequenceKey(0)
assert registry.flatten_one_level_with_keys((4,)) == (((key, 4),), None)
leaves, structure = registry.flatten([1, {"a": 2}])
assert leaves == [1, 2] and structure == jax.tree.structure([1, {"a": 2}])
assert registry.flatten([1, [2]], lambda x: x == [2])[0] == [1, [2]]
assert Mine not in _registry and not registry.is_node(Mine) and dict in _registry
registry.register_node(Mine, lambda m: ((m.x,), "m"), lambda data, xs: Mine(*xs))
assert Mine in _registry and registry.is_node(Mine)
assert registry.flatten_one_level(Mine(5)) == ([5], "m")
named = jax.tree_util.GetAttrKey("x")
jax.tree_util.register_pytree_with_keys(
    Other, lambda m: (((named, m.x),), None), lambda data, xs: Other(*xs)
)
assert registry.flatten_one_level_with_keys(Other(5))[0] == ((named, 5),)
assert list(_registry[Mine].flatten(Mine(5))[0]) == [5] and Mine in list(_registry)
""")


def test_layouts_and_meshes_of_the_one_device():
    aliased("""
import jax, pytest
from jax.experimental import layout, mesh_utils
assert layout.Layout((0, 1)) == layout.Layout((0, 1)) != layout.Layout((0,))
with pytest.raises(NotImplementedError, match="row after row"):
    layout.Layout((1, 0))
mesh = jax.sharding.Mesh(mesh_utils.create_device_mesh((1, 1)), ("a", "b"))
assert mesh.axis_sizes == (1, 1)
with pytest.raises(ValueError, match="Number of devices 1 must equal"):
    mesh_utils.create_device_mesh((2, 1))
""")


def test_the_mesh_that_is_set_is_told():
    """As JAX tells it, in functions that are traced too."""
    aliased("""
import threading, jax, pytest
from jax.sharding import get_abstract_mesh, get_mesh, use_abstract_mesh
mesh, other = jax.make_mesh((1, 1), ("a", "b")), jax.make_mesh((1,), ("c",))
names = lambda: get_abstract_mesh().axis_names
seen = []
f = jax.jit(lambda x: (seen.append(names()), x)[1])
for _ in range(3):
    f(1.0)
assert names() == () and get_mesh().empty
with jax.set_mesh(mesh):
    assert names() == ("a", "b") and get_mesh() == mesh
    assert get_abstract_mesh() == mesh.abstract_mesh
    f(1.0)
    f(1.0)
    with use_abstract_mesh(other.abstract_mesh):
        assert names() == ("c",)
    with jax.set_mesh(other):
        assert names() == ("c",) and get_mesh() == other
    thread = threading.Thread(target=lambda: seen.append(names()))
    thread.start()
    thread.join()
    assert names() == ("a", "b")
f(1.0)
assert seen == [(), ("a", "b"), ()] and names() == () and get_mesh().empty
with mesh:
    assert names() == ()
jax.set_mesh(other)
assert names() == ("c",) and get_mesh() == other
jax.set_mesh(None)
assert names() == ()
for wrong, said in ((lambda: jax.set_mesh("a"), "Expected mesh"),
                    (lambda: jax.set_mesh(mesh.abstract_mesh), "Expected mesh"),
                    (lambda: jax.jit(lambda: jax.set_mesh(mesh))(), "outside of `jax.jit`"),
                    (lambda: jax.jit(lambda: get_mesh())(), "outside of `jax.jit`")):
    with pytest.raises(ValueError, match=said):
        wrong()
""")
