"""Programs to running code: the cache of Executables, and what runs ops outside every trace.

The backend is loaded when the first program is compiled, so that `import fxad` stays light.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from fxad import compiler
from fxad.core import system
from fxad.core.collecting import without_collection
from fxad.core.config import config
from fxad.core.depth import told_when_too_deep
from fxad.core.errors import BadArgument
from fxad.core.limits import check_result
from fxad.core.sizes import parse_bytes
from fxad.core.types import ArrayType
from fxad.ir.program import Eqn, Op, Program, Symbol, Var, param_key
from fxad.ir.rewrite import Watch, evaluate, set_watch
from fxad.ir.stages import Ran
from fxad.ops.programs.policies import Budget, ways_within
from fxad.trace import location
from fxad.trace.array import Concrete
from fxad.trace.execute import concrete, execute, wrap
from fxad.trace.tracer import set_executor, type_of
from fxad.transform.context import cached

Made = TypeVar("Made", bound="compiler.Executable")
LIMIT = 512  # executables kept; the least recently used goes first


class _State(threading.local):
    interpret = False
    watch: Watch | None = None


_state = _State()
_lock = system.free_in_children(threading.RLock())
_executables: OrderedDict[tuple, compiler.Executable] = OrderedDict()
_options = {"fusion": True}


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Interpret everything on the NumPy reference inside this block (False: compile as usual).

    >>> with fxad.disable_jit():  # Python sees the values
    ...     fxad.jit(lambda x: print(float(x)))(2.0)
    2.0
    """
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


def set_interpreting(on: bool) -> None:
    """Whether jitted functions run op by op from now on, in this thread."""
    _state.interpret = bool(on)


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
            "jit: memory_budget limits the host's memory, so values offloaded to the host would "
            "still count: give offload='disk' or 'none'"
        )
    return Budget(parse_bytes(nbytes, "memory_budget"), ways_within("jit", offload, compress))


def limit_memory(program: Program, budget: Budget) -> None:
    """Have this program (the object, not ones like it) planned to run in so many bytes."""
    _budgets[program] = budget


def planned(program: Program, donate: frozenset[int] = frozenset()) -> compiler.Attempt:
    """What runs in place of a closed Program, within its memory budget if it has one."""
    return compiler.planned(program, _told(program, donate), compiler.native())


def stages(program: Program, donate: frozenset[int] = frozenset()) -> list[Ran]:
    """What `executable` does to compile a closed Program, stage by stage."""
    with without_collection():
        return compiler.stages(program, _told(program, donate), compiler.native())


def _told(program: Program, donate: frozenset[int]) -> compiler.Options:
    return compiler.Options(donate, _options["fusion"], _budgets.get(program))


def executable(program: Program, donate: frozenset[int] = frozenset()) -> compiler.NativeExecutable:
    """The compiled form of a closed Program, from the cache where possible."""
    settings = (config.isa, config.offload_memory)  # plans hold the last too
    with without_collection():
        options, native = _told(program, donate), compiler.native()
        threads = None if options.budget is None else native.threads  # each has its scratch
        key = (program.key(), options, settings, threads)
        return _kept(key, program, lambda: compiler.executable(program, options, native))


def _kept(key: tuple, program: Program, make: Callable[[], Made]) -> Made:
    """The Executable of this key, made if there is none."""
    with _lock:
        found: Any = _executables.get(key)
        if found is not None:
            _executables.move_to_end(key)
            return found
        with told_when_too_deep(program.name):
            made = _executables[key] = make()
        while len(_executables) > LIMIT:
            _executables.popitem(last=False)
        return made


def forget() -> None:
    """Compile anew, or take from disk, whatever is asked for from now on."""
    with _lock:
        _executables.clear()


def run_on(target: str, program: Program, args: Sequence[Any]) -> list[Concrete]:
    """Run a closed Program on another backend: "python", "cpu" (both numba's source) or "cuda".
    Raises DeviceError where there is none."""
    options = compiler.Options(fusion=_options["fusion"])
    backend = compiler.BACKENDS[target]()
    key = (program.key(), options, target)
    made = _kept(key, program, lambda: compiler.executable(program, options, backend))
    return [Concrete(np.asarray(r)) for r in made.run([concrete(a) for a in args])]


class Ready:
    """A program looked up once, so that further calls go straight to its code."""

    __slots__ = ("_fusion", "direct", "executable", "run")

    def __init__(self, program: Program, donate: frozenset[int] = frozenset()) -> None:
        self._fusion = _options["fusion"]
        self.executable = made = _checked(program, donate)
        self.run: Callable[..., list[Any]] = made.run
        self.direct = made.direct  # see Executable.direct

    @property
    def valid(self) -> bool:
        """Whether the settings it was compiled under still hold. `config.isa` is not asked for: the
        code is as right as another instruction set's, and every call would pay for the question.
        """
        return self._fusion == _options["fusion"]


def _checked(program: Program, donate: frozenset[int]) -> compiler.NativeExecutable:
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
        made = op.type(*types, **params)
        outs = [Var(t) for t in (made if isinstance(made, tuple) else (made,))]
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
