"""Scopes of generated code (fxad/backend/llvm/elements/scope.py): what is known where."""

import numpy as np
import pytest

from fxad.backend.llvm.base.schedule import ABI, Schedule, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code
from fxad.backend.llvm.elements.scope import (
    Context,
    Copy,
    Lanes,
    Needs,
    Scope,
    Scratch,
    each_copy,
    inner,
    with_axes,
    with_cells,
)
from fxad.backend.llvm.elements.values import hoist, value
from fxad.backend.llvm.loops.nest import lane_extent_loop, loops, store_all
from fxad.ir import kernel as ir

F32 = np.dtype("float32")


@pytest.fixture
def axis():
    return ir.Axis("i", 8)


@pytest.fixture
def scope():
    target, function = Target("avx2"), Function("f", "void", ABI)
    context = Context(
        Code(function, target),
        Schedule(target, {}, ()),
        Scratch(function),
        Needs(),
        {X: "%x", Y: "%y"},
        {},
        "null",
    )
    return Scope(context, ({},))


X, Y = ir.Buffer("x", F32, 64, "in"), ir.Buffer("y", F32, 64, "out")


def product(axis):
    """x[i] * x[0]: its second factor does not depend on the axis."""
    steady = ir.Load(X, ir.Index(0))
    return ir.Prim("mul", (ir.Load(X, ir.at(axis)), steady), F32), steady


def count(scope, word):
    return sum(word in line for line in scope.f.lines if isinstance(line, str))


def test_what_is_computed_outside_is_known_inside_and_not_the_other_way_round(scope, axis):
    whole, steady = product(axis)
    known = value(scope, steady)
    first = inner(scope, axes=with_axes(scope, {axis: "%i"}))
    assert value(first, steady) is known and count(scope, "load float") == 1
    inside = value(first, whole)
    assert value(first, whole) is inside
    second = inner(scope, axes=with_axes(scope, {axis: "%j"}))
    assert value(second, whole) is not inside and count(scope, "load float") == 3


def test_hoisting_computes_what_does_not_change_inside(scope, axis):
    whole, steady = product(axis)
    hoist(scope, [whole], frozenset([axis]))
    assert count(scope, "load float") == 1
    here = inner(scope, axes=with_axes(scope, {axis: "%i"}))
    value(here, whole)
    assert count(scope, "load float") == 2 and value(here, steady) is value(scope, steady)


def test_a_loop_leaves_the_scope_around_it_as_it_was(scope, axis):
    whole, _ = product(axis)
    seen = []

    def point(here, texts):
        seen.append(here)
        store_all(here, [ir.Store(Y, ir.at(axis), whole)])
        return texts

    loops(scope, [axis], [whole], frozenset([Y]), point)
    (here,) = seen
    assert axis in here.axes and axis not in scope.axes
    assert len(here.known) == len(scope.known) + 1


def test_each_copy_has_its_own_vector_and_shares_what_is_the_same(scope, axis):
    whole, steady = product(axis)

    def body(inside):
        found = [(value(here, whole), value(here, steady)) for here in each_copy(inside)]
        assert [here.width for here, _ in found] == [4, 4]
        assert found[0][0] is not found[1][0] and found[0][1] is found[1][1]

    lane_extent_loop(scope, axis, 4, 2, [whole], frozenset(), body)
    assert count(scope, "load <4 x float>") == 2 and count(scope, "load float") == 1


def test_a_cell_set_in_lanes_differs_between_them(scope, axis):
    cell = ir.Cell("c", F32)
    lanes = Lanes(axis, 4, (Copy(0, "%i"), Copy(1, "%i", 4)))
    here = inner(scope, axes=with_axes(scope, {axis: "%i"}), lanes=lanes)
    one, two = (scope.code.const("float", n, 4) for n in (1, 2))
    set_here = with_cells(here, {cell: {0: one, 1: two}})
    got = ir.Get(cell)
    assert [value(there, got) for there in each_copy(set_here)] == [one, two]
    assert set_here.varies(frozenset([cell])) and not here.varies(frozenset([cell]))
    alone = with_cells(scope, {cell: {0: one}})
    assert not alone.varying and value(alone, got) is one


def test_scratch_is_given_out_again_where_only_one_of_two_versions_runs(scope):
    scratch = scope.context.scratch
    scratch.take(100)
    with scratch.reused():
        scratch.take(64)
        scratch.take(1000)
    scratch.take(64)
    offsets = [int(line.rsplit(" ", 1)[1]) for line in scope.f.lines if "getelementptr" in line]
    assert offsets == [128, 192, 128] and scratch.most == 192 + 1024
