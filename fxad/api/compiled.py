"""Programs to running code: the cache of Executables, and what runs ops outside every trace.

The backend is loaded when the first program is compiled, so that `import fxad` stays light.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fxad.api.passes import optimise
from fxad.core.collecting import without_collection
from fxad.core.config import config
from fxad.core.depth import told_when_too_deep
from fxad.core.errors import BadArgument
from fxad.core.limits import check_bytes, check_result, parse_bytes
from fxad.core.types import ArrayType
from fxad.ir.plan import Run, walk
from fxad.ir.program import Eqn, Op, Program, Symbol, Var, param_key, subprograms
from fxad.ir.rewrite import Watch, evaluate, set_watch
from fxad.ops.programs.policies import Budget, ways_within
from fxad.trace import location
from fxad.trace.array import Concrete
from fxad.trace.execute import concrete, execute, wrap
from fxad.trace.tracer import set_executor, type_of
from fxad.transform.context import cached

LIMIT = 512  # executables kept; the least recently used goes first


class _State(threading.local):
    interpret = False
    watch: Watch | None = None


_state = _State()
_lock = threading.RLock()
_executables: OrderedDict[tuple, Any] = OrderedDict()
_options = {"fusion": True}


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Interpret everything on the NumPy reference inside this block (False: compile as usual)."""
    before = _state.interpret
    _state.interpret = disable
    try:
        yield
    finally:
        _state.interpret = before


@contextmanager
def fusion(enabled: bool) -> Iterator[None]:
    """Compile with kernel fusion on or off inside this block (for tests and measurements)."""
    before = _options["fusion"]
    _options["fusion"] = bool(enabled)
    try:
        yield
    finally:
        _options["fusion"] = before


def interpreting() -> bool:
    return _state.interpret


_budgets: weakref.WeakKeyDictionary[Program, Budget] = weakref.WeakKeyDictionary()


def memory_budget(
    nbytes: int | str | None, compress: str | None, offload: str | None
) -> Budget | None:
    """What jit's options say of memory. Raises BadArgument."""
    if nbytes is None:
        if compress is not None or offload is not None:
            raise BadArgument(
                "jit: compress= and offload= say what memory_budget= may do: give a budget, or "
                "use fxad.checkpoint(..., compress=, offload=)"
            )
        return None
    if offload == "host":
        raise BadArgument(
            "jit: memory_budget counts the host's memory, where values would wait: offload is "
            "'disk' or 'none'"
        )
    return Budget(parse_bytes(nbytes, "memory_budget"), ways_within("jit", offload, compress))


def limit_memory(program: Program, budget: Budget) -> None:
    """Have this program (the object, not ones like it) planned to run in so many bytes."""
    _budgets[program] = budget


def prepared(program: Program, donate: frozenset[int] = frozenset()) -> tuple[Program, Any]:
    """A closed Program after the passes, within its memory budget if it has one, and its plan."""
    budget, fused = _budgets.get(program), _options["fusion"]
    if budget is not None:
        return _fitted(program, budget, donate, fused, _threads())
    optimised = optimise(program)
    if _asks(optimised):
        optimised = importlib.import_module("fxad.plan.budget").regions(optimised)
    planner = importlib.import_module("fxad.plan.again")
    made: tuple[Program, Any] = planner.planned(
        optimised, donate=donate, fusion=fused, rounds=_rounds()
    )
    return made


def _rounds() -> Any:
    """Which products this machine's native code rounds the factors of as it reads them."""
    measured = importlib.import_module("fxad.backend.llvm.measured")
    tiles = importlib.import_module("fxad.backend.llvm.contract.amx_plan")
    return functools.partial(tiles.rounds_factors, target=measured.target_of(config.isa))


