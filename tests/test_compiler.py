"""The compiler's stages: the same bits after each, illegal records told, bisected by fuel, listed,
and a backend of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from plan_walker import run_plan

import fxad
import fxad.numpy as jnp
from fxad import compiler, lax
from fxad.compiler import BACKENDS, Options, native, planned, simplified
from fxad.core.config import config
from fxad.core.errors import CheckError
from fxad.ir.block import Block, in_all_blocks
from fxad.ir.check import check, check_lowerable
from fxad.ir.check_block import check_block
from fxad.ir.plan import Plan, Run
from fxad.ir.program import Program, Var
from fxad.ir.rewrite import evaluate
from fxad.ir.stages import Stage, listening
from fxad.plan.planner import plan
from fxad.rematerialization import automatic

R = np.random.default_rng(0)


def whole(*shape):
    """Small whole numbers: all sums and products of them are exact, in any order."""
    return R.integers(-4, 5, shape).astype(np.float32)


def gradient(w, x):
    def loss(w, x):
        y = jnp.maximum(x @ w, 0)
        return jnp.sum(y * y * (y + y))

    return fxad.value_and_grad(loss, argnums=(0, 1))(w, x)


def loops(w, x):
    def loss(w):
        last, rows = lax.scan(lambda c, r: (c + r @ w, jnp.where(c > 0, c, -c)), x[0], x)
        return jnp.sum(last) + jnp.sum(rows)

    return fxad.grad(loss)(w)


def unknown_trips(w, x):
    def loss(x):
        def trip(state):
            n, y = state
            return n + 1, lax.cond(n % 2 == 0, lambda y: y @ w, lambda y: y - 1, y)

        return jnp.sum(lax.while_loop(lambda s: s[0] < jnp.int32(3), trip, (jnp.int32(0), x))[1])

    return fxad.grad(loss)(x)


def checkpointed(w, x):
    return fxad.grad(lambda x: jnp.sum(fxad.checkpoint(lambda y: (y @ w) * y)(x)))(x)


def updates(w, x):
    table = jnp.zeros((4, 4)).at[jnp.array([0, 2])].add(x[:2])
    return table @ w, jnp.sort(x, axis=1), jnp.cumsum(x, axis=0), x.astype(jnp.bfloat16) * 2


FUNCTIONS = [gradient, loops, unknown_trips, checkpointed, updates]


@pytest.fixture(params=FUNCTIONS, ids=lambda f: f.__name__)
def case(request):
    """A traced program, its arguments, and its results on the reference interpreter."""
    w, x = whole(4, 4), whole(4, 4)
    program, args = traced(request.param, w, x)
    return program, args, evaluate(program, args)


def traced(function, *args):
    """A function's program and what it is called with: captured values first."""
    leaves, trace = fxad.jit(function).trace_for(args, {})
    return trace.program, [np.asarray(v) for v in (*trace.captured, *leaves)]


def same_bits(results, wanted, stage):
    assert len(results) == len(wanted)
    for one, other in zip(results, wanted, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), stage


@pytest.mark.parametrize("backend", [native, BACKENDS["python"]], ids=["llvm", "python"])
@pytest.mark.parametrize("fusion", [True, False])
def test_every_stage_keeps_the_bits(case, backend, fusion, monkeypatch):
    """Programs on the reference interpreter, Plans by the reference's kernels; Blocks are planned
    for that, without what else planning is told."""
    monkeypatch.setattr(automatic, "LEAST", 0)
    monkeypatch.setattr(automatic, "PART", 0)
    program, args, wanted = case
    types = program.in_types, program.out_types
    seen, run = [], []

    def listener(ran):
        seen.append(ran.stage)
        made = ran.made
        of_all = same_types(ran.given, program)
        if isinstance(made, Program) and same_types(made, program):
            same_bits(evaluate(made, args), wanted, ran.stage)
        if isinstance(made, Block) and of_all:
            made = plan(made, *types)
        if isinstance(made, Plan) and of_all:
            same_bits(run_plan(made, [a.copy() for a in args]), wanted, ran.stage)
            run.append(ran.stage)

    with listening(listener):
        best = planned(program, Options(fusion=fusion), backend())
    assert same_types(best.program, program)
    assert {"traced", "inline", "cse", "offload", "decompose", "lower", "order", "place"} <= {*seen}
    assert {"lower", "order", "place"} <= {*run} == {*seen} & {"lower", "round", "order", "place"}


