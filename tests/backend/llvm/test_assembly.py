"""The machine code of inner loops is read, for every instruction set: a guard without a clock.

Kernels are emitted for processors that this machine need not be (LLVM compiles for all), and of
each the block with the most multiply-adds is looked at: vectors of full width, no more loads than
the tile needs, and nothing that goes through the stack.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import fxad
import fxad.nn
import fxad.numpy as jnp
from fxad.backend.llvm.base.choices import TABLES, Choice, Choices
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.autotune import class_of
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.native import engine
from fxad.ir.kernel import Kernel


@dataclass(frozen=True)
class Processor:
    """An instruction set, and how its assembler text spells what is looked for."""

    target: Target
    triple: str
    cpu: str
    fma: str
    load: str  # a vector or a factor from memory
    stack: str  # a vector to or from the stack


X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_X86 = {
    "fma": r"^\s+vfn?m(?:add|sub)\d+ps\b.*{register}\d+$",
    "load": r"^\s+v(?!prefetch)\w+\s+.*\(%r(?!sp|bp)\w+.*\).*,.*%[xyz]mm\d+(?: \{{.*\}})?$",
    "stack": r"^\s+\S+\s.*(?:%[xyz]mm\d.*\(%r[sb]p|\(%r[sb]p.*%[xyz]mm\d)",
}
_ARM = {
    "fma": r"^\s+fml[as]\s+v\d+\.4s",
    "load": r"^\s+ld(?:r|p|1r?)\s+(?:[qs]\d|\{).*\[(?!sp|x29)",
    "stack": r"^\s+(?:st|ld)[rp]\s+[qv]\d.*\[(?:sp|x29)",
}


def _on_x86(isa: str, cpu: str, register: str, **more: str) -> Processor:
    spelt = {name: text.format(register=register) for name, text in _X86.items()} | more
    extras = more and frozenset({"avx512_bf16", "amx_bf16" if register == "t" else "bf16_pairs"})
    return Processor(Target(isa, extras or frozenset()), X86, cpu, **spelt)


PROCESSORS = {
    "avx512": _on_x86("avx512", "x86-64-v4", "%zmm"),
    "avx2": _on_x86("avx2", "x86-64-v3", "%ymm"),
    "neon": Processor(Target("neon"), ARM, "generic", **_ARM),
    "neon, Neoverse V1": Processor(Target("neon"), ARM, "neoverse-v1", **_ARM),
    "avx512_bf16": _on_x86("avx512", "znver4", "z", fma=r"^\s+vdpbf16ps\b.*%zmm\d+$"),
    "amx": _on_x86(
        "avx512", "sapphirerapids", "t", fma=r"^\s+tdpbf16ps\b", load=r"^\s+tileloadd?\w*\s"
    ),
}


_JUMP = r"\s+(?:j\w+|b(?:\.\w+)?|[ct]bn?z|ret\w*)\b.*\n"  # ends a block


@functools.cache
def _machine(triple: str, cpu: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:  # an LLVM built for fewer processors
        pytest.skip(str(error))
    return target.create_target_machine(
        cpu=cpu, opt=2, reloc="default", codemodel="jitdefault", jit=True
    )


def hottest(kernel: Kernel, processor: Processor) -> str:
    """The basic block with the most multiply-adds."""
    emitted = emit(kernel, "kernel", processor.target)
    assembly = assembled([emitted.text], emitted.declarations, processor)
    blocks = re.split(rf"\n(?=[.\w$]+:)|(?<=\n)(?:{_JUMP})", assembly)
    return max(blocks, key=lambda block: len(seen(processor.fma, block)))


def assembled(texts: list[str], declarations: Iterable[str], processor: Processor) -> str:
    text = engine.compose(texts, declarations, processor.target)
    with engine.lock:
        module = llvm.parse_assembly(text)
        module.triple = processor.triple
        return _machine(processor.triple, processor.cpu).emit_assembly(module)


def seen(pattern: str, block: str) -> list[str]:
    return re.findall(pattern, block, re.MULTILINE)


def kernels(function, *args) -> tuple[Kernel, ...]:
    return fxad.jit(function).lower(*args).kernels


def ones(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


PRODUCTS = {
    "a @ b": lambda a, b: a @ b,
    "a @ b.T": lambda a, b: a @ b.T,
    "a.T @ b": lambda a, b: a.T @ b,
}


def _attention(q, k, v):
    return fxad.nn.dot_product_attention(q, k, v, is_causal=True)


_HEADS = [ones(1, 256, 2, 64)] * 3
_ATTENTION_GRADIENT = fxad.grad(lambda *a: _attention(*a).sum(), argnums=(0, 1, 2))
CASES = {
    **{name: (f, (ones(192, 768), ones(768, 768))) for name, f in PRODUCTS.items()},
    "a.T @ b": (PRODUCTS["a.T @ b"], (ones(192, 768), ones(192, 768))),
    "attention": (_attention, _HEADS),
    "attention's gradient": (_ATTENTION_GRADIENT, _HEADS),
}
# Multiply-adds of the main loop (four steps of k), and how many for a load: a tile of 8 x 48 wants
# 8 factors and 3 vectors for 24 multiply-adds, one of 6 x 16 wants 6 and 2 for 12.
FLOAT32 = {"avx512": (96, 24 / 11), "avx2": (48, 12 / 8), "neon": (96, 24 / 13)}
FLOAT32["neon, Neoverse V1"] = FLOAT32["neon"]


@pytest.mark.parametrize("name", FLOAT32)
@pytest.mark.parametrize("case", CASES)
def test_products_stay_in_registers(case: str, name: str) -> None:
    function, args = CASES[case]
    processor, (multiply_adds, for_a_load) = PROCESSORS[name], FLOAT32[name]
    kernel = kernels(function, *args)[-1]  # attention's gradient follows attention
    block = hottest(kernel, processor)
    count = len(seen(processor.fma, block))
    assert count == multiply_adds, block
    assert count >= for_a_load * len(seen(processor.load, block)) > 0, block
    assert not seen(processor.stack, block), block


@pytest.mark.parametrize("name", ["avx512", "neon"])
@pytest.mark.parametrize("size", [(771, 1000, 256), (257, 1000, 771)], ids=str)
def test_odd_sizes_stay_in_registers(size: tuple[int, int, int], name: str) -> None:
    """Rows of 4,000 bytes begin inside lines, so that a tile asks for more of them."""
    rows, columns, k = size
    processor = PROCESSORS[name]
    (kernel,) = kernels(PRODUCTS["a.T @ b"], ones(k, rows), ones(k, columns))
    block = hottest(kernel, processor)
    assert len(seen(processor.fma, block)) == 96, block
    assert not seen(processor.stack, block), block


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
def test_every_tile_that_may_be_chosen_stays_in_registers(name: str) -> None:
    processor = PROCESSORS[name]
    (kernel,) = kernels(PRODUCTS["a @ b"], ones(2520, 768), ones(768, 384))
    key = class_of(Problem.of(kernel), processor.target)
    for height, vectors in TABLES[name].tiles:
        choices = Choices({key: Choice(height, vectors)})
        block = hottest(kernel, replace(processor, target=Target(name, frozenset(), choices)))
        assert len(seen(processor.fma, block)) == 4 * height * vectors, block
        assert not seen(processor.stack, block), block


def test_products_of_bfloat16_stay_in_tiles() -> None:
    """Two by two tiles: as many loads of tiles as products, none stored."""
    a, b = (ones(*s, dtype=ml_dtypes.bfloat16) for s in ((192, 768), (768, 768)))
    (kernel,) = kernels(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32), a, b)
    amx = PROCESSORS["amx"]
    block = hottest(kernel, amx)
    assert len(seen(amx.fma, block)) == len(seen(amx.load, block)) == 4, block
    assert "tilestored" not in block
    assert not seen(amx.stack, block), block


@pytest.mark.parametrize("sizes", [((192, 768), (768, 768)), ((20000, 64), (64, 64))], ids=str)
def test_products_of_pairs_of_bfloat16_stay_in_registers(sizes) -> None:
    """Also where the pairs of A are transposed while they are read."""
    a, b = (ones(*size, dtype=ml_dtypes.bfloat16) for size in sizes)
    (kernel,) = kernels(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32), a, b)
    pairs = PROCESSORS["avx512_bf16"]
    block = hottest(kernel, pairs)
    assert len(seen(pairs.fma, block)) >= 24, block
    assert not seen(pairs.stack, block), block
    assert ("rorx" in block) == (sizes[1][1] == 64), block


FUNCTIONS = {
    "exp": (jnp.exp, (ones(1 << 16),)),
    "softmax": (lambda x: fxad.nn.softmax(x, -1), (ones(64, 1024),)),
    "decoding": (lambda x, w: x @ w, (ones(1, 768), ones(768, 768))),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_loops_with_a_function_stay_in_registers(case: str) -> None:
    function, args = FUNCTIONS[case]
    processor = PROCESSORS["avx512"]
    block = hottest(kernels(function, *args)[0], processor)
    assert seen(processor.fma, block), block
    assert not seen(processor.stack, block), block


@pytest.mark.parametrize("reduce", [False, True])
def test_addresses_are_computed_from_the_counter_unless_they_are_to_be_reduced(
    reduce: bool,
) -> None:
    f = Function("rows", "void", [("ptr", "x"), ("i64", "rows")])

    def row(number: str, _: list[str]) -> None:
        at = f.offset("%x", f.mul(number, 7 * 512))
        f.line(f"store float 0.0, ptr {at}")

    f.loop(0, "%rows", 1, row, reduce=reduce)
    f.ret()
    steps = re.findall(r"\badd\w*\s+\$3584,", assembled([str(f)], [], PROCESSORS["avx512"]))
    assert bool(steps) == reduce


def test_a_spill_would_be_seen() -> None:
    x86, arm = PROCESSORS["avx512"], PROCESSORS["neon"]
    assert seen(x86.stack, "\tvmovups\t64(%rsp), %zmm3\n") and seen(
        x86.stack, "\tvmovaps\t%ymm1, (%rsp)\n"
    )
    assert seen(x86.stack, "\tvfmadd231ps\t-64(%rbp), %zmm1, %zmm2\n")
    assert seen(arm.stack, "\tstp\tq15, q14, [sp]\n") and not seen(
        arm.stack, "\tldp\tq9, q8, [x3]\n"
    )
    assert not seen(x86.stack, "\tvmovups\t64(%rsi), %zmm3\n\tmovq\t8(%rsp), %rax\n")
    assert seen(x86.load, "\tvfmadd231ps\t4(%rax){1to16}, %zmm1, %zmm2\n")
    assert not seen(x86.load, "\tvmovups\t%zmm3, 64(%rsi)\n")
