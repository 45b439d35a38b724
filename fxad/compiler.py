"""The compiler on one page: what happens between a traced Program and an Executable, in order.

    made = executable(program, Options(), BACKENDS["llvm"]())
    made.run([x, w])

Stage 0, `recognise`, is part of tracing. Every stage is a function from record to record with a
name, a checker and a text (`fxad.ir.stages`):

    Program     simplified: inline, fold, algebra, cse, dce; rows_apart, widen_late, offload
                checkpoints: regions with a byte budget of their own
    Candidate   decompose, complex_products, split_keys, tapes, lower (to a Block), unpack (of a
                program with dequantize), round, order, place (a Plan)
                rematerialization proposes other Programs, and the best of all candidates is taken
    Plan        compile, by a backend; what took long is kept on disk

This is the only module that knows passes, lower, plan, rematerialization and the backends, which
know nothing of each other. It imports them inside functions: a program read from disk needs none
of the first four.
"""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fxad.core.config import ConfigWarning, config, spend_fuel
from fxad.core.limits import check_bytes
from fxad.core.record import replace, valued
from fxad.ir.kernel import Attention, Kernel
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.program import Program, Var
from fxad.ir.rewrite import dce, everywhere, has_op
from fxad.ir.stages import Ran, Stage, listening, run_stage
from fxad.ops.programs.policies import Budget
from fxad.transform.context import cached

if TYPE_CHECKING:
    from fxad.backend.protocol import Backend, Native
    from fxad.backend.protocol import Direct as Direct
    from fxad.backend.protocol import Executable as Executable
    from fxad.backend.protocol import NativeExecutable as NativeExecutable
    from fxad.backend.protocol import Tuned as Tuned
    from fxad.ir.block import Block
    from fxad.ir.rules import Value
    from fxad.rematerialization.attempt import Attempt as Attempt
    from fxad.rematerialization.attempt import Attempts

Made = TypeVar("Made", bound="Executable")


@valued
class Options:
    """What a compilation is told beside the Program. donate: arguments whose memory results may
    take over. fusion: whether kernels compute several equations. budget: bytes for all memory."""

    donate: frozenset[int] = frozenset()
    fusion: bool = True
    budget: Budget | None = None


# ---------------------------------------------------------------- Program to Executable


def executable(traced: Program, options: Options, backend: Backend[Made]) -> Made:
    """The compiled form of a closed Program, from disk if there is one, else made now and kept."""
    from fxad.cache_key import key

    name = None
    if options.budget is None:
        name = key(traced, options.donate, options.fusion, backend.identity)
    found = None if name is None else backend.recall(name)
    if found is not None:
        check_bytes(f"{traced.name}: its intermediate values", found.plan.arena_bytes)
        return found
    start = time.perf_counter()
    made = compiled(traced, planned(traced, options, backend).plan, backend)
    if name is not None:
        backend.keep(name, made, time.perf_counter() - start)
    return made


def planned(traced: Program, options: Options, backend: Backend[Executable]) -> Attempt:
    """The Program that runs in place of a traced one, and its Plan. A search for one that keeps
    within a budget takes long and is remembered."""
    if options.budget is not None:
        return _remembered(traced, options, backend, backend.threads)  # each has scratch
    return planned_anew(traced, options, backend)


@cached
def _remembered(
    traced: Program, options: Options, backend: Backend[Executable], threads: int
) -> Attempt:
    return planned_anew(traced, options, backend)


def planned_anew(traced: Program, options: Options, backend: Backend[Executable]) -> Attempt:
    program = simplified(traced)
    program = within_checkpoints(program, backend)
    best = best_candidate(program, options, backend)
    show(best.plan)
    return best


def compiled(traced: Program, plan: Plan, backend: Backend[Made]) -> Made:
    """A Plan as something to run. Raises SizeError where no machine has the memory."""
    check_bytes(f"{traced.name}: its intermediate values", plan.arena_bytes)
    return run_stage("compile", backend.compile, plan, lambda *_: None)


def stages(traced: Program, options: Options, backend: Backend[Executable]) -> list[Ran]:
    """Every stage that runs when a traced Program is compiled, and what it made. It is compiled
    anew; stage 0 ran when it was traced."""
    ran: list[Ran] = []
    with listening(ran.append):
        compiled(traced, planned_anew(traced, options, backend).plan, backend)
    return ran


