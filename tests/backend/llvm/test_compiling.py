"""Compiling kernels: once each, side by side, refused where broken."""

import ctypes
import gc
import signal
import time
import weakref

import numpy as np
import pytest
from plans_by_hand import F32, F64, Slots, add, arange, elementwise, less, prim, scale

import fxad
from fxad.backend.llvm import cache
from fxad.backend.llvm.common import taken_apart
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native import engine
from fxad.backend.llvm.native import library as native
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.config import config
from fxad.core.errors import CheckError
from fxad.core.record import replace
from fxad.ir import kernel as k
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import kernel_text
from fxad.ir.plan import Plan, Run


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
    assert not any(code.emitted.text or code.module.text for code in executable.codes.values())
    small = cache.KernelCache(bound=2)
    codes = small.compile([add(n) for n in (3, 5, 7)], host_target())
    assert len(small) == 2
    assert len({code.address for code in codes}) == 3


def product(m: int) -> k.Kernel:
    """The kernel of a product whose result has m rows."""
    lowered = fxad.jit(lambda a, b: a @ b).lower(np.ones((m, 96), "f"), np.ones((96, 480), "f"))
    steps = [step for step in lowered.plan.steps if isinstance(step, Run)]
    return steps[-1].kernel


def check_product(code: cache.Code, m: int) -> None:
    """A product's code gives NumPy's result for small integers."""
    a, b = (np.arange(n * 96, dtype=np.float32).reshape(-1, 96) % 7 for n in (m, 480))
    out = np.zeros((m, 480), np.float32)
    arrays = [a, np.ascontiguousarray(b.T), out]
    pointers = (ctypes.c_void_p * 3)(*[x.ctypes.data for x in arrays])
    scratch = np.zeros(code.scratch_bytes + 64, np.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    ctypes.CFUNCTYPE(None, *kinds)(code.address)(ctypes.addressof(pointers), 0, code.units, aligned)
    np.testing.assert_array_equal(out, a @ arrays[1])


def test_functions_that_kernels_have_in_common_are_compiled_once():
    target, small = host_target(), cache.KernelCache()
    (first,) = small.compile([product(240)], target)
    (second,) = small.compile([product(480)], target)
    called = {*first.module.calls.values()} & {*second.module.calls.values()}
    assert called
    (alone,) = cache.KernelCache().compile([product(480)], target)
    assert alone.module.calls.keys() == second.module.calls.keys()
    assert {*alone.module.calls.values()}.isdisjoint(first.module.calls.values())
    assert second.llvm == alone.llvm  # whole, whoever compiled its parts
    kept = [weakref.ref(module) for module in (first.module, *called)]
    del called
    del first
    small.clear()
    gc.collect()
    gone, *stay = [module() is None for module in kept]
    assert gone
    assert not any(stay)  # the second calls them
    for code in (second, alone, second):  # one name at two addresses
        check_product(code, 480)
    del second, code
    gc.collect()
    assert not any(module() for module in kept)
    (again,) = small.compile([product(240)], target)
    check_product(again, 240)


def test_modules_of_one_compilation_call_each_others_functions(monkeypatch):
    monkeypatch.setattr(cache, "_MODULE", 1)
    sizes, target = (240, 480, 720), host_target()
    codes = cache.KernelCache().compile([product(m) for m in sizes], target)
    assert len({code.module for code in codes}) == 3
    assert {*codes[1].module.calls.values()} & {*codes[0].module.calls.values()}
    for m, code in zip(sizes, codes, strict=True):
        check_product(code, m)


def test_a_compilation_that_failed_leaves_no_common_functions(monkeypatch):
    monkeypatch.setattr(cache, "_MODULE", 1)
    made = []

    def broken(*given):
        made.append(emit(*given))
        text = made[-1].text
        return replace(made[-1], text=text.replace("ret void", "ret i8 %no") if made[1:] else text)

    kernels, target = cache.KernelCache(), host_target()
    with monkeypatch.context() as patch:
        patch.setattr("fxad.backend.llvm.emit.emit", broken)
        with pytest.raises(CheckError, match="rejects"):
            kernels.compile([product(240), product(480)], target)
    assert not kernels._common
    check_product(*kernels.compile([product(480)], target), 480)


def test_what_is_common_differs_in_its_name_alone():
    head = "define internal void @{0}(ptr %a, i64 %n) #{1} {{\nentry:\n  {2}\n  ret void\n}}"
    main = "define  void @{0}(ptr %args) #0 {{\nentry:\n  call void @{0}.part(ptr %args)\n}}"
    target = host_target()
    load = "%x = call float @llvm.sqrt.f32(float 2.0)"

    def apart(name: str, attributes: int = 1, line: str = load, on=target):
        texts = [head.format(f"{name}.part", attributes, line), main.format(name)]
        return taken_apart("\n".join(texts), on)

    own, common = apart("k1")
    (name,) = common
    assert own == main.format("k1").replace("@k1.part", f"@{name}") + "\n"
    assert common[name].definition == head.format(name, 1, load).replace(" internal", "")
    assert common[name].declaration == f"declare void @{name}(ptr, i64) #1"
    assert apart("k2")[1] == common
    assert apart("k1", line="%x = fadd float 1.0, 2.0")[1].keys() != common.keys()
    assert apart("k1", on=host_target("generic"))[1].keys() != common.keys()
    assert apart("k1", attributes=0)[1] == {}  # may be inlined
    assert apart("k1", line="call void @k1.rest()")[1] == {}


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
    texts = [
        engine.ModuleText(engine.compose([one.text], one.declarations, target)) for one in emitted
    ]
    modules = engine.compile_modules(iter(texts), target)
    alone = [compile_module([one.text], one.declarations, target) for one in emitted]
    assert [m.image for m in modules] == [m.image for m in alone]
    assert all(m.address(one.name) for m, one in zip(modules, emitted, strict=True))
    wrong = "define void @f() #0 {\n  %x = add i32 1, %nothing\n  ret void\n}"
    with pytest.raises(CheckError, match=r">\s+\d+   %x = add i32 1, %nothing"):
        engine.compile_modules([*texts, engine.ModuleText(wrong), *texts], target)
    assert engine.compile_modules([], target) == []


def test_modules_are_compiled_where_no_thread_can_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(engine._Compiling, "start", refuse)
    one = emit(_scaled(3), "k", host_target())
    text = engine.ModuleText(engine.compose([one.text], one.declarations, host_target()))
    assert engine.compile_modules([text], host_target())[0].address("k")


def _scaled(factor: int) -> k.Kernel:
    return elementwise(lambda x: prim("mul", x, k.Const(float(factor), F32)), [F32], F32, 64)


def _sum_plan() -> Plan:
    s = Slots()
    x, y = s.argument(8), s.result(8)
    return s.plan([Run(add(), (x, x, y))], [y])


def test_runtime_is_compiled_once():
    assert native.runtime() is native.runtime()
    start = time.perf_counter()
    Executable(_sum_plan())
    assert time.perf_counter() - start < 2  # a cached kernel needs no compiler


def test_an_interrupt_while_llvm_compiles_waits_for_its_end(monkeypatch) -> None:
    """In between it left objects that were freed twice."""
    parse, steps = engine._parse, []

    def interrupted(text):
        signal.raise_signal(signal.SIGINT)
        steps.append("parsed")
        return parse(text)

    made = engine.Module.__init__
    monkeypatch.setattr(engine, "_parse", interrupted)
    monkeypatch.setattr(
        engine.Module, "__init__", lambda *given: (made(*given), steps.append("made"))[0]
    )
    text = "define i32 @interrupted() {\n  ret i32 1\n}"
    with pytest.raises(KeyboardInterrupt):
        engine.compile_module([text], [], engine.host_target())
    assert steps == ["parsed", "made"]
