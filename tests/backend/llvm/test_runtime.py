"""The native runtime on plans built by hand: steps, memory, threads, fork, signals, errors."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from fxad.backend.llvm import cache
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native import engine, memory, pool
from fxad.backend.llvm.native import library as native
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.config import config
from fxad.core.errors import CheckError, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir import kernel as k
from fxad.ir.kernel_text import kernel_key, kernel_text
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, View, While

F32, F64, I32, BOOL = map(np.dtype, ("float32", "float64", "int32", "bool"))


def elementwise(
    build: Callable[..., k.Expr], inputs: list[np.dtype], output: np.dtype, n: int, scalars: int = 0
) -> k.Kernel:
    """out[i] = build(x[i], ..., scalars...)."""
    axis = k.Axis("i", n)
    sources = [k.Buffer(f"x{number}", dtype, n, "in") for number, dtype in enumerate(inputs)]
    target = k.Buffer("y", output, n, "out")
    given = tuple(k.Scalar(f"a{number}", output) for number in range(scalars))
    loads = [k.Load(source, k.at(axis)) for source in sources]
    store = k.Store(target, k.at(axis), build(*loads, *map(k.Param, given)))
    return k.Kernel("test", (*sources, target), given, (axis,), (k.Map((), (store,)),))


def prim(name: str, *args: k.Expr) -> k.Expr:
    return k.Prim(name, args, BOOL if name == "lt" else args[-1].dtype)


def add(n: int = 8, dtype: np.dtype = F32) -> k.Kernel:
    return elementwise(lambda a, b: prim("add", a, b), [dtype, dtype], dtype, n)


def scale(n: int = 8, dtype: np.dtype = F32) -> k.Kernel:
    """y = x * a0 + a1."""
    body = lambda x, a, b: prim("add", prim("mul", x, a), b)  # noqa: E731
    return elementwise(body, [dtype], dtype, n, scalars=2)


def less(dtype: np.dtype = I32) -> k.Kernel:
    return elementwise(lambda a, b: prim("lt", a, b), [dtype, dtype], BOOL, 1)


class Slots:
    """Numbers slots as a planner would."""

    def __init__(self) -> None:
        self.all: list[Slot] = []
        self.arena = 0

    def _slot(self, place: str, dtype: np.dtype, shape: tuple[int, ...], offset: int = 0) -> Slot:
        number = sum(1 for slot in self.all if slot.place == place)
        slot = Slot(len(self.all), ArrayType(dtype, shape), place, number, offset)
        self.all.append(slot)
        return slot

    def argument(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("argument", dtype, shape)

    def result(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("result", dtype, shape)

    def constant(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("constant", dtype, shape)

    def view(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("view", dtype, shape)

    def temporary(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        slot = self._slot("arena", dtype, shape, self.arena)
        self.arena += -(-slot.type.nbytes // 64) * 64
        return slot

    def plan(self, steps: list, results: list[Slot], constants: tuple = (), **donated: int) -> Plan:
        given = {int(result[1:]): argument for result, argument in donated.items()}
        return Plan(tuple(self.all), tuple(steps), constants, tuple(results), self.arena, given)


@pytest.fixture(autouse=True)
def _threads():
    yield
    pool._threads = None


def arange(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


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


def test_large_results_are_aligned_and_recycled():
    n = 1 << 16
    s = Slots()
    x, y = s.argument(n), s.result(n)
    executable = Executable(s.plan([Run(add(n), (x, x, y))], [y]))
    x = arange(n)
    y = executable.run([x])[0]
    first, part = y.ctypes.data, y[5:9].T
    assert first % 64 == 0
    del y
    z = executable.run([x])[0]
    assert z.ctypes.data != first  # a view is still alive
    np.testing.assert_array_equal(part, arange(n)[5:9] * 2)
    del part
    assert executable.run([x])[0].ctypes.data == first


def test_idle_memory_is_bounded():
    blocks = memory.BlockPool(bound=1 << 20)
    taken = [blocks.take(200_000) for _ in range(20)]
    assert all(block.size >= 200_000 and block.address % 64 == 0 for block in taken)
    for block in taken:
        blocks.give(block)
    assert 0 < blocks.idle_bytes <= 1 << 20
    assert blocks.take(150_000) is taken[-6] or blocks.idle_bytes < 1 << 20
    blocks.trim()
    assert blocks.idle_bytes == 0
    with pytest.raises(MemoryError, match="cannot get"):
        blocks.take(1 << 60)


def test_what_was_handed_back_last_is_taken_first_and_counted():
    blocks = memory.BlockPool(bound=1 << 30)
    first = blocks.take(100_000)
    one = blocks.in_use
    blocks.give(first)
    assert blocks.idle_bytes == first.size
    assert blocks.take(100_000) is first
    assert blocks.in_use == blocks.high_water == one
    blocks.give(first)
    other = blocks.take(300_000)  # counts what was handed back
    assert blocks.in_use == blocks.high_water == other.taken
    several = [blocks.take(100_000) for _ in range(100)]
    for block in several:
        blocks.give(block)
    assert {id(blocks.take(100_000)) for _ in several} == {id(block) for block in several}


def test_sizes_of_freed_blocks_are_forgotten():
    """A search for the next larger size would pass all of them."""
    blocks = memory.BlockPool(bound=1 << 20)
    for pages in range(1, 200):
        blocks.give(blocks.take(4096 * pages))
    blocks.trim()
    assert blocks._sizes == [] and blocks._idle == {} and blocks.idle_bytes == 0
    kept = blocks.take(8192)
    blocks.give(kept)
    assert blocks._sizes == [8192] and blocks.take(5000) is kept


def test_memory_nobody_wants_for_a_while_is_returned(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    blocks = memory.BlockPool(bound=1 << 30)
    old, recent = blocks.take(1 << 20), blocks.take(3 << 20)
    blocks.give(old)
    assert blocks.idle_bytes == old.size
    now[0] += 10
    blocks.give(recent)
    assert blocks.take(3 << 20) is recent  # a hit frees nothing
    assert blocks.idle_bytes == old.size
    blocks.give(recent)
    blocks.take(50 << 20)  # fresh memory: what is stale makes room
    assert blocks.idle_bytes == recent.size


# ---------------------------------------------------------------- threads


def _big() -> tuple[Executable, list[np.ndarray], np.ndarray]:
    """A parallel map, a parallel copy and a row sum."""
    rows, columns = 600, 700
    n = rows * columns
    i, j = k.Axis("i", rows), k.Axis("j", columns)
    x, y = k.Buffer("x", F32, n, "in"), k.Buffer("y", F32, rows, "out")
    cell = k.Cell("c", F32)
    total = k.Reduce((j,), "add", (k.Load(x, k.at(i) * columns + k.at(j)),), (cell,), "lanes")
    out = k.Map((), (k.Store(y, k.at(i), k.Get(cell)),))
    sums = k.Kernel("sums", (x, y), (), (i,), (total, out))
    s = Slots()
    a, t, u, r, y = s.argument(n), s.temporary(n), s.result(n), s.result(rows), s.result(n)
    logs = elementwise(lambda v: prim("log", prim("add", v, v)), [F32], F32, n)
    steps = [Run(logs, (a, t)), Copy(u, t), Run(sums, (t, r)), Run(add(n), (t, u, y))]
    data = np.random.default_rng(0).random(n, np.float32) + 0.5
    expected = np.log(2 * data.astype(np.float64)).reshape(rows, columns)
    return Executable(s.plan(steps, [u, r, y])), [data], expected


def test_bits_do_not_depend_on_threads():
    executable, inputs, expected = _big()
    pool.set_num_threads(1)
    reference = executable.run(inputs)
    np.testing.assert_allclose(reference[0], expected.ravel(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reference[1], expected.sum(1), rtol=1e-4)
    for threads in (2, 3, 7, 2, 1, 3):
        pool.set_num_threads(threads)
        assert pool.get_num_threads() == threads
        for _ in range(5):
            for result, want in zip(executable.run(inputs), reference, strict=True):
                np.testing.assert_array_equal(result, want)


def test_python_threads_share_an_executable():
    executable, inputs, _ = _big()
    pool.set_num_threads(3)
    reference = executable.run(inputs)
    failures = []

    def work() -> None:
        for _ in range(15):
            results = executable.run(inputs)
            if not all(map(np.array_equal, results, reference)):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    pool.set_num_threads(2)  # the pool is replaced while it is in use
    for thread in threads:
        thread.join()
    assert not failures


def test_thread_count_is_checked():
    for bad, error in ((0, ValueError), (5000, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="set_num_threads expects"):
            pool.set_num_threads(bad)
    pool._threads = None
    assert 1 <= pool.get_num_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
# JAX's own hook, where another test (or hypothesis) has imported JAX into this process:
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called\..*JAX:RuntimeWarning")
def test_a_forked_child_has_its_own_pool():
    executable, inputs, _ = _big()
    pool.set_num_threads(2)
    reference = executable.run(inputs)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            same = map(np.array_equal, executable.run(inputs), reference)
            code = 0 if all(same) and pool.current_pool().threads == 2 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert all(map(np.array_equal, executable.run(inputs), reference))


# ---------------------------------------------------------------- signals and floating point


_ENDLESS = """
    import os, signal, sys, threading, time
    sys.path.insert(0, sys.argv[1])
    from test_runtime import *
    wide = sys.argv[2] == "wide"
    n = (1 << 20) if wide else 4
    s = Slots()
    x, t = s.argument(n), s.temporary(n)
    zero, one = s.argument(1, dtype=I32), s.argument(1, dtype=I32)
    go, y = s.temporary(1, dtype=BOOL), s.result(1, dtype=BOOL)
    test = Run(less(), (zero, one, go))
    loop = While((test,), go, (Run(add(n), (x, x, t)),), ())
    executable = Executable(s.plan([loop, Copy(y, go)], [y]))
    if sys.argv[3] == "custom":
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1) or (len(seen) > 2 and sys.exit(7)))
        kills = 3
    else:
        kills = 1
    def kill():
        for _ in range(kills):
            time.sleep(0.5)
            global sent
            sent = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=kill).start()
    arguments = [np.ones(n, np.float32), np.zeros(1, np.int32), np.ones(1, np.int32)]
    try:
        executable.run(arguments)
    except KeyboardInterrupt:
        assert time.monotonic() - sent < 1, time.monotonic() - sent
        sys.exit(5)
