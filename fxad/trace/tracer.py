"""Levels, tracers and `bind`: how calling an op becomes an equation, a number, or both.

A thread has a stack of levels. `bind(op, *args)` goes to the highest level among the arguments'
tracers and the innermost *floor*, a level that records everything bound while it is active (a
`jit` trace, the body of a `scan`). Without either the op is executed at once on NumPy arrays; so
is, inside `vmap` or `grad`, what does not depend on their arguments.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fxad.core.depth import told_when_too_deep
from fxad.core.errors import ConcretizationError, LeakedTracerError, ShapeError
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import Atom, Eqn, Lit, Op, Program, Var
from fxad.ir.rewrite import dce, literal
from fxad.trace import leaks, location
from fxad.trace.array import Array, Concrete
from fxad.trace.execute import execute
from fxad.trace.execute import type_of as type_of

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue


class _Stack(threading.local):
    def __init__(self) -> None:
        self.levels: list[Level] = []
        self.floor: Level | None = None
        self.recording = 0  # active levels whose function is recorded


_stack = _Stack()


class Level:
    """One active trace of this thread; entered with `with`. Subclasses say what `process` does."""

    floor = False  # whether it is asked about every op
    records = False  # whether its function is run once, for a Program, and not for values

    def __init__(self) -> None:
        self.depth = -1
        self._outer_floor: Level | None = None
        self.alive = False

    def __enter__(self) -> Self:
        self.depth = len(_stack.levels)
        self._outer_floor = _stack.floor
        _stack.levels.append(self)
        if self.floor:
            _stack.floor = self
        _stack.recording += self.records
        self.alive = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _stack.levels.pop()
        _stack.floor = self._outer_floor
        _stack.recording -= self.records
        self.alive = False

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        raise NotImplementedError


class Tracer(Array):
    """A value known only by type while its level is active."""

    __slots__ = ("level", "where")
    type: Any  # an ArrayType; of the few values that are tapes, a TapeType

    def __init__(self, level: Level, type: Type, where: str = "") -> None:
        self.level = level
        self.type = type
        self.weak = False
        self.where = where

    def _needs_value(self, action: str) -> ConcretizationError:
        check_alive(self)
        made = ConcretizationError.during(action, str(self.type), location.current())
        made.value = self
        return made

    def __bool__(self) -> bool:
        if self.type.shape:
            raise ShapeError(f"the truth value of {self.type} is ambiguous: use any or all")
        raise self._needs_value("bool()")

    def __int__(self) -> int:
        raise self._needs_value("int()")

    def __float__(self) -> float:
        raise self._needs_value("float()")

    def __complex__(self) -> complex:
        raise self._needs_value("complex()")

    def __index__(self) -> int:
        raise self._needs_value("use as a Python index")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        check_alive(self)
        made = ConcretizationError(
            f"NumPy was asked to read the traced value {self.type} "
            f"({location.current()}); use the function of the same name in fxad.numpy."
        )
        made.value = self
        raise made

    def item(self, *args: int) -> Any:
        """Raises: a traced value has no number yet."""
        raise self._needs_value(".item()")

    def tolist(self) -> Any:
        """Raises: a traced value has no numbers yet."""
        raise self._needs_value(".tolist()")

    def tobytes(self, order: str = "C") -> bytes:
        """Raises: a traced value has no bytes yet."""
        raise self._needs_value(".tobytes()")

    def __repr__(self) -> str:
        return f"Traced<{self.type}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


class StagedTracer(Tracer):
    """The value of one variable of a Program under construction."""

    __slots__ = ("atom",)

    def __init__(self, level: Level, atom: Var, where: str = "") -> None:
        self.level = level
        self.type = atom.type
        self.weak = False
        self.where = where
        self.atom = atom


class CarryNote:
    """What became of a weakly typed carry while the body it was given to was traced."""

    __slots__ = ("observed", "widened")

    def __init__(self) -> None:
        self.observed = False  # whether anybody asked for its type
        self.widened: tuple[ArrayType, bool] | None = None  # as what an inner loop took it


class CarryTracer(StagedTracer):
    """The weakly typed carry of a loop, whose dtype is not settled while the body is traced.

    Whoever reads its type may decide by it, and is asked again should the dtype change. A carry
    that is only handed to another loop need not be traced again (`fxad.lax.carry`).
    """

    __slots__ = ("note",)

    def __init__(self, value: StagedTracer, note: CarryNote) -> None:
        self.note = note
        self.level = value.level
        self.weak = value.weak
        self.where = value.where
        self.atom = value.atom

    @property
    def type(self) -> Any:  # type: ignore[override]  # it is never assigned
        """The type it has in this trace; whoever asks is noted."""
        self.note.observed = True
        return self.atom.type


class Staging(Level):
    """Records every op bound while it is active into a Program; values from outside it become
    consts."""

    floor = True
    records = True

    def __init__(self) -> None:
        super().__init__()
        self.eqns: list[Eqn] = []
        self._captured: dict[int, tuple[Var, Any]] = {}
        self.outlined: dict[Any, Any] = {}  # what `fxad.api.outline` has recorded to be called here

    def input(self, type: Type, weak: bool = False, where: str = "") -> StagedTracer:
        made = StagedTracer(self, Var(type), where or location.current())
        made.weak = weak
        return made

    def atom(self, value: Any) -> Atom:
        """The atom standing for a value in this program, capturing it if it is foreign."""
        if isinstance(value, StagedTracer) and value.level is self:
            return value.atom
        if isinstance(value, Lit):
            return value
        known = self._captured.get(id(value))
        if known is not None:
            return known[0]
        if isinstance(value, Tracer):
            check_alive(value)
            var = Var(value.type)
        elif isinstance(type_of(value), TapeType):
            var = Var(value.type)
        else:
            array = value if isinstance(value, Concrete) else np.asarray(value)
            if isinstance(value, np.generic | bool | int | float | complex):
                return literal(value, array.dtype)
            var = Var(ArrayType(array.dtype, array.shape))
        self._captured[id(value)] = (var, value)
        return var

    def needed(self, atoms: set[Atom]) -> tuple[set[Atom], list[Any]]:
        """What variables depend on: inputs and consts of the program recorded here, and the values
        of those consts."""
        needed = set(atoms)
        for eqn in reversed(self.eqns):
            if not needed.isdisjoint(eqn.outputs):
                needed.update(eqn.inputs)
                needed.difference_update(eqn.outputs)
        return needed, [value for var, value in self._captured.values() if var in needed]

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        atoms = tuple(
            [a.atom if type(a) is StagedTracer and a.level is self else self.atom(a) for a in args]
        )
        types = op.type(*[a.type for a in atoms], **params)
        where, phase = location.here()
        single = not isinstance(types, tuple)
        outputs = tuple([Var(t) for t in types]) if isinstance(types, tuple) else (Var(types),)
        pair = location.pair() if op.name == "scan" else None
        self.eqns.append(Eqn(op, atoms, params, outputs, where, phase, pair))
        if single:
            return StagedTracer(self, outputs[0], where)
        return tuple([StagedTracer(self, v, where) for v in outputs])

    def finish(
        self, inputs: Sequence[StagedTracer], outputs: Sequence[Any], name: str
    ) -> tuple[Program, list[Any]]:
        """The Program recorded so far and the captured values of its consts."""
        self.outlined.clear()  # a cycle: it holds values of this level, which hold the level
        atoms = [self.atom(o) for o in outputs]
        captured = list(self._captured.values())
        variables = [t.atom for t in inputs]
        program = dce(Program(variables, self.eqns, atoms, name, [v for v, _ in captured]))
        read: set[Atom] = set(program.outputs)
        for eqn in program.eqns:
            read.update(eqn.inputs)
        live = [(v, value) for v, value in captured if v in read]
        program = Program(variables, program.eqns, program.outputs, name, [v for v, _ in live])
        return program, [value for _, value in live]


class Lane(Staging):
    """Records what depends on its inputs alone, so that values of all else are known."""

    floor = False


def stage(
    function: Callable[..., Sequence[Any]],
    types: Sequence[Type],
    name: str = "f",
    weak: Sequence[bool] | None = None,
    kind: Callable[[], Staging] = Staging,
) -> tuple[Program, list[Any]]:
    """Trace `function` (flat values to a sequence of values) into a Program, on a level of `kind`.

    Returns the Program and the values of its consts: arrays, or tracers of outer levels.
    """
    flags = weak or [False] * len(types)
    with told_when_too_deep(name), kind() as level:
        where = location.current()
        tracers = [level.input(t, w, where) for t, w in zip(types, flags, strict=True)]
        try:
            outputs = function(*tracers)
        except ConcretizationError as error:
            if error.value is not None:
                error.sources, error.value = _sources(error.value), None
            error.inputs = tuple([i for i, t in enumerate(tracers) if t.atom in error.sources])
            raise
        made = level.finish(tracers, outputs, name)
    if leaks.watched():
        del tracers, outputs
        leaks.check_released(level, StagedTracer, name)
    return made


def _sources(value: Tracer) -> set[Any]:
    """The inputs that a traced value depends on, of the programs being recorded on all levels."""
    found: set[Any] = set()
    pending: dict[Level, set[Atom]] = {}

    def depends_on(value: Any) -> None:
        if isinstance(value, StagedTracer):
            pending.setdefault(value.level, set()).add(value.atom)

    depends_on(value)
    while pending:  # a level captures values of outer ones only: each is gone through once
        level = max(pending, key=lambda level: level.depth)
        atoms = pending.pop(level)
        if isinstance(level, Staging):
            needed, outside = level.needed(atoms)
            found |= needed
            for captured in outside:
                depends_on(captured)
    return found


def check_alive(tracer: Tracer) -> None:
    level = tracer.level
    levels = _stack.levels
    if not level.alive or level.depth >= len(levels) or levels[level.depth] is not level:
        made = f" made at {tracer.where}" if tracer.where else ""
        raise LeakedTracerError(
            f"a traced value {tracer.type}{made} is used at {location.current()} after the "
            "function being traced has returned (or in another thread); return it from that "
            "function instead of storing it outside"
        )


def staging() -> bool:
    """Whether the function that runs now is being recorded."""
    return _stack.recording > 0


def active_levels() -> tuple[Level, ...]:
    """The levels that are active in this thread, the innermost last."""
    return tuple(_stack.levels)


def tracing() -> bool:
    """Whether any level is active: what is computed now may be differentiated or recorded."""
    return bool(_stack.levels)


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside, what depends on no traced value is computed at once, also within a `jit` trace or the
    body of a loop, so that Python may look at it. What does depend on one is recorded as ever.

    >>> @fxad.jit
    ... def f(x):
    ...     with fxad.ensure_compile_time_eval():
    ...         size = int(jnp.sum(jnp.arange(3)))
    ...     return x[:size]
    >>> f(jnp.arange(5))
    Array([0, 1, 2], dtype=int32)
    """
    before = _stack.floor, _stack.recording
    _stack.floor, _stack.recording = None, 0
    try:
        yield
    finally:
        _stack.floor, _stack.recording = before