def same_types(made, program):
    """Whether a record stands for the whole program, not for a part of it."""
    outputs = made.outputs
    types = [v.type.shape for v in made.inputs], [v.type.nbytes for v in outputs]
    whole_types = [v.type.shape for v in program.inputs], [v.type.nbytes for v in program.outputs]
    return types == whole_types


def test_stages_are_listed_in_order():
    x = whole(4, 4)
    ran = fxad.jit(lambda x: jnp.sum(jnp.exp(x) * jnp.exp(x))).lower(x).stages()
    names = [one.stage for one in ran]
    assert names[:5] == ["recognise", "traced", "inline", "fold", "algebra"]
    tail = [
        "decompose",
        "complex_products",
        "split_keys",
        "tapes",
        "lower",
        "round",
        "order",
        "place",
    ]
    tail += ["rematerialize", "compile"]
    assert names[-len(tail) :] == tail
    assert set(names) <= compiler.SHOWN
    assert repr(ran) == f"[{', '.join(map(str, ran))}]"
    by_name = {one.stage: one for one in ran}
    assert by_name["traced"].changed == "" and "block(" in by_name["lower"].changed
    merged = next(one for one in ran if one.stage == "cse")
    assert "\n- " in merged.changed and str(merged).endswith("4 equations -> 3 equations")
    assert all(one.seconds >= 0 for one in ran)
    assert "equations -> " in str(by_name["lower"]) and "arena of" in str(by_name["place"])


def test_stage_0_is_listed_with_what_it_changed():
    def attention(q, k, v):
        return jnp.sum(fxad.nn.softmax(q @ k.swapaxes(1, 2)) @ v)

    x = whole(2, 8, 4)
    lowered = fxad.jit(attention).lower(x, x, x)
    first, second, *_ = lowered.stages()
    assert (first.stage, second.stage) == ("recognise", "traced")
    assert "flash_attention(" in first.changed and first.made.key() == second.given.key()
    # Before a derivative is taken, and when all is recorded, where nothing is left to find.
    inner, outer, traced, *_ = fxad.jit(fxad.grad(attention)).lower(x, x, x).compile().stages()
    assert [one.stage for one in (inner, outer, traced)] == ["recognise", "recognise", "traced"]
    assert "flash_attention(" in inner.changed and not outer.changed
    # What is recognised in a jitted function that is called is its own, traced now or before.
    jitted = fxad.jit(attention)
    for _ in range(2):
        called, *_ = fxad.jit(lambda x: jitted(x, x, x)).lower(x).stages()
        assert not called.changed


def test_parts_of_an_op_keep_its_line():
    lowered = fxad.jit(lambda x: fxad.lax.cumlogsumexp(x)).lower(whole(4))
    (line,) = {eqn.where for eqn in lowered.traced.eqns}
    assert len(lowered.program.eqns) > 3
    assert {eqn.where for eqn in lowered.program.eqns} == {line}


def test_what_is_not_legal_is_told_with_the_stage(monkeypatch):
    program = fxad.jit(lambda x: jnp.exp(x) + 1).lower(whole(3)).traced

    def broken(program):
        return Program(program.inputs, program.eqns[1:], program.outputs)

    passes = dict(compiler.passes()) | {"fold": Stage("fold", broken, check)}
    monkeypatch.setattr(compiler, "passes", lambda: passes)
    with pytest.raises(CheckError, match="after fold: add reads a value before it is defined"):
        simplified(program)


