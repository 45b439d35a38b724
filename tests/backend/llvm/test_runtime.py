"""The native runtime on plans built by hand: steps, arguments and results, errors."""

from collections.abc import Callable

import numpy as np
import pytest
from plans_by_hand import BOOL, F32, F64, I32, Slots, add, arange, elementwise, less, prim, scale

from fxad.backend.llvm.executable import Executable
from fxad.core.errors import CheckError, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.plan import Branch, Copy, Host, Loop, Run, Slot, View, While

# ---------------------------------------------------------------- steps


def test_runs_copies_constants_and_scalars():
    s = Slots()
    x, c, t, y, z = s.argument(8), s.constant(8), s.temporary(8), s.result(8), s.result(8)
    steps = [Run(scale(), (x, t), (2.0, 0.5)), Run(add(), (t, c, y)), Copy(z, t)]
    executable = Executable(s.plan(steps, [y, z], (arange(8) * 10,)))
    for turn in range(3):
        x = arange(8) + turn
        y, z = executable.run([x])
        np.testing.assert_array_equal(z, x * 2 + 0.5)
        np.testing.assert_array_equal(y, z + arange(8) * 10)
        assert y.ctypes.data != z.ctypes.data


def test_loop_moves_views_and_swaps_carries():
    """scan: carry = 2 * carry + x[i]; ys[i] = carry, forward and in reverse, odd and even trips."""
    step = elementwise(
        lambda c, x, a: prim("add", prim("mul", c, a), x), [F32, F32], F32, 4, scalars=1
    )
    for trips in (0, 1, 4, 5):
        for reverse in (False, True):
            s = Slots()
            c0, xs = s.argument(4), s.argument(trips, 4)
            last, ys = s.result(4), s.result(trips, 4)
            following, x, y = s.temporary(4), s.view(4), s.view(4)
            body = (Run(step, (last, x, following), (2.0,)), Copy(y, following))
            views = (View(x, xs), View(y, ys))
            loop = Loop(trips, reverse, views, body, ((last, following),))
            executable = Executable(s.plan([Copy(last, c0), loop], [last, ys]))
            inputs = [arange(4), arange(trips, 4)]
            for _ in range(2):  # the second run starts from slots in their first places
                got = executable.run(inputs)
                carry, expected = inputs[0], np.zeros((trips, 4), np.float32)
                for i in range(trips)[:: -1 if reverse else 1]:
                    expected[i] = carry = carry * 2 + inputs[1][i]
                np.testing.assert_array_equal(got[0], carry)
                np.testing.assert_array_equal(got[1], expected)


def test_nested_loops_while_and_branch():
    """For each row: double it until its counter reaches n[row], then add or copy by kind[row]."""
    rows = 5
    s = Slots()
    xs, ns, kinds = s.argument(rows, 4), s.argument(rows, dtype=I32), s.argument(rows, dtype=I32)
    zero, one = s.constant(1, dtype=I32), s.constant(1, dtype=I32)
    ys = s.result(rows, 4)
    x, n, kind, y = s.view(4), s.view(1, dtype=I32), s.view(1, dtype=I32), s.view(4)
    i, i1, go = s.temporary(1, dtype=I32), s.temporary(1, dtype=I32), s.temporary(1, dtype=BOOL)
    a, b = s.temporary(4), s.temporary(4)
    count = elementwise(lambda p, q: prim("add", p, q), [I32, I32], I32, 1)
    doubling = While(
        cond=(Run(less(), (i, n, go)),),
        predicate=go,
        body=(Run(add(4), (a, a, b)), Run(count, (i, one, i1))),
        swaps=((a, b), (i, i1)),
    )
    choose = Branch(kind, ((Copy(y, a),), (Run(add(4), (a, x, y)),), (Copy(y, x),)))
    body = (Copy(a, x), Copy(i, zero), doubling, choose)
    views = (View(x, xs), View(n, ns), View(kind, kinds), View(y, ys))
    constants = (np.zeros(1, np.int32), np.ones(1, np.int32))
    executable = Executable(s.plan([Loop(rows, False, views, body, ())], [ys], constants))
    xs, ns = arange(rows, 4) + 1, np.array([0, 1, 2, 3, 10], np.int32)
    kinds = np.array([-7, 1, 2, 99, 1], np.int32)  # out of range: clamped
    (got,) = executable.run([xs, ns, kinds])
    powers = xs * 2.0 ** ns[:, None]
    expected = np.where([[0], [1], [0], [0], [1]], powers + xs, powers)
    expected[[2, 3]] = xs[[2, 3]]
    np.testing.assert_array_equal(got, expected)


def test_while_whose_result_ends_in_either_buffer():
    for trips in (0, 1, 2, 7):
        s = Slots()
        n, one = s.argument(1, dtype=I32), s.constant(1, dtype=I32)
        i, j, go = s.result(1, dtype=I32), s.result(1, dtype=I32), s.temporary(1, dtype=BOOL)
        count = elementwise(lambda p, q: prim("add", p, q), [I32, I32], I32, 1)
        start = elementwise(lambda p: prim("sub", p, p), [I32], I32, 1)
        loop = While((Run(less(), (i, n, go)),), go, (Run(count, (i, one, j)),), ((i, j),))
        steps = [Run(start, (n, i)), Run(start, (n, j)), loop]
        executable = Executable(s.plan(steps, [i, j], (np.ones(1, np.int32),)))
        i, j = executable.run([np.array([trips], np.int32)])
        assert i[0] == trips


