"""Scans and their backward scans are found by the pair that differentiation gave them."""

from __future__ import annotations

import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.compiler import simplified
from fxad.core.errors import CheckError
from fxad.ir.check import check
from fxad.ir.pairs.scan import scan_pairs
from fxad.ir.program import Program, show
from fxad.ir.rewrite import inline_into
from fxad.ir.text import parse

X = jnp.ones((6, 8))


def stacked(x):
    """A scan that stacks much, and one over it that stacks little."""

    def first(c, row):
        c = c * 0.5 + row.sum()
        return c, jnp.outer(row, row)

    def second(c, table):
        return jnp.sin(c) + jnp.sum(table * table), None

    _, tables = lax.scan(first, 0.0, x)
    return lax.scan(second, 1.0, tables)[0]


def program() -> Program:
    return simplified(fxad.jit(fxad.grad(stacked)).lower(X).traced)


def scans(program: Program):
    return [e for e in program.eqns if e.op.name == "scan"]


def without(program: Program) -> Program:
    """The same text, which says nothing of pairs."""
    return parse(show(program))


def test_a_backward_scan_is_paired_with_its_own_forward_scan() -> None:
    made = program()
    first, second, second_back, first_back = scans(made)
    assert first.pair is not None and second.pair is not None and first.pair != second.pair
    assert (first_back.pair, second_back.pair) == (first.pair, second.pair)
    found = [(pair.forward, pair.backward) for pair in scan_pairs(made)]
    assert (second, second_back) in found
    assert check(made) is made


def test_pairs_are_no_part_of_what_makes_programs_equal() -> None:
    made = program()
    plain = without(made)
    assert all(eqn.pair is None for eqn in plain.eqns)
    assert plain.key() == made.key()
    # The pattern takes the scan that fills most of what is read, which is the other one.
    first, _, second_back, _ = scans(plain)
    found = [(pair.forward, pair.backward) for pair in scan_pairs(plain)]
    assert (first, second_back) in found


def test_copies_are_pairs_of_their_own() -> None:
    made = program()
    eqns, _ = inline_into(made, made.inputs)
    copy = Program(made.inputs, eqns, made.outputs)
    before, after = ([e.pair for e in scans(p)] for p in (made, copy))
    assert set(before).isdisjoint(after)
    assert after == [after[0], after[1], after[1], after[0]]


def test_a_partner_elsewhere_stays_one() -> None:
    made = program()
    half = Program(made.inputs, scans(made)[:1], scans(made)[0].outputs)
    eqns, _ = inline_into(half, half.inputs)
    assert eqns[0].pair == scans(made)[0].pair


def test_the_checker_sees_scans_of_one_pair_that_differ() -> None:
    def of(length):
        return lax.scan(lambda c, _: (c + 1.0, None), 0.0, None, length=length)[0]

    made = fxad.make_ir(lambda: (of(6), of(3)))().program
    first, second = scans(made)
    first.pair = second.pair = 0
    with pytest.raises(CheckError, match="scans of one pair have 6 and 3 trips"):
        check(made)
    first.pair = second.pair = None
    other = fxad.make_ir(jnp.sin)(X).program
    other.eqns[0].pair = 0
    with pytest.raises(CheckError, match="sin is no loop, but paired with one"):
        check(other)
