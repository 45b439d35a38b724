"""Updates of a tied table: a few rows are done apart, the others in the product's epilogue."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.compiler import simplified
from fxad.core.config import config
from fxad.core.types import ArrayType
from fxad.ir import heuristics
from fxad.ir.check import check
from fxad.ir.rewrite import evaluate
from fxad.passes import rows_apart
from fxad.trace.tracer import stage

ROWS, WIDTH, TOKENS = 1000, 400, 24
R = np.random.default_rng(0)
TABLE = (R.standard_normal((ROWS, WIDTH)) * 0.05).astype(np.float32)
MOMENT = np.abs(R.standard_normal((ROWS, WIDTH))).astype(np.float32)
PLACES = R.integers(-7, 7, (1, TOKENS)).astype(np.int32)  # each of them several times
OUTSIDE = np.array([[0, ROWS + 5, -ROWS - 9, 3] * 6], np.int32)


def loss(table, places):
    x = jnp.tanh(table[places])
    return fxad.nn.linear_cross_entropy(x, table, jnp.abs(places) % ROWS)


def step(table, moment, rate, places, scaled=False, kept=False):
    gradient = fxad.grad(loss)(table, places)
    if scaled:
        gradient = gradient / jnp.sqrt(jnp.sum(gradient * gradient))
    moment = 0.9 * moment + 0.1 * gradient * gradient
    table = table * (1.0 - 0.1 * rate) - rate * gradient / (jnp.sqrt(moment) + 1e-3)
    return (table, moment, gradient) if kept else (table, moment)


def lowered(monkeypatch, large: int, **options):
    monkeypatch.setattr(heuristics, "ROWS_APART_BYTES", large)
    monkeypatch.setattr(heuristics, "EPILOGUE_BYTES", 0)
    compiled = fxad.jit(lambda *args: step(*args, **options), donate_argnums=(0, 1))
    return compiled, compiled.lower(TABLE, MOMENT, np.float32(0.01), PLACES)


@pytest.mark.parametrize("places", [PLACES, OUTSIDE], ids=["repeated", "outside"])
def test_the_bits_are_those_of_the_gradient_in_memory(monkeypatch, places) -> None:
    apart, made = lowered(monkeypatch, 0)
    assert "barrier" in str(made.program)
    found = apart(TABLE.copy(), MOMENT.copy(), np.float32(0.01), places)
    whole, made = lowered(monkeypatch, 1 << 60)
    assert "barrier" not in str(made.program)
    wanted = whole(TABLE.copy(), MOMENT.copy(), np.float32(0.01), places)
    for one, other, before in zip(found, wanted, (TABLE, MOMENT), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        assert not np.array_equal(np.asarray(one), before)


def test_it_is_the_same_function(monkeypatch) -> None:
    """On the NumPy reference, equation by equation, with every type derived again."""
    monkeypatch.setattr(heuristics, "ROWS_APART_BYTES", 1 << 60)
    args = [TABLE, MOMENT, np.float32(0.01), PLACES]
    program, consts = stage(
        lambda *xs: list(step(*xs)), [ArrayType(a.dtype, a.shape) for a in args]
    )
    program = simplified(program.closed())
    monkeypatch.setattr(heuristics, "ROWS_APART_BYTES", 0)
    other = rows_apart.rows_apart(program)
    assert other is not program
    check(other, "rows_apart")
    args = [*map(np.asarray, consts), *args]
    for one, two in zip(evaluate(program, args), evaluate(other, args), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_it_is_checked_and_shown_as_other_passes_are(monkeypatch, capsys) -> None:
    with config.override(show=("rows_apart", "widen_late"), check=True):
        lowered(monkeypatch, 0)[1].program  # noqa: B018
    shown = capsys.readouterr().err
    _, before, after = shown.split("---")
    assert before.startswith(" rows_apart") and "barrier" in before
    assert after.startswith(" widen_late")


def test_the_gradient_has_no_memory_and_the_table_is_updated_in_place(monkeypatch) -> None:
    _, made = lowered(monkeypatch, 0)
    assert made.plan.arena_bytes < TABLE.nbytes // 2
    text = str(made.plan)
    assert "result 0 in argument 0" in text and "result 1 in argument 1" in text
    assert "copy" not in text


@pytest.mark.parametrize(
    "options", [{"scaled": True}, {"kept": True}], ids=["its norm is needed", "it is a result"]
)
def test_a_gradient_that_something_else_reads_stays_whole(monkeypatch, options) -> None:
    _, made = lowered(monkeypatch, 0, **options)
    assert "barrier" not in str(made.program)


def test_a_gradient_whose_operands_are_larger_is_made_early(monkeypatch) -> None:
    """They would wait for the rows, and take more memory than it does."""
    monkeypatch.setattr(heuristics, "ROWS_APART_BYTES", 0)
    places = np.zeros((1, WIDTH + 8), np.int32)
    wide = np.ones((8 * ROWS, WIDTH), np.float32)
    made = fxad.jit(step).lower(wide, wide, np.float32(0.1), places)
    assert "barrier" not in str(made.program)