def test_branch_on_bool():
    s = Slots()
    flag, x, y = s.argument(1, dtype=BOOL), s.argument(4), s.result(4)
    double = Run(add(4), (x, x, y))
    executable = Executable(s.plan([Branch(flag, ((Copy(y, x),), (double,)))], [y]))
    for value in (False, True):
        (got,) = executable.run([np.array([value]), arange(4)])
        np.testing.assert_array_equal(got, arange(4) * (1 + value))


def test_host_steps_see_copies_and_may_fail():
    s = Slots()
    x, t, u, y = s.argument(4), s.temporary(4), s.temporary(4), s.result(4)
    kept = []

    def reverse(value: np.ndarray) -> list:
        kept.append(value)
        if value[0] > 100:
            raise KeyError("too large")
        return [value[::-1]] if value[0] < 50 else [value.astype(np.float64)]

    steps = [Run(add(4), (x, x, t)), Host(reverse, (t,), (u,), "flip"), Run(add(4), (u, t, y))]
    executable = Executable(s.plan(steps, [y]))
    (got,) = executable.run([arange(4)])
    np.testing.assert_array_equal(got, [6, 6, 6, 6])
    with pytest.raises(KeyError, match="too large"):
        executable.run([arange(4) + 60])
    with pytest.raises(TypeMismatch, match=r"flip: output 0 must be f32\[4\], got float64"):
        executable.run([arange(4) + 30])
    np.testing.assert_array_equal(executable.run([arange(4)])[0], [6, 6, 6, 6])
    np.testing.assert_array_equal(kept[0], [0, 2, 4, 6])  # not overwritten by later runs
    assert not kept[0].flags.writeable


# ---------------------------------------------------------------- arguments and results


def test_arguments_are_copied_only_where_they_must_be():
    s = Slots()
    x, y = s.argument(3, 4, dtype=F64), s.result(3, 4, dtype=F64)
    executable = Executable(s.plan([Run(scale(12, F64), (x, y), (1.0, 1.0))], [y]))
    base = arange(3, 4, dtype=F64)
    odd = np.empty(base.nbytes + 1, np.uint8)[1:].view(F64).reshape(3, 4)
    odd[...] = base
    frozen = base.copy()
    frozen.flags.writeable = False
    given = [base, np.asfortranarray(base), base[::-1][::-1], odd, base.astype(">f8"), frozen]
    given += [base.repeat(2, 1)[:, ::2], base.view(np.memmap), base[:, ::-1][:, ::-1]]
    for array in given:
        before = array.copy()
        np.testing.assert_array_equal(executable.run([array])[0], base + 1)
        np.testing.assert_array_equal(array, before)
    with pytest.raises(ShapeError, match=r"argument 0 has shape \[4, 3\].*f64\[3,4\]"):
        executable.run([base.T])
    with pytest.raises(TypeMismatch, match=r"dtype float32.*f64\[3,4\]"):
        executable.run([base.astype(np.float32)])
    with pytest.raises(TypeMismatch, match="expected 1 arguments, got 0"):
        executable.run([])


def test_zero_size_and_scalars():
    s = Slots()
    x, y, a, b = s.argument(0, 3), s.result(0, 3), s.argument(), s.result()
    executable = Executable(s.plan([Copy(y, x), Copy(b, a)], [y, b]))
    y, b = executable.run([np.zeros((0, 3), np.float32), np.float32(3) * np.ones((), np.float32)])
    assert y.shape == (0, 3)
    assert b.shape == ()
    assert b == 3


def test_passed_through_results_are_copies():
    s = Slots()
    x, c, y = s.argument(4), s.constant(4), s.result(4)
    constant = arange(4) + 7
    executable = Executable(s.plan([Copy(y, x)], [x, y, y, c], (constant,)))
    x = arange(4)
    results = executable.run([x])
    for result, expected in zip(results, (x, x, x, constant), strict=True):
        np.testing.assert_array_equal(result, expected)
        result[...] = -1
    np.testing.assert_array_equal(x, arange(4))
    np.testing.assert_array_equal(executable.run([x])[3], arange(4) + 7)


def test_donated_storage_is_reused():
    s = Slots()
    p, g, q, r = s.argument(2, 4), s.argument(8), s.result(8), s.result(8)
    step = Run(add(), (g, g, q))
    executable = Executable(s.plan([Copy(r, g), step], [q, r], _0=0))
    p, g = arange(2, 4), arange(8)
    q, r = executable.run([p, g])
    assert np.shares_memory(q, p)
    assert not np.shares_memory(r, g)
    np.testing.assert_array_equal(q, arange(8) * 2)
    strided = arange(4, 4)[::2]
    q, _ = executable.run([strided, g])
    np.testing.assert_array_equal(q, arange(8) * 2)
    np.testing.assert_array_equal(strided, arange(4, 4)[::2])


def test_broken_plans_are_refused():
    def refuse(message: str, build: Callable[[Slots], list]) -> None:
        s = Slots()
        with pytest.raises(CheckError, match=message):
            Executable(s.plan(build(s), []))

    refuse("takes 3 buffers", lambda s: [Run(add(), (s.argument(8), s.result(8)))])
    refuse("sizes differ", lambda s: [Copy(s.result(8), s.argument(7))])
    refuse("8 elements of float32, slot", lambda s: [Run(add(), (s.argument(7),) * 3)])
    stray = Slot(9, ArrayType(F32, (8,)), "arena")
    refuse("slots does not list", lambda s: [Copy(s.result(8), stray)])
    refuse("do not fit", lambda s: [Loop(3, False, (View(s.view(4), s.argument(8)),), (), ())])
    refuse("cannot swap", lambda s: [Loop(1, False, (), (), ((s.argument(4), s.argument(5)),))])
    refuse("i32 or bool index", lambda s: [Branch(s.argument(1), ((),))])
    refuse("bool predicate", lambda s: [While((), s.argument(1), (), ())])
