"""Random Programs: text round trip, every pass, compiled code with and without fusion, derivatives.

Deterministic: hypothesis draws the same examples every time; a failure shrinks to a small Program
and prints it.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, note, settings
from programs import TABLES, arguments, programs

import fxad
from fxad.api import compiled
from fxad.compiler import SIMPLIFY, passes, simplified
from fxad.ir.check import check
from fxad.ir.program import Program, show
from fxad.ir.rewrite import evaluate
from fxad.ir.text import parse
from fxad.transform.context import run


def fuzzing(examples: int):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def intermediates(program: Program, args: list[np.ndarray]) -> float:
    """The largest magnitude met on the way: rounding errors are relative to it."""
    every = [v for e in program.eqns for v in e.outputs if v.type.dtype.kind == "f"]
    wide = Program(program.inputs, program.eqns, [*program.outputs, *every], program.name)
    sizes = [np.max(np.abs(v), initial=0) for v in evaluate(wide, args)]
    return 1.0 + float(max(sizes, default=0))


def close(got, want, scale: float, label: str) -> None:
    """Within the roundings of a chain of float32 operations, 2^-24 each."""
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype, label
        assert g.shape == w.shape, label
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5 * scale, err_msg=label)


@fuzzing(60)
@given(programs())
def test_text_and_passes(drawn):
    program, seed = drawn
    note(show(program))
    check(program)
    again = parse(str(program))
    assert again.key() == program.key()
    args = arguments(program, seed)
    want = evaluate(program, args)
    for g, w in zip(evaluate(again, args), want, strict=True):
        np.testing.assert_array_equal(g, w)
    scale = intermediates(program, args)
    for name in dict.fromkeys(SIMPLIFY):
        rewrite = passes()[name]
        once = rewrite(program)
        check(once, name)
        if name in ("dce", "cse", "fold", "inline"):  # change no bit
            for g, w in zip(evaluate(once, args), want, strict=True):
                np.testing.assert_array_equal(g, w, err_msg=name)
        close(evaluate(once, args), want, scale, name)
        twice = rewrite(once)
        assert len(twice.eqns) <= len(once.eqns), name
    best = simplified(program)
    close(evaluate(best, args), want, scale, "all passes")
    assert len(best.eqns) <= len(passes()["inline"](program).eqns)


@fuzzing(40)
@given(programs())
def test_compiled_code_agrees_with_the_interpreter(drawn):
    program, seed = drawn
    note(show(program))
    args = arguments(program, seed)
    want = evaluate(program, args)
    fused = fxad.jit(lambda *xs: run(program, xs))(*args)
    close(fused, want, intermediates(program, args), "compiled")
    with compiled.fusion(False):
        apart = fxad.jit(lambda *xs: run(program, xs))(*args)
    for a, b in zip(fused, apart, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "fusion changes bits"


@fuzzing(40)
@given(programs(steps=6))
def test_forward_and_reverse_agree(drawn):
    """<ct, J dx> = <J' ct, dx>, eagerly and through jit, and vmap of either is a loop of it."""
    program, seed = drawn
    note(show(program))
    tables = TABLES[program]
    args = arguments(program, seed)
    xs = args[len(tables) :]
    r = np.random.default_rng(seed + 1)
    dxs = [r.standard_normal(x.shape).astype(np.float32) for x in xs]

    def function(*values):
        return run(program, [*tables, *values])

    out, pushed = fxad.jvp(function, tuple(xs), tuple(dxs))
    cts = [r.standard_normal(o.shape).astype(np.float32) for o in out]

    def pull(xs, cts):
        return fxad.vjp(function, *xs)[1](list(cts))

    eager = pull(xs, cts)
    forward = sum(np.vdot(c, np.asarray(p, np.float64)) for c, p in zip(cts, pushed, strict=True))
    backward = sum(np.vdot(np.asarray(g, np.float64), d) for g, d in zip(eager, dxs, strict=True))
    sizes = [np.max(np.abs(v), initial=0) for v in (*eager, *pushed)]
    count = sum(max(o.size, 1) for o in (*out, *xs))
    scale = (1 + float(max(sizes))) * intermediates(program, args)
    assert abs(forward - backward) <= 1e-5 * scale * np.sqrt(count)
    close(fxad.jit(pull)(xs, cts), eager, scale, "vjp under jit")
    lanes = fxad.vmap(pull)([np.stack([x, x]) for x in xs], [np.stack([c, c]) for c in cts])
    close([lane[1] for lane in lanes], eager, scale, "vmap of vjp")