def test_only_what_has_loops_is_lowered():
    inner = fxad.jit(jnp.sin)
    program = fxad.jit(lambda x: inner(x) + 1).lower(whole(3)).traced
    with pytest.raises(CheckError, match="after tapes: call has no loops"):
        check_lowerable(program, "tapes")
    check_lowerable(simplified(program))


def block_of(function, *args):
    program = simplified(fxad.jit(function).lower(*args).traced)
    return compiler.Candidate(program, Options(), native()).block


def test_blocks_are_checked():
    block = block_of(lambda x, y: (jnp.sum(x) + y, x @ x), whole(4, 4), whole(4))
    check_block(block)
    with pytest.raises(CheckError, match="after order: .* reads a value that nothing has written"):
        check_block(Block(block.inputs[1:], block.steps, block.outputs), "order")
    with pytest.raises(CheckError, match="nothing has written an output"):
        check_block(Block(block.inputs, (), block.outputs))
    launch = block.steps[0]
    short = fxad.core.record.replace(launch, args=launch.args[:-1])
    with pytest.raises(CheckError, match=f"{launch.kernel.name}: a kernel of .* buffers"):
        check_block(Block(block.inputs, (short, *block.steps[1:]), block.outputs))
    other = Var(fxad.core.types.ArrayType(np.dtype(np.float64), (99,)))
    wrong = fxad.core.record.replace(launch, args=(*launch.args[:-1], other), writes=(other,))
    with pytest.raises(CheckError, match="float32"):
        check_block(Block((*block.inputs, other), (wrong, *block.steps[1:]), block.outputs))


def test_blocks_inside_loops_are_checked_and_rewritten():
    def f(x):
        return lax.scan(lambda c, r: (c + jnp.sort(r), c), x[0], x)

    block = block_of(f, whole(4, 4))
    assert "loop 4(" in str(block) and "block(" in str(block).split("\n", 1)[1]

    def without_steps(inner):
        is_body = len(inner.steps) and inner is not block and inner.inputs != block.inputs
        return Block(inner.inputs, (), inner.outputs) if is_body else inner

    with pytest.raises(CheckError, match="nothing has written an output"):
        check_block(in_all_blocks(without_steps, block))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_any_fuel_gives_the_same_bits(function):
    w, x = whole(4, 4), whole(4, 4)
    wanted = [np.asarray(v) for v in fxad.tree.leaves(fxad.jit(function)(w, x))]
    program, args = traced(function, w, x)
    for fuel in (0, 1, 2, 5, 12):
        with config.override(fuel=fuel):
            plan = planned(program, Options(), native()).plan
        same_bits(run_plan(plan, [a.copy() for a in args]), wanted, fuel)


def test_a_stage_that_may_be_left_out_spends_fuel():
    ran = []
    stage = Stage(
        "twice", lambda n: ran.append(n) or 2 * n, lambda made, stage: None, optional=True
    )
    with config.override(fuel=1):
        assert [stage(1), stage(1)] == [2, 1]
    assert ran == [1]


class Toy:
    """A backend of few lines: reference kernels, no scratch, nothing kept."""

    name, threads = "toy", 1
    emits = BACKENDS["python"]().emits

    def rounds(self, kernel):
        return False

    def scratch(self, plan):
        return 0

    def compile(self, plan):
        return ToyExecutable(plan)

    def identity(self):
        return None

    def recall(self, key):
        raise AssertionError("nothing is kept")

    keep = recall


class ToyExecutable:
    def __init__(self, plan):
        self.plan = plan
        self.kernels = [s.kernel for s in plan.steps if isinstance(s, Run)]

    def run(self, arrays):
        return run_plan(self.plan, [np.array(a) for a in arrays])


def test_a_backend_is_one_line_of_the_table(monkeypatch):
    monkeypatch.setitem(BACKENDS, "toy", Toy)
    f = fxad.jit(lambda w, x: jnp.maximum(x @ w, 0))
    w, x = whole(4, 4), whole(3, 4)
    np.testing.assert_array_equal(f.on("toy")(w, x), np.maximum(x @ w, 0))
    with pytest.raises(fxad.errors.BadArgument, match="toy"):
        f.on("tay")
