"""A case through every stage of the compiler, as text: nothing is compiled by LLVM, nothing runs.

    texts(find("products/nn-64"), "neon")["llvm"]

program: after the passes. kernels: each once, in the order of first use. plan: what runs when, and
where every byte lives. llvm: the functions of kernels, of loops that are one function, of factors.
calls: the words that the native interpreter of plans reads. Source lines are left out, local names
are numbers and addresses have names, so that a text is the same on every machine.

What these tests know of the compiler's inside is in this file and in `targets.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fxad.backend.llvm import runner
from fxad.backend.llvm.backend import LLVM
from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.contract.amx_blocking import rounds_factors
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.factors import calls
from fxad.backend.llvm.native import engine, library, tape_code
from fxad.backend.llvm.sequence.choose import sequences, walk_outside
from fxad.backend.llvm.sequence.emit import PASSES, Emission
from fxad.compiler import Options, best_candidate, simplified, within_checkpoints
from fxad.core import system
from fxad.core.config import config
from fxad.core.record import record
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Kernel, kernel_text
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.program import Naming, Program, show, subprograms
from fxad.ops.programs.policies import Budget
from tests.recorded.catalogue import Case
from tests.recorded.normal import instructions, normalised
from tests.recorded.targets import target as target_named

PLANNED = ("program", "kernels", "plan")  # nearly always the same for all instruction sets
WRITTEN = ("llvm", "calls")
STAGES = (*PLANNED, *WRITTEN)


@record
class Stages:
    """Texts of some of the stages, and how large they are."""

    texts: dict[str, str]
    counts: dict[str, int]


def texts(case: Case, target: str) -> dict[str, str]:
    """The text of every stage, in order."""
    return {**planned_for(case, target).texts, **written_for(case, target).texts}


def is_shared(case: Case, target: str) -> bool:
    """Whether the target plans the case as most targets do."""
    return not _planner(case, target)


# ---------------------------------------------------------------- program, kernels, plan


def planned_for(case: Case, target: str) -> Stages:
    """The stages up to the plan; one object for all targets that agree."""
    return _described(case, _planner(case, target))


def _planner(case: Case, target: str) -> str:
    """Which target's plan it is: "" for that of all whose code rounds no factors of this case's
    products."""
    wanted = target_named(target)
    rounds = any(rounds_factors(kernel, wanted) for kernel in _traced(case).products)
    return target if rounds else ""


@contextmanager
def _settled() -> Iterator[None]:
    """Without what the environment may say."""
    settings = {"check": False, "show": (), "fuel": None, "recognise": True, "cache": False}
    with config.override(**settings, offload_memory=1 << 28):
        yield


class _Planner(LLVM):
    """What planning asks of native code for some target; its code takes no scratch."""

    def __init__(self, rounds: Any = None) -> None:
        self.rounds = rounds  # type: ignore[method-assign]

    def scratch(self, plan: Plan) -> int:
        return 0


@record
class _Traced:
    """A case after the passes, the arguments to donate, its plan where native code rounds no
    factors of products, and the products of which the planner asks whether it does."""

    program: Program
    donate: frozenset[int]
    plan: tuple[Program, Plan]
    products: tuple[Kernel, ...]


@functools.lru_cache(maxsize=4)
def _traced(case: Case) -> _Traced:
    with _settled():
        traced, donate = case.traced()
        program = within_checkpoints(simplified(traced), _Planner())
    asked: list[Kernel] = []
    plan = _plan(case, program, donate, _Planner(lambda kernel: bool(asked.append(kernel))))
    return _Traced(program, donate, plan, tuple(asked))


def _plan(
    case: Case, program: Program, donate: frozenset[int], backend: Any
) -> tuple[Program, Plan]:
    budget = None if case.budget is None else Budget(case.budget, case.ways)
    with _settled():
        best = best_candidate(program, Options(donate, budget=budget), backend)
        return best.program, best.plan


@functools.lru_cache(maxsize=4)
def _plan_for(case: Case, target: str) -> tuple[Program, Plan]:
    """target: see `_planner`."""
    traced = _traced(case)
    if not target:
        return traced.plan
    rounds = functools.partial(rounds_factors, target=target_named(target))
    return _plan(case, traced.program, traced.donate, _Planner(rounds))


@functools.lru_cache(maxsize=4)
def _described(case: Case, target: str) -> Stages:
    program, plan = _plan_for(case, target)
    runs = [step.kernel for step in walk(plan.steps) if isinstance(step, Run)]
    kernels = _Numbered(runs)
    listed = [f"# {n}: {k.name}\n{kernel_text(k)}" for n, k in kernels.distinct.items()]
    order = " ".join(kernels.number(kernel) for kernel in runs)
    texts = {
        "program": show(program, where=False, names=Naming(labels=False)) + "\n",
        "kernels": "\n".join(listed),
        "plan": f"{plan}\nkernels of the runs: {order}\n",
    }
    counts = {
        "equations": _equations(program),
        "kernels": len(listed),
        "steps": sum(1 for _ in walk(plan.steps)),
        "arena": plan.arena_bytes,
    }
    return Stages(texts, counts)


class _Numbered:
    """Kernels as k0, k1, ... in the order of first use; equal ones have one number."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        keys = {kernel: kernel_key(kernel) for kernel in kernels}
        names = {key: f"k{n}" for n, key in enumerate(dict.fromkeys(keys.values()))}
        self._numbers = {kernel: names[key] for kernel, key in keys.items()}
        self.distinct: dict[str, Kernel] = {}
        for kernel, number in self._numbers.items():
            self.distinct.setdefault(number, kernel)

    def number(self, kernel: Kernel) -> str:
        return self._numbers[kernel]


