"""Methods of Array: what type checkers are told of them, and what they give."""

import dataclasses
import inspect
from collections.abc import Hashable

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.numpy.methods import METHODS, PROPERTIES
from fxad.trace.array import Concrete
from fxad.trace.array_methods import ArrayMethods
from fxad.trace.tracer import Tracer

DECLARED = {
    name: value
    for name, value in vars(ArrayMethods).items()
    if inspect.isfunction(value) or isinstance(value, property)
}
# Each kind of array answers these by itself (what `object` has needs no declaration).
OWN = (set(vars(Concrete)) & set(vars(Tracer))) - set(vars(object)) - set(vars(fxad.Array)) | {
    "item"
}
OWN -= {"__module__", "__slots__"}


def test_what_is_declared_is_what_is_installed():
    assert set(DECLARED) == {*METHODS, *PROPERTIES, *OWN}


def test_declared_properties_are_properties():
    kinds = {name for name, value in DECLARED.items() if isinstance(value, property)}
    assert kinds == set(PROPERTIES)
    assert all(isinstance(vars(fxad.Array)[name], property) for name in kinds)


@pytest.mark.parametrize("name", sorted(n for n in METHODS if not n.startswith("__")))
def test_declared_parameters_are_the_installed_ones(name):
    declared = list(inspect.signature(DECLARED[name]).parameters.values())[1:]
    installed = list(inspect.signature(METHODS[name]).parameters.values())[1:]
    assert [(p.name, p.kind, p.default) for p in declared] == [
        (p.name, p.kind, p.default) for p in installed
    ]
    assert DECLARED[name].__doc__


@pytest.mark.parametrize(
    "name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "cumsum"]
)
def test_numpys_functions_call_the_methods(name):
    x = np.array([[1.0, 3.0, 2.0], [0.5, 4.0, 1.5]], np.float32)
    found = getattr(np, name)(jnp.asarray(x), axis=1)
    assert isinstance(found, fxad.Array)
    np.testing.assert_allclose(found, getattr(np, name)(x, axis=1), rtol=1e-6)


def test_bytes_of_arrays():
    for x in (np.arange(6, dtype="int16").reshape(2, 3), np.array(1 + 2j, "complex64")):
        ours = jnp.asarray(x)
        assert ours.tobytes() == x.tobytes() and ours.tobytes("F") == x.tobytes("F")
        assert ours.byteswap().tobytes() == x.byteswap().tobytes()
        assert ours.addressable_data(0) is ours
        assert ours.on_device_size_in_bytes() == x.nbytes
    x = jnp.ones(2)
    assert jnp.array_repr(x) == repr(x) and jnp.array_str(x) == str(x)
    assert jnp.iterable(x) and not jnp.iterable(ours)


def test_arrays_are_no_place_for_results():
    with pytest.raises(BadArgument, match="sum: arrays are immutable, so out= must be None"):
        jnp.ones(3).sum(out=np.zeros(()))


def test_round_gives_integers_as_python_has_it():
    x = jnp.array([1.5, 2.5, -0.6])
    assert round(x).dtype == np.int32 and round(x).tolist() == [2, 2, -1]
    assert round(x, 1).dtype == np.float32
    assert [*range(round(jnp.float32(2.5)))] == [0, 1]
    assert fxad.jit(round)(jnp.bfloat16(3.4)).dtype == np.int32
    assert round(jnp.complex64(1.6 + 2j)) == 2 + 2j
    assert round(jnp.int64(2**40)) == 2**40


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("uint8", "float32"),
        ("float32", "uint16"),
        ("uint16", "complex64"),
        ("complex64", "int8"),
        ("int8", "bool"),
        ("bool", "uint32"),
        ("uint32", "int32"),
        ("complex64", "float32"),
    ],
)
def test_views_are_numpys(source, target):
    x = np.random.default_rng(0).integers(0, 2, (2, 16)).astype(source)
    for function in (lambda x: x.view(target), fxad.jit(lambda x: x.view(target))):
        got = function(jnp.asarray(x))
        assert got.dtype == target and got.shape == x.view(target).shape
        np.testing.assert_array_equal(np.asarray(got), x.view(target))


