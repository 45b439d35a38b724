"""Interleaved vectors with paths that are seldom taken (fxad/backend/llvm/base/interleave.py)."""

import itertools

import numpy as np
import pytest
from native_kernels import Case, call, compile_cases

from fxad.backend.llvm.base.interleave import Choice, ColdPath, interleaved
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.native.engine import host_target
from fxad.ir.kernel import Axis, Buffer, Kernel, Load, Map, Prim, Store, at


def kernel_of(n, dtype):
    """sin(tan(x)) + expm1(x): ways of their own for large numbers, one behind another."""
    i = Axis("i", n)
    source, out = Buffer("x", dtype, n, "in"), Buffer("out", dtype, n, "out")
    x = Load(source, at(i))
    inner = Prim("sin", (Prim("tan", (x,), dtype),), dtype)
    value = Prim("add", (inner, Prim("expm1", (x,), dtype)), dtype)
    return Kernel("mixed", (source, out), (), (i,), (Map((), (Store(out, at(i), value),)),))


def results(x, n):
    """Of `n` elements at a time."""
    parts = x.reshape(-1, n)
    cases = [Case(kernel_of(n, x.dtype), [part.copy(), np.zeros_like(part)]) for part in parts]
    (emitted,), module = compile_cases(cases[:1], host_target())
    for case in cases:
        call(module, emitted, case.kernel, case.arrays, [])
    return np.concatenate([case.arrays[1] for case in cases])


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")], ids=str)
def test_vectors_with_rare_lanes_next_to_others(dtype):
    lanes, vectors = host_target().lanes(dtype), 4
    x = np.random.default_rng(3).uniform(-5, 5, (4**vectors, vectors, lanes)).astype(dtype)
    cases = itertools.product([0.5, 3e8, -1e30, np.inf], repeat=vectors)
    for group, values in zip(x, cases, strict=True):
        for vector, value in zip(group, values, strict=True):
            vector[lanes // 3] = value  # one lane of each vector, usual or not
    x = x.ravel()
    together, alone = results(x, len(x)), results(x, lanes)
    np.testing.assert_array_equal(together, alone)
    assert np.isnan(together).any() and np.isfinite(together).any()


def pieces_of(function):
    """Two that square a number, halve it where it is odd, and subtract one."""
    starts = []
    for name in "%a", "%b":
        starts.append(len(function.lines))
        square = function.op(f"mul i64 {name}, {name}")
        odd = function.op(f"trunc i64 {square} to i1")
        half = function.cold_path(
            ("i1", odd), ("i64", square), lambda s=square: function.op(f"lshr i64 {s}, 1")
        )
        function.op(f"sub i64 {half}, 1")
    return starts


def test_cold_paths_share_a_branch():
    function = Function("f", "void", [("i64", "a"), ("i64", "b")])
    function.interleave(pieces_of(function))
    function.ret()
    outer = [line for line in function.lines if isinstance(line, ColdPath)]
    assert len(outer) == 1 and len(outer[0].choices) == 2
    text = str(function)
    assert text.count("br i1") == 3  # past both, and past each
    assert function.block == outer[0].after
    first = text.index(outer[0].inside)
    assert text.count("mul", 0, first) == 2 and text.count("lshr", 0, first) == 0


def test_pieces_wait_for_what_they_read():
    cold_path = ColdPath(
        "i1", "%t", "%s", "in", "out", ("  %i = f()",), (Choice("%c", "i64", "%a", "%i"),)
    )
    one = ["  %a = f()", "  %t = g(%a)", cold_path, "  %d = g(%c)"]
    two = ["  %e = g(%d)", "  %k = g(%e)"]  # reads what comes last in the other
    order = interleaved([one, two], lambda prefix: f"%{prefix}")
    assert order == [*one, *two]


def test_a_cold_path_waits_for_what_another_sets():
    one, two = [
        ColdPath("i1", test, f"{name}.s", "in", "out", (), (Choice(name, "i64", "%a", "%b"),))
        for name, test in (("%c", "%t"), ("%d", "%c"))
    ]
    assert interleaved([[one], [two]], lambda prefix: f"%{prefix}") == [one, two]


def test_pieces_with_loops_stay_as_they_are():
    function = Function("f", "void", [("i64", "a"), ("i64", "b")])
    starts = []
    for name in "%a", "%b":
        starts.append(len(function.lines))
        function.loop(0, name, 1, lambda index, _: function.op(f"add i64 {index}, 1") and None)
    before = str(function)
    function.interleave(starts)
    assert str(function) == before
