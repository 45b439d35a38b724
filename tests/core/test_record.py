"""Records: immutable by convention, compared by identity or by value."""

from __future__ import annotations

import copy
import pickle

import pytest

from fxad.core.record import record, replace, valued


@record
class Wire:
    """A docstring."""

    name: str
    width: int = 1

    @property
    def label(self) -> str:
        return f"{self.name}:{self.width}"


@valued
class Point:
    x: int
    y: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"<{self.x}>"


def test_fields_defaults_and_methods():
    wire = Wire("a")
    assert (wire.name, wire.width, wire.label) == ("a", 1, "a:1")
    assert Wire(name="b", width=3).label == "b:3"
    assert Wire.__doc__ == "A docstring."
    assert repr(wire) == "Wire(name='a', width=1)"
    assert (str(Point(2)), repr(Point(2))) == ("<2>", "Point(x=2, y=())")


def test_missing_and_unknown_fields_are_errors():
    with pytest.raises(TypeError, match=r"Wire\.__init__\(\) missing 1 required"):
        Wire()
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        Wire("a", size=2)
    with pytest.raises(AttributeError):
        Wire("a").size = 2


def test_identity_and_value():
    assert Wire("a") != Wire("a")
    assert Point(1, (2,)) == Point(1, (2,))
    assert hash(Point(1, (2,))) == hash(Point(1, (2,)))
    assert Point(1) != Point(2)
    assert Point(1) != (1, ())


def test_patterns_copies_and_pickles():
    match Point(1, (5,)):
        case Point(x, (y,)):
            assert (x, y) == (1, 5)
        case _:
            pytest.fail("no match")
    assert replace(Point(1, (5,)), x=2) == Point(2, (5,))
    assert copy.deepcopy(Point(1)) == Point(1)
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1)


def test_a_field_without_a_default_after_one_with_is_an_error():
    with pytest.raises(TypeError, match="without a default follows one with"):

        @record
        class Wrong:
            width: int = 1
            name: str


def test_classes_with_as_many_fields_keep_their_own_names():
    assert (Point(1).x, Wire("a").name) == (1, "a")
    assert Point.__init__.__code__.co_varnames == ("self", "x", "y")
