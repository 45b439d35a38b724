"""The native runtime under threads: the pool, fork, Ctrl-C, the floating-point mode."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from plans_by_hand import F32, Slots, add, elementwise, prim

from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native import pool
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core import cores
from fxad.ir import kernel as k
from fxad.ir.plan import Copy, Run


@pytest.fixture(autouse=True)
def _threads():
    yield
    cores._threads = None


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
    cores.set_num_threads(1)
    reference = executable.run(inputs)
    np.testing.assert_allclose(reference[0], expected.ravel(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reference[1], expected.sum(1), rtol=1e-4)
    for threads in (2, 3, 7, 2, 1, 3):
        cores.set_num_threads(threads)
        assert cores.get_num_threads() == threads
        for _ in range(5):
            for result, want in zip(executable.run(inputs), reference, strict=True):
                np.testing.assert_array_equal(result, want)


def test_python_threads_share_an_executable():
    executable, inputs, _ = _big()
    cores.set_num_threads(3)
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
    cores.set_num_threads(2)  # the pool is replaced while it is in use
    for thread in threads:
        thread.join()
    assert not failures


def test_thread_count_is_checked():
    for bad, error in ((0, ValueError), (5000, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="set_num_threads expects"):
            cores.set_num_threads(bad)
    cores._threads = None
    assert 1 <= cores.get_num_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
# JAX's own hook, where another test (or hypothesis) has imported JAX into this process:
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called\..*JAX:RuntimeWarning")
def test_a_forked_child_has_its_own_pool():
    executable, inputs, _ = _big()
    cores.set_num_threads(2)
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
    from plans_by_hand import *
    from fxad.backend.llvm.executable import Executable
    from fxad.ir.plan import Copy, Run, While
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
        cores.set_num_threads(threads)
        reference = executable.run(inputs)
        with monkeypatch.context() as patch:
            patch.setattr("fxad.backend.llvm.executable.TICK_NS", 0)
            ticks = []
            serve = Executable._serve
            patch.setattr(Executable, "_serve", lambda *given: (ticks.append(1), serve(*given))[1])
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