def recorder() -> Staging | None:
    """The level that records whatever is bound now, if there is none above it and nobody else is
    asked first."""
    floor = _stack.floor
    alone = floor is not None and _stack.levels[-1] is floor and _intercept is None
    return floor if alone and type(floor) is Staging else None


def innermost_recorder() -> Staging | None:
    """The innermost level, if its function is run once, for a Program, and if no value around it is
    known that Python may look at. Unlike `recorder`, others may be asked first."""
    level = _stack.levels[-1] if _stack.floor is not None else None
    return level if isinstance(level, Staging) and level.records else None


def bind(op: Op, *args: AnyValue, **params: Any) -> Any:
    """Apply an op to values: Arrays, NumPy arrays, tracers, Lits, Python numbers (as Lits).

    Promotion has happened already: dtypes must agree as the op's type rule demands. The answer is
    one value or a tuple, as the op has one result or several: its type is that of calling the op.
    """
    if _intercept is not None:
        answer = _intercept(op, args, params)
        if answer is not NotImplemented:
            return _marked(op, args, answer)
    if op.close is not None:
        args, params = op.close(args, params)
    elif not args and op.name == "captured":
        return params["value"].value
    level = _stack.floor
    depth = level.depth if level is not None else -1
    for arg in args:
        if isinstance(arg, Tracer) and arg.level is not level:  # this one is active
            check_alive(arg)
            if arg.level.depth > depth:
                level, depth = arg.level, arg.level.depth
    made = _executor(op, args, params) if level is None else level.process(op, args, params)
    return _marked(op, args, made)