def test_views_of_nothing_and_of_one():
    assert jnp.zeros((0, 3)).view(jnp.uint8).shape == (0, 12)
    assert jnp.zeros((0, 4), jnp.complex64).view(jnp.float64).shape == (0, 4)
    z = np.complex64(1.5 - 2j)
    wide = jnp.asarray(z).view(jnp.int64)
    assert wide.shape == () and wide.tolist() == int(z.view("i8"))
    assert wide.view(jnp.complex64) == z


def test_views_that_do_not_divide():
    x = jnp.ones((2, 3), jnp.uint8)
    assert x.view() is x
    with pytest.raises(ShapeError, match="last axis of u8\\[2,3\\] has 3 bytes"):
        x.view(jnp.uint16)
    with pytest.raises(ShapeError, match="without axes"):
        x[0, 0].view(jnp.uint16)


@pytest.mark.parametrize("other", [[1.0, 2.0], (1.0, 2.0)], ids=["list", "tuple"])
def test_a_list_is_no_operand(other):
    x, name = jnp.ones(2), type(other).__name__
    for function in (
        *(lambda: x * other, lambda: other * x, lambda: other + x, lambda: x - other),
        *(lambda: x == other, lambda: x != other, lambda: other == x, lambda: x < other),
        lambda: fxad.jit(lambda x: x == other)(x),
    ):
        with pytest.raises(TypeMismatch, match=f"no {name} as the other operand"):
            function()
    assert (x == None) is (x == "text") is (x == object()) is False  # noqa: E711

    class Scaled(list):
        def __rmul__(self, factor):
            return "its own"

    assert x * Scaled() == "its own"


def test_numbers_from_text():
    assert jnp.float32("1.5") == 1.5 and jnp.float32("-inf") == -np.inf
    assert jnp.int8("-3").dtype == np.int8
    assert np.isnan(jnp.bfloat16("nan"))
    assert jnp.complex64("1+2j") == 1 + 2j
    with pytest.raises(BadArgument, match="float32: 'one' is no float"):
        jnp.float32("one")


def test_numpys_sorts_take_what_its_own_do():
    """NumPy converts an array whose method refuses an argument with a TypeError."""
    x = jnp.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    for kind in ("stable", "quicksort"):
        for axis in (0, 1, None):
            wanted = np.argsort(np.asarray(x), axis, kind=kind)
            np.testing.assert_array_equal(np.argsort(x, axis, kind=kind), wanted)
            wanted = np.sort(np.asarray(x), axis, kind=kind)
            np.testing.assert_array_equal(np.sort(x, axis, kind=kind), wanted)
    np.testing.assert_array_equal(np.argpartition(x, 1, kind="introselect")[:, 1], [2, 2])
    for ask in (x.sort, x.argsort, lambda **given: jnp.sort(x, **given)):
        for given in ({"kind": "stable"}, {"order": "a"}):
            with pytest.raises(BadArgument, match="kind and order must be None") as caught:
                ask(**given)
            assert isinstance(caught.value, TypeError)


def test_arrays_are_not_hashable():
    x = jnp.ones(2)
    seen = []
    fxad.jit(seen.append)(x)
    fxad.grad(lambda y: seen.append(y) or y.sum())(x)
    for array in (x, *seen):
        assert not isinstance(array, Hashable) and type(array).__hash__ is None
        with pytest.raises(TypeError, match="unhashable type"):
            hash(array)
    static = fxad.jit(lambda x: x, static_argnums=0)

    @dataclasses.dataclass(frozen=True)
    class Holder:
        x: object

    for given in (x, (x,), Holder(x)):
        with pytest.raises(TypeError, match="hashable.*'Array'; arrays compare.*ordinary argument"):
            static(given)
    with pytest.raises(TypeError, match="hashable.*'StagedTracer'.*ordinary argument"):
        fxad.jit(static)(x)