# ---------------------------------------------------------------- Program to Program


def recognise(program: Program, captured: Sequence[Value]) -> tuple[Program, list[Value]]:
    """Stage 0, when a Program is traced: attention and a head's loss in it as one op each.

    captured: values of its consts. Those that are still read come back with the program.
    """
    from fxad.ir.check import check
    from fxad.passes.recognise import recognise

    made = run_stage("recognise", partial(recognise, captured=captured), program, check)
    read = {*made.consts}
    return made, [x for v, x in zip(program.consts, captured, strict=True) if v in read]


def inlined(program: Program) -> Program:
    """A Program without calls, for analyses of it."""
    from fxad.passes.inline import inline

    return inline(program)


SIMPLIFY = ("inline", "fold", "algebra", "cse", "algebra", "dce")
ONCE = ("rows_apart", "widen_late", "offload")  # when all else is done
AT_ONCE = {"inline", "dce", "widen_late", "offload"}  # spend one fuel; the others one a rewrite


@functools.cache
def passes() -> dict[str, Stage]:
    """Every pass by name."""
    from fxad.ir.check import check
    from fxad.passes.algebra import algebra
    from fxad.passes.cse import cse
    from fxad.passes.fold import fold
    from fxad.passes.inline import inline
    from fxad.passes.offload import offload
    from fxad.passes.rows_apart import rows_apart
    from fxad.passes.widen_late import widen_late

    inside: dict[str, Callable[[Program], Program]]
    inside = {"inline": inline, "dce": dce, "fold": fold, "algebra": algebra, "cse": cse}
    whole = {"rows_apart": rows_apart, "widen_late": widen_late, "offload": offload}
    run = {name: partial(everywhere, one) for name, one in inside.items()} | whole
    return {name: Stage(name, one, check, name in AT_ONCE) for name, one in run.items()}


def simplified(program: Program, names: Sequence[str] = (*SIMPLIFY, *ONCE)) -> Program:
    """An equivalent, cheaper Program, by the passes of these names in order."""
    from fxad.ir.check import check

    program = run_stage("traced", lambda traced: traced, program, check)
    for name in names:
        program = passes()[name](program)
    return program


def within_checkpoints(program: Program, backend: Backend[Executable]) -> Program:
    """With the residuals of each checkpoint that has a budget within that budget."""
    if not has_op(program, "within"):
        return program
    from fxad.ir.check import check
    from fxad.passes.offload import offload
    from fxad.rematerialization.checkpoints import regions

    alone = attempts(Options(), backend).alone
    budgets = partial(regions, alone=alone, offload=offload)
    return run_stage("checkpoints", budgets, program, check, optional=True)


# ---------------------------------------------------------------- Program to Plan


class Candidate:
    """A Program, the Block it is lowered to, and its Plan, each made when first asked for.

    rounds: which products round their factors themselves; None: none.
    """

    def __init__(
        self,
        program: Program,
        options: Options,
        backend: Backend[Executable],
        rounds: Callable[[Kernel], bool] | None = None,
    ) -> None:
        self.program = program
        self._options = options
        self._backend = backend
        self._rounds = rounds

    def __str__(self) -> str:
        return str(self.program)

    @functools.cached_property
    def block(self) -> Block:
        from fxad.ir.block import in_all_blocks
        from fxad.ir.check import check, check_lowerable
        from fxad.ir.check_block import check_block
        from fxad.lower.lower import lower
        from fxad.lower.reads_first import reads_first
        from fxad.lower.rounding import round_in_products
        from fxad.lower.unpacking import unpack_in_products
        from fxad.passes.complex_products import complex_products
        from fxad.passes.inline import inline
        from fxad.passes.split_keys import split_keys
        from fxad.passes.tapes import tapes

        fusion, rounds = self._options.fusion, self._rounds
        parts = Attention not in self._backend.emits
        program = self.program.closed()
        program = run_stage("decompose", partial(inline, parts=parts), program, check)
        program = run_stage("complex_products", complex_products, program, check, optional=True)
        program = run_stage("split_keys", split_keys, program, check, optional=True)
        program = run_stage("tapes", tapes, program, check_lowerable)
        block = run_stage("lower", partial(lower, fusion=fusion), program, check_block)
        if fusion and has_op(program, "dequantize"):
            unpacking = partial(unpack_in_products, unpacks=self._backend.unpacks)
            unpacking = partial(in_all_blocks, unpacking)
            block = run_stage("unpack", unpacking, block, check_block, optional=True)
        if fusion and rounds is not None:
            rounding = partial(in_all_blocks, partial(round_in_products, rounds=rounds))
            block = run_stage("round", rounding, block, check_block, optional=True)
        order = partial(in_all_blocks, reads_first)
        return run_stage("order", order, block, check_block, optional=True)

    @functools.cached_property
    def plan(self) -> Plan:
        from fxad.ir.check_plan import check_plan
        from fxad.plan.planner import plan

        types, donate = (self.program.in_types, self.program.out_types), self._options.donate
        return run_stage("place", lambda b: plan(b, *types, donate), self.block, check_plan)

    @property
    def stored(self) -> set[Var]:
        """The values that have memory of their own."""
        from fxad.ir.block import stored

        return stored(self.block)

    @property
    def as_run(self) -> Program:
        """The Program with its equations in the order in which the Plan runs them."""
        from fxad.plan.order import as_run

        return as_run(self.program, self.block, self._options.donate)


