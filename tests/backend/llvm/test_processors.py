"""What other processors than this one are given: found by running there (tests/emulated)."""

import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from test_assembly import PROCESSORS, assembled, kernels, ones

import fxad.numpy as jnp
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.native import engine, library
from fxad.core.errors import CheckError

ARM = ("aarch64-unknown-linux-gnu", "arm64-apple-darwin24.0.0")


@pytest.mark.parametrize("triple", ARM)
def test_every_aarch64_has_neon_also_where_the_system_tells_no_features(monkeypatch, triple):
    monkeypatch.setattr(engine.llvm, "get_process_triple", lambda: triple)
    monkeypatch.setattr(engine, "host_features", frozenset)
    assert engine.host_isa() == "neon"


def test_the_lowest_instruction_set_of_aarch64_has_arithmetic(monkeypatch):
    """It was compiled for a processor named x86-64: sums became calls of functions of integers."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    monkeypatch.setattr(engine.llvm, "get_process_triple", lambda: ARM[0])
    monkeypatch.setattr(engine, "host_features", lambda: frozenset({"neon"}))
    machine = engine._machine(Target("generic"))
    text = "define float @add(float %x, float %y) {\n  %s = fadd float %x, %y\n  ret float %s\n}"
    module = llvm.parse_assembly(text)
    module.triple = ARM[0]
    assert "fadd\ts0, s0, s1" in machine.emit_assembly(module)


def test_windows_is_refused_before_anything_is_called(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CheckError, match=r"does not run on Windows yet.*clock_gettime"):
        library._texts()


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_with_rare_cases_compile(name, dtype):
    """LLVM's code generator for AArch64 ended the process at the calling convention of x86."""
    processor = PROCESSORS[name]
    (kernel,) = kernels(lambda x: jnp.sin(x) * jnp.exp(x), ones(64, dtype=dtype))
    emitted = emit(kernel, "kernel", processor.target)
    text = emitted.text + "".join(emitted.declarations)
    assert "@rare." in text
    assert ("preserve_allcc" in text) == (name != "neon")
    assert "rare." in assembled([emitted.text], emitted.declarations, processor)
