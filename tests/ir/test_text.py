"""Stages as text (`*.ir`: names, a program, what comes out), and round trips of the grammar."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import compiler
from fxad.core.errors import CheckError
from fxad.ir.check import check
from fxad.ir.program import Program, show
from fxad.ir.stages import Ran, listening
from fxad.ir.text import parse

CASES = sorted(Path(__file__).parent.glob("*.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_stage(path: Path) -> None:
    head, _, rest = path.read_text().partition("\n")
    stages = [name.strip() for name in head.removeprefix("# stages:").split(",")]
    before, _, after = rest.partition("=>\n")
    made: Any = check(parse(before))
    for stage in stages:
        made = run_stage(stage, made)
    text = show(made, where=False) if isinstance(made, Program) else str(made)
    assert text == after.strip()


def run_stage(name: str, program: Program) -> Any:
    """What a stage makes of a Program, or of what stages before it make of that."""
    if name in compiler.passes():
        return compiler.passes()[name](program)
    if name == "recognise":
        return compiler.recognise(program, [])[0]
    if name == "checkpoints":
        return compiler.within_checkpoints(program, compiler.native())
    options, backend = compiler.Options(), compiler.native()
    if name == "rematerialize":
        return compiler.best_candidate(program, options, backend).program
    if name == "decompose":  # by a backend that lacks ops
        backend = compiler.numba("python")
    # "round": by a backend that rounds factors of all products.
    rounds = (lambda kernel: True) if name == "round" else None
    ran: dict[str, Ran] = {}
    with listening(lambda one: ran.setdefault(one.stage, one)):
        _ = compiler.Candidate(program, options, backend, rounds).plan
    return ran[name].made


def test_round_trip_of_a_gradient_with_tapes() -> None:
    def loss(x, n):
        def inner(_, y):
            return fxad.lax.fori_loop(0, n, lambda i, z: jnp.sin(z), y)

        return fxad.lax.fori_loop(0, n, inner, x).sum()

    printed = fxad.make_ir(fxad.grad(loss))(np.ones(3, np.float32), 4)
    text = str(printed)
    assert "tape_new(" in text and "type=tape(" in text
    assert check(parse(text)).key() == printed.program.key()


def test_bodies_call_what_they_capture_as_the_program_around_does() -> None:
    def f(p, xs):
        def step(c, x):
            y = fxad.lax.cond(x.sum() > 0, lambda: c * p["a b"], lambda: c + p["c"][0])
            y = fxad.lax.while_loop(lambda s: s.sum() < p["c"][1], lambda s: s + p["c"][0], y)
            return y, y.sum()

        return fxad.lax.scan(step, jnp.ones(3), xs)

    p = {"a b": jnp.ones(3), "c": [jnp.ones(3), 2.0]}
    xs = jnp.ones((4, 3))
    printed = fxad.make_ir(f)(p, xs)
    text = show(printed.program)
    assert 'body=program step(p.c[0]: f32[3], p["a b"]: f32[3], p.c[1]: f32[], c: ' in text
    assert re.search(r"add\(s, p\.c\[0\]\)  # test_text\.py:\d+", text)  # in the loop inside
    assert parse(text).key() == parse(str(printed)).key() == printed.program.key()
    # A loop inside that keeps nothing but how often it ran has a tape without blocks.
    for g in (
        fxad.grad(lambda p, xs: f(p, xs)[1].sum()),
        fxad.hessian(lambda p, xs: f(p, xs)[1][0]),
    ):
        gradient = fxad.make_ir(g)(p, xs)
        for text in (show(gradient.program), str(gradient)):
            assert parse(text).key() == gradient.program.key()


def test_one_body_in_two_loops_keeps_its_letters() -> None:
    def f(a, b, xs):
        def loop(w):
            return fxad.lax.scan(lambda c, x: (c * w + x, None), 0.0, xs)[0]

        return loop(a) + loop(b)

    text = show(fxad.make_ir(f)(1.0, 2.0, np.ones(3, np.float32)).program)
    assert "(a: f32[], c: f32[], x: f32[])" in text and "(b: f32[], c: f32[], x: f32[])" in text


def test_round_trip_of_names_in_other_alphabets() -> None:
    def größe(β: fxad.Array) -> fxad.Array:
        return jnp.sin(β)

    printed = fxad.make_ir(größe)(np.float32(1))
    text = str(printed)
    assert text.startswith("program größe(β: f32[])")
    assert parse(text).key() == printed.program.key()


def test_round_trip_of_a_gradient_with_a_loop() -> None:
    def loss(w, x):
        def step(c, row):
            return jnp.tanh(c @ w + row), c.sum()

        last, sums = fxad.lax.scan(step, jnp.zeros(3), x)
        return last.sum() + sums.sum() * 0.1

    printed = fxad.make_ir(fxad.grad(loss))(
        np.ones((3, 3), np.float32), np.ones((5, 3), np.float32)
    )
    text = str(printed)
    again = parse(text)
    assert again.key() == printed.program.key()
    assert "test_text.py:" in text


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("program f(a: f32[3]) {\n b: f32[3] = nosuch(a)\n return b\n}", "unknown op 'nosuch'"),
        ("program f(a: f32[3]) {\n b: f32[3] = exp(c)\n return b\n}", "c is not defined"),
        ("program f(a: f32[3]) {\n a: f32[3] = exp(a)\n return a\n}", "a is defined twice"),
        ("program f(a: f32[3]) {\n return a", "expected"),
    ],
)
def test_parser_errors_name_the_line(text: str, saying: str) -> None:
    with pytest.raises(CheckError, match=saying):
        parse(text)


def test_checker_shows_the_equation() -> None:
    program = parse("program f(a: f32[3]) {\n b: f32[4] = exp(a)\n return b\n}")
    with pytest.raises(CheckError, match=r"exp gives \(f32\[3\]\) but is written as \(f32\[4\]\)"):
        check(program)
