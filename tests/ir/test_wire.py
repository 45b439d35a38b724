"""Plans as text and back."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.ir import wire
from fxad.ir.plan import Host, Plan


def test_functions_cannot_be_written():
    plan = Plan((), (Host(print, (), ()),), (), (), 0, {})
    with pytest.raises(wire.NotPlain, match="builtin_function"):
        wire.dumps(plan, {})


def test_numbers_come_back_bit_for_bit():
    values = (0.1, -0.0, float("inf"), 1e-320, 2 + 0.1j, 3, True, None, "é\n", (1, (2,)))
    arrays = (np.arange(6.0).reshape(2, 3), np.float16([0.1]), np.array(True))
    text, _ = wire.dumps(Plan((), (), (values, *arrays), (), 0, {1: 2}), {})
    plan = wire.loads(text).plan
    assert repr(plan.constants[0]) == repr(values)
    for got, want in zip(plan.constants[1:], arrays, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    assert plan.donated == {1: 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"contents": [], "plan": []}',
        '{"contents": [], "plan": [["eval", "1"]]}',
        '{"contents": [], "plan": [["Plan", 1]]}',
        '{"contents": [], "plan": [["Kernel", 0]]}',
        '{"contents": [], "plan": [["tuple", [4]]]}',
        '{"contents": [], "plan": [["tuple"]]}',
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        wire.loads(text)


def test_equal_kernels_are_written_once_but_keep_their_lines():
    def function(x):
        for _ in range(2):
            x = jnp.sort(jnp.sin(x))
        return jnp.sort(jnp.sin(x))

    executable = fxad.jit(function).lower(np.arange(5.0, dtype=np.float32)).executable
    text, numbers = wire.dumps(executable.plan, executable.codes)
    contents = wire.loads(text)
    facts = {}
    for kernel, number in contents.kernels:
        facts.setdefault((str(kernel), kernel.name, kernel.where), set()).add(number)
    assert {(str(k), k.name, k.where) for k in numbers} == set(facts)
    assert [len(found) for found in facts.values()] == [1] * len(facts)
    assert len({where for _, _, where in facts}) == len(facts) < len(numbers)
    assert len(contents.kernels) == len(numbers)


def test_what_is_deeper_than_pythons_stack_is_written():
    depth = 10 * sys.getrecursionlimit()
    deep: tuple = (1.5, 2)
    for _ in range(depth):
        deep = (deep,)
    writer = wire._Writer()
    writer.write(deep)
    again = wire._read(writer.nodes, wire._MAKERS)
    for _ in range(depth):
        (again,) = again
    assert again == (1.5, 2)