def _equations(program: Program) -> int:
    inside = sum(_equations(p) for eqn in program.eqns for _, p in subprograms(eqn))
    return len(program.eqns) + inside


# ---------------------------------------------------------------- llvm, calls


def written_for(case: Case, target: str) -> Stages:
    """The code that is written for a case, and the words by which it is called."""
    _, plan = _plan_for(case, _planner(case, target))
    wanted, symbols = target_named(target), _Symbols(plan)
    parts: list[str] = []
    loops = []
    for n, sequence in enumerate(sequences(plan, wanted.tuning.sequences)):
        emission = Emission(sequence, wanted)
        functions, declarations = emission.emit()
        parts += [
            f"; loop{n}, passes of level {PASSES}",
            *sorted(declarations),
            normalised("\n".join(functions)),
            "",
        ]
        address, cost = symbols.number(f"loop{n}"), emission.cost(sequence.loop)
        loops.append(SimpleNamespace(sequence=sequence, address=address, cost=cost))
    outside = walk_outside(plan.steps, {loop.sequence.loop for loop in loops})
    runs = list(dict.fromkeys(step.kernel for step in outside if isinstance(step, Run)))
    kernels, codes = _Numbered(runs), {}
    for number, kernel in kernels.distinct.items():
        made = emit(kernel, "kernel", wanted)
        codes[number] = _Callable(symbols.number(number), made)
        parts += [f"; {number}", *sorted(made.declarations), normalised(made.text), ""]
    of_kernel = {kernel: codes[kernels.number(kernel)] for kernel in runs}
    words, groups = _encoded(plan, of_kernel, loops, wanted, symbols)
    for group, dtype in groups:
        parts += [f"; {group} {dtype}", _factors(group, dtype, target), ""]
    llvm = "\n".join(parts)
    return Stages({"llvm": llvm, "calls": words}, sizes(llvm))


def sizes(llvm: str) -> dict[str, int]:
    """How many functions and instructions a text has."""
    return {"functions": llvm.count("\ndefine "), "instructions": instructions(llvm)}


@functools.lru_cache(maxsize=128)
def _factors(group: str, dtype: str, target: str) -> str:
    """The functions by which a plan computes factors instead of calling LAPACK."""
    library = calls.written(group, np.dtype(dtype), target_named(target))
    functions = [normalised(text) for text in library.texts]
    return "\n".join([*sorted(library.declarations), *functions])


class _Callable:
    """What the encoder of plans knows of a kernel's code."""

    def __init__(self, address: int, emitted: Emitted) -> None:
        self.address = address
        self.units, self.cost = emitted.units, emitted.cost
        self.scratch_bytes = emitted.scratch_bytes


class _Symbols:
    """Numbers in place of addresses, and names for both."""

    def __init__(self, plan: Plan) -> None:
        self._names = {id(np.ndarray): "ndarray"}
        for slot in plan.slots:
            if slot.place in ("argument", "result"):
                self._names[id(slot.type.dtype)] = str(slot.type.dtype)

    def number(self, name: str) -> int:
        number = (1 << 62) + len(self._names)
        self._names[number] = name
        return number

    def text(self, words: Sequence[int]) -> str:
        named = [self._names.get(word, str(word)) for word in words]
        return "\n".join(" ".join(named[n : n + 16]) for n in range(0, len(named), 16))


def _encoded(
    plan: Plan, codes: Any, loops: Sequence[Any], target: Target, symbols: _Symbols
) -> tuple[str, list[tuple[str, str]]]:
    """What the interpreter reads for a plan; the groups of factors that it calls."""
    groups: dict[tuple[str, str], None] = {}

    def functions(target: Target, dtype: np.dtype, group: str) -> dict[str, int]:
        groups[group, dtype.name] = None
        return _Addresses(lambda kind: symbols.number(f"{group}.{kind}.{dtype.name}"))

    tapes = {kind: symbols.number(f"tape.{kind}") for kind in tape_code.KERNELS}
    runtime = SimpleNamespace(copy=symbols.number("copy"), tapes=tapes)
    with (
        mock.patch.object(runner, "runtime", return_value=runtime),
        mock.patch.object(calls, "functions", functions),
    ):
        encoded = runner.encode(plan, codes, loops, target)
    about = [
        f"frame {len(encoded.template)} words, arguments from {encoded.args}",
        f"scratch {encoded.scratch_bytes} bytes{', parallel' * encoded.parallel}",
        *[f"host {step.name}" for step in encoded.hosts],
    ]
    return "\n".join([*about, symbols.text(list(encoded.code)), ""]), list(groups)


class _Addresses(dict[str, int]):
    """An address for every name that is asked for."""

    def __init__(self, number: Any) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, name: str) -> int:
        found = self[name] = self._number(name)
        return int(found)


def runtime_text(target: str) -> str:
    """The native runtime on Linux, before the layout of Python's objects is filled in: threads, the
    interpreter of plans, tapes, calls. And what all functions of a target have as attributes."""
    wanted = target_named(target)
    text = _runtime_text("aarch64" if wanted.isa == "neon" else "x86_64")
    return f"{text}\n\n{engine.attribute_groups(wanted)}"


@functools.lru_cache(maxsize=4)
def _runtime_text(machine: str) -> str:
    with (
        mock.patch.object(system, "machine", return_value=machine),
        mock.patch.object(system, "name", return_value=system.LINUX),
    ):
        functions, declarations = library._texts()
    return normalised("\n".join([*sorted(declarations), "", *functions]))