"""


@pytest.mark.parametrize(
    ("size", "handler", "code"),
    [("wide", "default", 5), ("small", "default", 5), ("small", "custom", 7)],
)
def test_ctrl_c_stops_an_endless_loop(size: str, handler: str, code: int):
    """A handler that does not raise lets the program go on; the default one interrupts it."""
    arguments = [os.path.dirname(__file__), size, handler]
    command = [sys.executable, "-c", textwrap.dedent(_ENDLESS), *arguments]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == code, done.stderr


def test_work_goes_on_after_each_tick(monkeypatch: pytest.MonkeyPatch):
    """With a tick at every look at the clock, kernels are cut and resumed; nothing is lost."""
    executable, inputs, _ = _big()
    for threads in (1, 2):
        pool.set_num_threads(threads)
        reference = executable.run(inputs)
        with monkeypatch.context() as patch:
            patch.setattr("fxad.backend.llvm.executable.TICK_NS", 0)
            ticks = []
            attend = Executable._attend
            patch.setattr(
                Executable, "_attend", lambda *given: (ticks.append(1), attend(*given))[1]
            )
            results = executable.run(inputs)
        # Only the calling thread looks; on a busy machine the other one may do nearly all.
        assert len(ticks) > (3 if threads == 1 else 0)
        for result, want in zip(results, reference, strict=True):
            np.testing.assert_array_equal(result, want)


def test_floating_point_mode_is_ours_inside_and_restored_outside():
    """Flush-to-zero set by another library changes neither our results nor is it lost."""
    s = Slots()
    x, y = s.argument(8), s.result(8)
    executable = Executable(s.plan([Run(add(), (x, x, y))], [y]))
    tiny = np.full(8, 1e-40, np.float32)
    text = "define void @f(ptr %p) #0 {\n call void @llvm.x86.sse.{}mxcsr(ptr %p)\n ret void\n}}"
    if host_target().isa not in ("avx512", "avx2"):
        pytest.skip("reads the x86 control register")
    control = {}
    modules = []
    for name in ("ld", "st"):
        declare = f"declare void @llvm.x86.sse.{name}mxcsr(ptr)"
        body = text.replace("{}", name).replace("}}", "}")
        modules.append(compile_module([body], [declare], host_target()))
        control[name] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(modules[-1].address("f"))
    word = ctypes.c_uint32(0x1F80 | 0x8040)
    control["ld"](ctypes.addressof(word))
    try:
        (got,) = executable.run([tiny])
        after = ctypes.c_uint32(0)
        control["st"](ctypes.addressof(after))
    finally:
        word.value = 0x1F80
        control["ld"](ctypes.addressof(word))
    assert after.value & 0x8040 == 0x8040
    np.testing.assert_array_equal(got, tiny + tiny)
    assert got[0] > 0


# ---------------------------------------------------------------- compiling


def test_equal_kernels_are_compiled_once():
    before = cache.kernels.compiled
    s = Slots()
    x, t, y = s.argument(37), s.temporary(37), s.result(37)
    steps = [Run(scale(37), (x, t), (2.0, 1.0)), Run(scale(37), (t, y), (3.0, -1.0))]
    executable = Executable(s.plan(steps, [y]))
    np.testing.assert_array_equal(executable.run([arange(37)])[0], (arange(37) * 2 + 1) * 3 - 1)
    assert cache.kernels.compiled == before + 1
    stats = executable.stats()
    assert (stats["runs"], stats["kernels"]) == (2, 1)
    assert executable.llvm.count("define ") == 1
    assert ".globl" in executable.asm or ".type" in executable.asm
    small = cache.KernelCache(bound=2)
    codes = small.compile([add(n) for n in (3, 5, 7)], host_target())
    assert len(small) == 2
    assert len({code.address for code in codes}) == 3


def test_kernel_text_and_key():
    assert kernel_text(scale(8)) == (
        "kernel(in0: f32[8], out0: f32[8]; s0: f32, s1: f32) grid(i: 8)\n"
        "  map()\n"
        "    out0[i] = add(mul(in0[i], s0), s1)\n"
    )
    assert kernel_key(scale(8)) == kernel_key(scale(8))
    kernels = [scale(8), scale(9), scale(8, F64), add(8), less()]
    kernels += [
        elementwise(lambda x, v=v: prim("mul", x, k.Const(v, F32)), [F32], F32, 8)
        for v in (0.0, -0.0, 1.0, float("nan"))
    ]
    assert len({kernel_key(kernel) for kernel in kernels}) == len(kernels)
    deep = elementwise(lambda x: _chain(x, 3000), [F32], F32, 8)
    assert kernel_text(deep).count("mul(") == 3000


def _chain(x: k.Expr, length: int) -> k.Expr:
    for _ in range(length):
        x = prim("mul", x, k.Const(1.5, F32))
    return x


def test_broken_code_is_refused():
    target = host_target()
    wrong = "define void @f() #0 {\n  %x = add i32 1, %nothing\n  ret void\n}"
    with pytest.raises(CheckError, match=r">\s+\d+   %x = add i32 1, %nothing"):
        compile_module([wrong], [], target)
    unknown = "define void @f() #0 {\n  call void @fx_no_such_function()\n  ret void\n}"
    with pytest.raises(CheckError, match="calls fx_no_such_function"):
        compile_module([unknown], ["declare void @fx_no_such_function()"], target)
    with pytest.raises(CheckError, match="defines no function"):
        compile_module([], [], target).address("f")
    with pytest.raises(CheckError, match="this machine runs"):
        host_target("avx1024")
    with config.override(isa="generic"):
        lower = Executable(_sum_plan())
    assert {code.module.target.isa for code in lower.codes.values()} == {"generic"}
    assert lower.run([arange(8)])[0][3] == 6


@pytest.mark.parametrize("locked", [False, True])
def test_modules_compiled_side_by_side_are_those_compiled_alone(monkeypatch, locked):
    if locked:  # an llvmlite without the function that needs no lock
        monkeypatch.setattr(engine, "_emit_unlocked", lambda: None)
    target = host_target()
    emitted = [emit(_scaled(n), f"k{n}", target) for n in range(1, 9)]
    texts = [engine.compose([one.text], one.declarations, target) for one in emitted]
    modules = engine.compile_modules(iter(texts), target)
    alone = [compile_module([one.text], one.declarations, target) for one in emitted]
    assert [m.image for m in modules] == [m.image for m in alone]
    assert all(m.address(one.name) for m, one in zip(modules, emitted, strict=True))
    wrong = "define void @f() #0 {\n  %x = add i32 1, %nothing\n  ret void\n}"
    with pytest.raises(CheckError, match=r">\s+\d+   %x = add i32 1, %nothing"):
        engine.compile_modules([*texts, wrong, *texts], target)
    assert engine.compile_modules([], target) == []


def test_modules_are_compiled_where_no_thread_can_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(engine._Compiling, "start", refuse)
    one = emit(_scaled(3), "k", host_target())
    text = engine.compose([one.text], one.declarations, host_target())
    assert engine.compile_modules([text], host_target())[0].address("k")


def _scaled(factor: int) -> k.Kernel:
    return elementwise(lambda x: prim("mul", x, k.Const(float(factor), F32)), [F32], F32, 64)


def _sum_plan() -> Plan:
    s = Slots()
    x, y = s.argument(8), s.result(8)
    return s.plan([Run(add(), (x, x, y))], [y])


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


def test_runtime_is_compiled_once():
    assert native.runtime() is native.runtime()
    start = time.perf_counter()
    Executable(_sum_plan())
    assert time.perf_counter() - start < 2  # a cached kernel needs no compiler