def _asks(program: Program) -> bool:
    """Whether there is a checkpoint with a budget."""
    return any(
        eqn.op.name == "within" or any(_asks(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _threads() -> int:
    threads: int = importlib.import_module("fxad.backend.llvm.native.pool").get_num_threads()
    return threads


@cached
def _fitted(
    program: Program, budget: Budget, donate: frozenset[int], fused: bool, threads: int
) -> tuple[Program, Any]:
    """Planned within a budget that holds the scratch of its kernels on so many threads, which is
    seen by compiling them."""
    planner = importlib.import_module("fxad.plan.budget")
    native = importlib.import_module("fxad.backend.llvm.executable")

    def scratch(plan: Any) -> int:
        taken: int = native.Executable(plan).scratch_bytes
        return taken

    options = {"donate": donate, "fusion": fused, "ways": budget.ways, "scratch": scratch}
    fitted: tuple[Program, Any] = planner.fit(optimise(program), budget.nbytes, **options)
    return fitted


def executable(program: Program, donate: frozenset[int] = frozenset()) -> Any:
    """The compiled form of a closed Program, from the cache where possible."""
    settings = (_options["fusion"], config.isa, config.offload_memory)  # plans hold the last too
    with without_collection():
        budget = _budgets.get(program)
        limit = None if budget is None else (budget, _threads())  # each thread has its scratch
        key = (program.key(), donate, settings, limit)
        with _lock:
            found = _executables.get(key)
            if found is not None:
                _executables.move_to_end(key)
                return found
            with told_when_too_deep(program.name):
                made = _executables[key] = _recalled_or_made(program, donate)
            while len(_executables) > LIMIT:
                _executables.popitem(last=False)
            return made


def forget() -> None:
    """Compile anew, or take from disk, whatever is asked for from now on."""
    with _lock:
        _executables.clear()


def _recalled_or_made(program: Program, donate: frozenset[int]) -> Any:
    """The compiled form from the cache on disk, else made now."""
    disk = importlib.import_module("fxad.backend.llvm.disk")
    limited = program in _budgets  # which the address does not tell
    address = None if limited else disk.address(program, donate, _options["fusion"])
    found = disk.recall(address) if address is not None else None
    if found is not None:
        check_bytes(f"{program.name}: its intermediate values", found.plan.arena_bytes)
        return found
    start = time.perf_counter()
    _, plan = prepared(program, donate)
    _show(plan)
    check_bytes(f"{program.name}: its intermediate values", plan.arena_bytes)
    made = disk.Executable(plan)
    if address is not None:
        disk.keep(address, made, time.perf_counter() - start)
    return made


def plan_of(program: Program, donate: frozenset[int] = frozenset(), tiles: bool = True) -> Any:
    """The plan of a closed Program.

    tiles: see `lower.LowerConfig`.
    """
    planner = importlib.import_module("fxad.plan")
    fusion = _options["fusion"]
    plan = planner.plan(optimise(program), donate=donate, fusion=fusion, tiles=tiles)
    _show(plan)
    return plan


def _show(plan: Any) -> None:
    """FXAD_SHOW=kernels,plan prints what was planned."""
    if "kernels" in config.show:
        kernels = dict.fromkeys(s.kernel for s in walk(plan.steps) if isinstance(s, Run))
        print("\n\n".join(map(str, kernels)), file=sys.stderr)
    if "plan" in config.show:
        print(plan, file=sys.stderr)


def run_on(target: str, program: Program, args: Sequence[Any]) -> list[Concrete]:
    """Run a closed Program on another backend: "python", "cpu" (both numba's source) or "cuda".
    Raises DeviceError where there is none."""
    importlib.import_module("fxad.backend.numba.available").check_available(target)
    backend = importlib.import_module("fxad.backend.numba.execute")
    plan = plan_of(program, tiles=False)
    results = backend.execute_plan(plan, [concrete(a) for a in args], target)
    return [Concrete(np.asarray(r)) for r in results]


class Ready:
    """A program looked up once, so that further calls go straight to its code."""

    __slots__ = ("_fusion", "direct", "run")

    def __init__(self, program: Program, donate: frozenset[int] = frozenset()) -> None:
        self._fusion = _options["fusion"]
        made = _checked(program, donate)
        self.run: Callable[[list[Any]], list[Any]] = made.run
        self.direct = made.direct  # see Executable.direct

    @property
    def valid(self) -> bool:
        """Whether the settings it was compiled under still hold. `config.isa` is not asked for: the
        code is as right as another instruction set's, and every call would pay for the question.
        """
        return self._fusion == _options["fusion"]


def _checked(program: Program, donate: frozenset[int]) -> Any:
    for type_ in program.out_types:
        if isinstance(type_, ArrayType):
            check_result(program.name, type_)
    return executable(program, donate)


@cached
def _ready(program: Program, fused: bool) -> Ready:
    return Ready(program)


def run_program(program: Program, args: Sequence[Any]) -> list[Any]:
    """Run a closed Program on concrete values."""
    arrays = [concrete(a) for a in args]
    if _state.interpret:
        return [wrap(r) for r in evaluate(program, arrays)]
    return [wrap(r) for r in _ready(program, _options["fusion"]).run(arrays)]


_wrapped: OrderedDict[tuple, Program] = OrderedDict()


def _as_program(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Program:
    """A program of one equation, remembered so that its structural key is computed once."""
    types = tuple(type_of(a) for a in args)
    params_key = tuple((k, _identity(v)) for k, v in sorted(params.items()))
    key = (op.name, types, params_key)
    found = _wrapped.get(key)
    if found is None:
        inputs = [Var(t) for t in types]
        outs = [Var(t) for t in op.type(*types, **params)]
        found = Program(inputs, [Eqn(op, tuple(inputs), params, tuple(outs))], outs, op.name)
        with _lock:
            _wrapped[key] = found
            while len(_wrapped) > LIMIT:
                _wrapped.popitem(last=False)
    return found


def _identity(value: Any) -> object:
    """Programs by identity (kept alive by the cached program), the rest by value."""
    if isinstance(value, Program):
        return value
    if isinstance(value, tuple):
        return tuple(_identity(v) for v in value)
    return param_key(value)


def _has_symbols(params: dict[str, Any]) -> bool:
    return any(isinstance(v, Symbol) for v in params.values())


def _execute(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Outside every trace: ops that hold programs run compiled, others on the reference."""
    if not op.higher or _state.interpret or _has_symbols(params):
        return execute(op, args, params)
    if op.name == "call":
        return tuple(run_program(params["program"], args))
    return tuple(run_program(_as_program(op, args, params), args))


set_executor(_execute)


def _execute_watched(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    results = _execute(op, args, params)
    if _state.watch is not None:
        listed = results if isinstance(results, tuple) else (results,)
        where = location.current()
        _state.watch(op, [concrete(a) for a in args], [concrete(r) for r in listed], where)
    return results


def _watch_evaluation(op: Op, args: Sequence[Any], results: Sequence[Any], where: str) -> None:
    if _state.watch is not None:
        _state.watch(op, args, results, where or location.current())


_watching: list[Watch | None] = []  # of all threads


@contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Interpret everything inside this block, op by op, and show every op's operands and results
    to `watch` as it happens (None: to whom they are shown already). Outside such blocks nothing is
    paid for it."""
    before = _state.watch
    watch = before if watch is None else watch
    with _lock:
        _watching.append(watch)
        set_watch(_watch_evaluation)
        set_executor(_execute_watched, observed=True)
    _state.watch = watch
    try:
        with disable_jit():
            yield
    finally:
        _state.watch = before
        with _lock:
            _watching.remove(watch)
            if not _watching:
                set_watch(None)
                set_executor(_execute)
