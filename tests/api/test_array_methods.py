"""What type checkers are told about Array is what Array has."""

import inspect

import pytest

import fxad
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