def attempts(
    options: Options, backend: Backend[Executable], rounds: Callable[[Kernel], bool] | None = None
) -> Attempts:
    """How rematerialization tries Programs."""
    from fxad.rematerialization.attempt import Attempts

    alone = replace(options, donate=frozenset())
    return Attempts(
        lambda program: Candidate(program, options, backend, rounds),
        lambda program: Candidate(program, alone, backend),
    )


def best_candidate(program: Program, options: Options, backend: Backend[Executable]) -> Attempt:
    """Of a Program, of one that fits in its budget, or of one that recomputes what is cheaper
    to compute than to keep."""
    from fxad.ir.check import check
    from fxad.passes.offload import offload
    from fxad.rematerialization.automatic import rematerialized
    from fxad.rematerialization.budget import fit

    def best(program: Program) -> Attempt:
        budget = options.budget
        tried = attempts(options, backend, backend.rounds if budget is None else None)
        if not spend_fuel():
            return tried.whole(program)
        if budget is not None:
            nbytes, ways = budget.nbytes, budget.ways
            return fit(program, nbytes, tried, offload, ways=ways, scratch=backend.scratch)
        return rematerialized(program, tried) if options.fusion else tried.whole(program)

    def legal(made: Attempt, stage: str) -> None:
        check(made.program, stage)

    return run_stage("rematerialize", best, program, legal)


# What FXAD_SHOW can name: every stage, and what was decided in the end.
SHOWN = {"recognise", "traced", *SIMPLIFY, *ONCE, "checkpoints", "decompose", "complex_products"}
SHOWN |= {"split_keys", "tapes", "lower", "unpack", "round", "order", "place", "rematerialize"}
SHOWN |= {"compile", "kernels", "plan"}


def show(plan: Plan) -> None:
    """FXAD_SHOW=kernels,plan prints what was planned. Warns of names that mean nothing."""
    if not config.show <= SHOWN:
        unknown, known = sorted(config.show - SHOWN), sorted(SHOWN)
        text = f"FXAD_SHOW: {', '.join(unknown)}: no such stage; there are {', '.join(known)}"
        warnings.warn(text, ConfigWarning, stacklevel=2)
    if "kernels" in config.show:
        kernels = dict.fromkeys(s.kernel for s in walk(plan.steps) if isinstance(s, Run))
        print("\n\n".join(map(str, kernels)), file=sys.stderr)
    if "plan" in config.show:
        print(plan, file=sys.stderr)


# ---------------------------------------------------------------- backends


@functools.cache
def native() -> Native:
    """Machine code for this processor."""
    from fxad.backend.llvm.backend import LLVM

    return LLVM()


def numba(target: str) -> Backend[Executable]:
    """Kernels as Python source. Raises DeviceError where a target cannot run."""
    from fxad.backend.numba.backend import Numba

    return Numba(target)


BACKENDS: dict[str, Callable[[], Backend[Executable]]] = {
    "llvm": native,
    "cuda": partial(numba, "cuda"),
    "cpu": partial(numba, "cpu"),
    "python": partial(numba, "python"),
}
