"""What type checkers are told about Array is what Array has."""

import inspect

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument
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
OWN = (set(vars(Concrete)) & set(vars(Tracer))) - set(vars(object)) - set(vars(fxad.Array))
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


def test_arrays_are_no_place_for_results():
    with pytest.raises(BadArgument, match="sum: arrays are immutable, so out= must be None"):
        jnp.ones(3).sum(out=np.zeros(()))
