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
for x in ({"b": 1, "a": [2]}, Pair(1, 2), (3, 4), [5, None], collections.OrderedDict(z=6)):
    entry = _registry[type(x)]
    children, data = entry.to_iter(x)
    assert type(made := entry.from_iter(data, [*children])) is type(x) and made == x
children, data = _registry[Mine].to_iter(Mine(5))
assert [*children] == [5] and _registry[Mine].from_iter(data, [6]).x == 6
assert Mine in list(_registry)
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
                    (lambda: jax.jit(lambda: jax.set_mesh(mesh))(), "outside of functions"),
                    (lambda: jax.jit(lambda: get_mesh())(), "outside of functions")):
    with pytest.raises(ValueError, match=said):
        wrong()
""")


def test_there_are_no_sparse_arrays_and_making_one_says_so():
    aliased("""
import jax, pytest, jax.experimental.sparse as jesp
x = jax.numpy.ones((2, 2))
assert not isinstance(x, jesp.BCOO | jesp.BCSR | jesp.JAXSparse)
for make in (jesp.BCOO, jesp.BCOO.fromdense, jesp.BCSR, jesp.BCSR.from_scipy_sparse):
    with pytest.raises(NotImplementedError, match="no sparse arrays"):
        make(x)
with pytest.raises(AttributeError, match="fxad.sparse_jacobian"):
    jesp.bcoo_dot_general
assert jesp.sparsify(jax.numpy.sin)(x).shape == x.shape
""")


def test_what_packages_read_of_private_modules():
    """Wanted values are JAX's."""
    aliased("""
import importlib.metadata, jax, pytest, numpy as np
from jax._src.core import trace_state_clean
from jax._src.dtypes import to_complex_dtype
from jax._src.pjit import jit_p
from jax.extend.core import primitives
from jax.interpreters import xla
from jaxlib._jax import PjitFunction
from jaxlib import xla_client
import jaxlib
seen = []
f = lambda x: (seen.append(trace_state_clean()), x)[1]
f(1.0); jax.jit(f)(1.0); jax.vmap(f)(np.ones(2)); jax.grad(f)(1.0)
jax.lax.scan(lambda a, b: (f(a), None), 0.0, None, 2)
assert seen == [True, False, False, False, False]
for dtype in ("bool", "int8", "int32", "float16", "float32", "complex64"):
    assert to_complex_dtype(dtype) == np.complex64
for dtype in ("int64", "float64", "complex128"):
    assert to_complex_dtype(dtype) == np.complex128
assert isinstance(jax.jit(f), PjitFunction) and not isinstance(f, PjitFunction)
assert isinstance(jax.devices()[0], xla_client.Device)
assert jit_p is primitives.jit_p == jax.make_jaxpr(jax.jit(f))(1.0).eqns[0].primitive
assert len({primitives.call_p, primitives.closed_call_p, jit_p}) == 3
with pytest.raises(NotImplementedError):
    primitives.call_p.bind(1.0)
class Mine(np.ndarray): pass
for table in (xla.canonicalize_dtype_handlers, jax.core.pytype_aval_mappings):
    table[Mine] = table[np.ndarray]
assert importlib.metadata.version("jax") == jax.__version__ == jaxlib.__version__
with pytest.raises(ImportError, match="not in fxad"):
    import jaxlib.mlir
""")


def test_the_one_backend_and_the_one_process():
    """Wanted values are those of JAX on a CPU."""
    aliased("""
import jax, numpy as np, pytest
from jax.experimental import multihost_utils
from jax.extend import backend
client = backend.get_backend()
assert client.platform == client.platform_version == "cpu" and client.process_index() == 0
assert client.devices() == client.local_devices() == [backend.get_default_device()]
assert client.device_count() == client.local_device_count() == 1
assert backend.backends() == {"cpu": backend.get_backend("cpu")}
with pytest.raises(RuntimeError, match="Unknown backend"):
    backend.get_backend("tpu")
tree = {"a": jax.numpy.ones(2), "b": 3}
for shapes, tiled in (([(1, 2), (1,)], False), ([(2,), ()], True)):
    found = multihost_utils.process_allgather(tree, tiled=tiled)
    assert [leaf.shape for leaf in found.values()] == shapes
    assert all(isinstance(leaf, np.ndarray) for leaf in found.values())
assert multihost_utils.broadcast_one_to_all(tree)["a"].tolist() == [1, 1]
multihost_utils.sync_global_devices("here")
multihost_utils.assert_equal(tree)
assert not multihost_utils.reached_preemption_sync_point(1)
""")


def test_names_of_axes_that_jax_refuses():
    aliased("""
import jax, pytest
f = lambda x: (x**2).sum()
assert jax.grad(f, reduce_axes=())(3.0) == jax.value_and_grad(f, reduce_axes=())(3.0)[1] == 6
assert jax.vjp(f, 3.0, reduce_axes=[])[1](1.0) == (6,)
for call in (jax.grad, jax.value_and_grad):
    with pytest.raises(ValueError, match="reduce_axes"):
        call(f, reduce_axes=("batch",))(3.0)
""")