def _marked(op: Op, args: Sequence[Any], made: Any) -> Any:
    """The results of an op, those marked that are weakly typed by its rule `weak`."""
    rule = op.weak
    strong = rule is None and args and isinstance(args[0], Array) and not args[0].weak
    if strong or op.higher:  # mostly the first operand says it
        return made
    if rule == "each":
        for arg, result in zip(args, made, strict=True):
            result.weak = getattr(arg, "weak", False)
    elif _all_weak(args if rule is None else [args[i] for i in rule]):
        for result in made if isinstance(made, tuple) else (made,):
            if isinstance(result, Array):  # tapes are not
                result.weak = True
    return made


def _all_weak(args: Sequence[Any]) -> bool:
    """Whether all Arrays among the operands are weakly typed, and there are any."""
    weak = False
    for arg in args:
        if isinstance(arg, Array):
            if not arg.weak:
                return False
            weak = True
        elif isinstance(arg, np.ndarray):
            return False
    return weak


Intercept = Callable[[Op, Sequence[Any], dict[str, Any]], Any]
_intercept: Intercept | None = None
_observed = False
ordinary = True  # whether outside every trace nobody asks for single ops


def set_intercept(intercept: Intercept | None) -> None:
    """Have `bind` ask first; an answer other than NotImplemented is the result (for the api's
    scoped derivative rules)."""
    global _intercept, ordinary
    _intercept = intercept
    ordinary = intercept is None and not _observed


_executor: Callable[[Op, Sequence[Any], dict[str, Any]], Any] = execute


def set_executor(
    executor: Callable[[Op, Sequence[Any], dict[str, Any]], Any], observed: bool = False
) -> None:
    """Install what runs an op outside every trace (the api compiles calls and loops). `observed`:
    somebody wants to see every op."""
    global _executor, _observed, ordinary
    _executor, _observed = executor, observed
    ordinary = _intercept is None and not observed
