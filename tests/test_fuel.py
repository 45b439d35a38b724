"""Bisection by fuel: the first change of every stage that may be left out is found by halving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plan_walker import run_plan

from fxad import compiler
from fxad.compiler import BACKENDS, Options, native, planned_anew
from fxad.core.config import config
from fxad.ir import heuristics
from fxad.ir.stages import listening
from fxad.ir.text import parse
from fxad.rematerialization import automatic
from fxad.runtime.session import session

R = np.random.default_rng(0)
IR = Path(__file__).parent / "ir"
# Stages that may be left out, each with a text (of tests/ir) in which it changes something.
FUELED = {
    **{name: name for name in ("recognise", "inline", "algebra", "cse", "rows_apart")},
    **{
        name: name
        for name in (
            "widen_late",
            "offload",
            "checkpoints",
            "complex_products",
            "split_keys",
            "round",
        )
    },
    "unpack": "unpack",
    **{"fold": "fold_exact", "dce": "dce_loop", "order": "order", "rematerialize": "rematerialize"},
}
NEEDED = {"decompose", "tapes", "lower", "place", "compile"}  # nothing runs without these
ANOTHER_ORDER = {
    "recognise",
    "complex_products",
    "split_keys",
}  # stages that change in which order numbers are added
ENOUGH = 1000  # fuel for all


def program_of(stage):
    text = (IR / f"{FUELED[stage]}.ir").read_text().partition("=>\n")[0]
    if stage == "rematerialize":
        text = text.replace("16384", "512").replace("4096", "128")  # small enough to run
    if stage == "rows_apart":
        text = text.replace("20000", "1000")
    return parse(text)


def compiled_with(stage, program, fuel):
    """Whether the stage changed something, and the Plan; every record on the way is legal."""
    ran = []
    with config.override(fuel=fuel, check=True), listening(ran.append):
        recognised, _ = compiler.recognise(program, [])
        plan = planned_anew(recognised, Options(), native()).plan
    assert {one.stage for one in ran} >= NEEDED - {"compile"}
    texts = [
        [str(getattr(record, "program", record)) for record in (one.given, one.made)]
        for one in ran
        if one.stage == stage
    ]
    return any(given != made for given, made in texts), plan


def run(plan, args):
    with session():
        return run_plan(plan, [a.copy() for a in args])


@pytest.mark.parametrize("stage", FUELED)
def test_the_first_change_of_every_stage_is_found(stage, monkeypatch):
    for name, value in {"LEAST": 0, "PART": 0, "LARGE": 0, "SHARE": 1}.items():
        monkeypatch.setattr(automatic, name, value)  # so that a small program is rematerialized
    monkeypatch.setattr(heuristics, "ROWS_APART_BYTES", 0)  # and rows of a small table kept apart
    monkeypatch.setattr(type(native()), "rounds", lambda self, kernel: stage == "round")
    program = program_of(stage)
    without, found = 0, ENOUGH
    assert not compiled_with(stage, program, without)[0] and compiled_with(stage, program, found)[0]
    while found - without > 1:
        half = (without + found) // 2
        if compiled_with(stage, program, half)[0]:
            found = half
        else:
            without = half
    args = [
        R.integers(0, t.shape[-1] if t.shape else 2, t.shape).astype(t.dtype)
        if t.dtype.kind == "i"
        else R.standard_normal(t.shape).astype(t.dtype)
        for t in program.in_types
    ]
    before, after = (run(compiled_with(stage, program, n)[1], args) for n in (without, found))
    for one, other in zip(before, after, strict=True):
        if stage in ANOTHER_ORDER:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            assert one.tobytes() == other.tobytes()


def test_every_stage_is_fueled_or_needed():
    assert {*FUELED} | NEEDED == compiler.SHOWN - {"traced", "kernels", "plan"}
    assert NEEDED.isdisjoint(FUELED)


def test_needed_stages_change_programs_without_fuel():
    """An op that a backend lacks, and a sum of tapes."""
    for name, backend in (("decompose", BACKENDS["python"]()), ("tapes", native())):
        program = parse((IR / f"{name}.ir").read_text().partition("=>\n")[0])
        ran = []
        with config.override(fuel=0), listening(ran.append):
            planned_anew(program, Options(), backend)
        assert any(one.stage == name and one.changed for one in ran)