def test_kernels_by_hand_are_absent_where_they_are_asked_for():
    """Packages import Pallas for devices that they look for later."""
    aliased("""
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu, triton
for module in (pl, tpu, triton):
    with pytest.raises(AttributeError, match="by hand"):
        module.pallas_call
""")


def test_what_packages_read_of_private_helpers():
    """Wanted values are JAX's."""
    aliased("""
import inspect, jax, jax.numpy as jnp, numpy as np
from jax._src.api_util import infer_argnums_and_argnames as inferred
from jax._src.numpy.util import promote_dtypes_complex
from jax.extend.source_info_util import user_context
from jax.interpreters import batching, mlir, partial_eval
def f(a, b, /, c, *rest, d, **others): pass
of = inspect.signature(f)
assert inferred(of, None, None) == ((), ())
assert inferred(of, (0, 2), None) == ((0, 2), ("c",))
assert inferred(of, 2, None) == ((2,), ("c",))
assert inferred(of, None, "c") == ((2,), ("c",))
assert inferred(of, None, ["d", "c"]) == ((2,), ("d", "c"))
assert inferred(of, 0, "d") == ((0,), ("d",))
a, b = promote_dtypes_complex(1, np.ones(2, "f4"))
assert a.dtype == b.dtype == jnp.complex64 and b.shape == (2,)
assert not jax.core.no_effects and "Effect" in str(jax.core.Effects)
def seen(x):
    assert isinstance(x, partial_eval.DynamicJaxprTracer)
    assert jax.core.unsafe_get_axis_names_DO_NOT_USE() == ["i"]
    return x
jax.jit(jax.vmap(seen, axis_name="i"))(np.ones(2))
assert jax.core.unsafe_get_axis_names_DO_NOT_USE() == []
eqn = jax.make_jaxpr(jnp.sin)(1.0).eqns[0]
with user_context(eqn.source_info.traceback):
    assert eqn.primitive.bind(0.0) == 0
info = jax.core.DebugInfo("jit", "f", ("x",), None)
assert info._replace(arg_names=None).arg_names is None
class Mine: pass
batching.register_vmappable(Mine, int, int, None, None, None)
assert issubclass(type("Mine", (mlir.LoweringRuleContext,), {}), mlir.LoweringRuleContext)
""")


def test_the_class_of_arrays_has_the_methods_of_arrays():
    """Packages copy them from the class. The list is that of `dir(jax.Array)`."""
    aliased("""
import jax, pytest
from jax import numpy as jnp
names = '''T addressable_data addressable_shards all any argmax argmin argpartition argsort astype
    at byteswap choose clip committed compress conj conjugate copy copy_to_host_async cumprod cumsum
    device diagonal dot dtype flat flatten global_shards imag is_fully_addressable
    is_fully_replicated item itemsize mT max mean min nbytes ndim nonzero prod ptp ravel real repeat
    reshape round searchsorted shape sharding size sort squeeze std sum swapaxes take to_device
    trace transpose var view'''.split()
assert not [name for name in names if not hasattr(jax.Array, name)]
x = jnp.arange(3.0)
assert jax.Array.item(x, 1) == x.item(1) == 1.0 and jax.Array.item.__name__ == "item"
assert x.global_shards[0].data is x
with pytest.raises(jax.errors.ConcretizationTypeError, match="item"):
    jax.jit(lambda x: jax.Array.item(x))(1.0)
""")


def test_a_setting_that_would_change_random_numbers_warns_once():
    aliased("""
import warnings, jax
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    jax.config.update("jax_threefry_partitionable", True)
    jax.config.update("jax_default_prng_impl", "threefry2x32")
    assert not seen
    for _ in range(2):
        with jax.threefry_partitionable(False):
            assert not jax.config.jax_threefry_partitionable
    jax.config.jax_threefry_partitionable = False
    jax.config.update("jax_default_prng_impl", "rbg")
assert [each.filename for each in seen][1:] == ["<string>"]
first, second = (str(each.message) for each in seen)
assert "jax_threefry_partitionable=False has no effect: random numbers are those of True" in first
assert "jax_default_prng_impl='rbg' has no effect" in second and "'threefry2x32'" in second
assert seen[0].category.__name__ == "SettingWarning"
""")


def test_operators_ask_an_operand_what_array_it_is():
    """As JAX's do, before its class is asked for an operator of its own."""
    aliased("""
import jax.numpy as jnp
class Value:
    def __init__(self, value): self.value = value
    def __jax_array__(self): return self.value
    def __radd__(self, other): return NotImplemented
x = jnp.ones(2)
for value in (Value(3.0), Value(jnp.array(3.0)), Value(Value(3.0))):
    assert (x + value).tolist() == [4, 4] and (value - x).tolist() == [2, 2]
    assert (x < value).tolist() == [True, True] and (x == value).tolist() == [False, False]
""")
