"""A Program written as a Python function that calls the references of its ops, for `replay`.

    def run(a0):
        before = silence()
        try:
            v1 = contiguous(asarray(c2(a0, axes=c3))).reshape(c4)
            v2 = c5(a0, v1)
        finally:
            restore(before)
        return made(v2, c6, False)

What reads no argument is computed while the function is written, what is repeated to a shape only
to be read by NumPy's own elementwise functions is left to them, and what only reshapes is a view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import aligned
from fxad.core.limits import check_bytes
from fxad.core.quiet import restore, silence
from fxad.core.source import Source, defined, tupled
from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Lit, Op, Program, Symbol, Var
from fxad.trace import tracer
from fxad.trace.array import Array, Borrowed, Concrete
from fxad.trace.execute import concrete

Function = Callable[..., Any]


class Unwritable(Exception):
    """A program that is no fixed sequence of ops which make all results."""


SMALL = 1 << 12  # bytes of results that are computed once
_SAME = frozenset(("barrier", "name", "bitcast"))  # their results may be their operands
_BROADCASTING = frozenset(("select", "div", "max", "min"))  # beside NumPy's own functions
_INLINE = frozenset(("custom_jvp", "custom_vjp"))  # outside traces their functions are just called


class Writer(Source):
    """Writes a Program as a Python function of NumPy arrays (and floats) that returns Arrays."""

    def __init__(
        self, program: Program, captured: Sequence[np.ndarray], operands: Sequence[Any]
    ) -> None:
        super().__init__()
        self.constants |= _FIXED
        self.program = program
        self.names: dict[Atom, str] = {}
        self.owned: set[str] = set()  # names of what shares no memory
        self.thin: dict[Atom, str] = {}  # what NumPy repeats to a shape, before it is repeated,
        self.aligned: dict[Atom, tuple[int, ...]] = {}  # its shape then,
        self.repeated: dict[Atom, Eqn] = {}  # and what repeats it
        self.reshaped: dict[Atom, Atom] = {}  # what is only reshaped, if it is read at all
        self.parameters = [f"a{i}" for i in range(len(operands))]
        pairs = zip(operands, self.parameters, strict=True)
        self.borrowed = [name for operand, name in pairs if isinstance(operand, Borrowed)]
        self.numbers: dict[Any, str] = {}
        variables = iter(program.inputs)
        for operand, name in zip(operands, self.parameters, strict=True):
            if type(operand) is float:
                self.numbers[operand] = name
            else:
                self.names[next(variables)] = name
        for var, value in zip(program.consts, captured, strict=True):
            self.names[var] = self.constant(value)

    def replay(self, cls: type, weak: Sequence[bool]) -> Function:
        """The function; `cls` is what holds the results.

        Raises Unwritable if there is none, SizeError if a value is larger than memory.
        """
        outputs, unread = self.program.outputs, set(self.numbers)
        own = {var for eqn in self.program.eqns for var in eqn.outputs}
        if self.program.effects or not outputs:
            raise Unwritable
        if len(set(outputs)) < len(outputs) or not own.issuperset(outputs):
            raise Unwritable  # a result that is an argument is that very object
        for eqn in self.program.eqns:
            unread -= {a.value for a in eqn.inputs if isinstance(a, Lit)}
            self.write(eqn)
        if unread:
            raise Unwritable
        made = [self.result(var, w) for var, w in zip(outputs, weak, strict=True)]
        listed = ", ".join(made)
        if issubclass(cls, Array):
            result = listed
        elif cls in (list, tuple):
            result = f"[{listed}]" if cls is list else tupled(made)
        else:  # a named tuple
            result = f"{self.constant(cls)}({listed})"
        whole = Source()
        with whole.block(f"def run({', '.join(self.parameters)}):"):
            whole.line("before = silence()")
            with whole.block("try:"):
                whole.extend(self.lines)
            with whole.block("finally:"):
                whole.line("restore(before)")
            whole.line(f"return {result}")
        run: Function = defined(whole.text, "replay", self.constants)["run"]
        return run

    def result(self, var: Atom, weak: bool) -> str:
        """What makes an Array of a variable, which is of its type but in rare cases."""
        name, type_ = self.read(var), var.type
        dtype, whole = self.constant(type_.dtype), self.constant(type_)
        if name not in self.owned:
            name = self.define(f"{'own' if type_.nbytes <= aligned.SMALL else 'copied'}({name})")
        for owner in self.borrowed:  # some ops give parts of their operands, mostly Arrays'
            self.line(f"if share({name}, {owner}): {name} = own({name})")
        self.line(f"if {name}.dtype is not {dtype}: {name} = asarray({name}, {dtype})")
        return f"made({name}, {whole}, {weak})"

    def write(self, eqn: Eqn) -> None:
        op, params = eqn.op, eqn.params
        for var in eqn.outputs:  # what is too large stays the error that ops bound one by one raise
            if isinstance(var.type, ArrayType):
                check_bytes(op.name, var.type.nbytes)
        if op.name in _INLINE:
            inner = params["program"]
            values = [self.read(a) for a in eqn.inputs]
            self.names.update(zip(inner.inputs, values, strict=True))
            for step in inner.eqns:
                self.write(step)
            self.names.update(zip(eqn.outputs, map(self.read, inner.outputs), strict=True))
        elif op.higher or any(isinstance(v, Symbol) for v in params.values()):
            call = self.constant(functools.partial(_executed, op, dict(params)))
            self.several(eqn, f"{call}({', '.join(map(self.read, eqn.inputs))})")
        elif self.folded(eqn) or self.viewed(eqn):
            pass
        elif isinstance(op.type(*[a.type for a in eqn.inputs], **params), tuple):
            self.several(eqn, self.called(eqn))
        else:
            call, var = self.called(eqn), eqn.outputs[0]
            if var.type.shape == ():
                call = f"asarray({call})"  # references may give NumPy's scalars
            self.names[var] = self.define(call)
            if op.name not in _SAME:
                self.owned.add(self.names[var])

    def called(self, eqn: Eqn) -> str:
        """The call of an op's reference."""
        op, shape = eqn.op, eqn.outputs[0].type.shape
        function = _direct(op, eqn)
        repeats = op.name in _BROADCASTING or isinstance(function, np.ufunc)
        shapes = [self.aligned.get(a, a.type.shape) for a in eqn.inputs]
        if repeats and np.broadcast_shapes(*shapes) == shape:
            operands = [self.thin[a] if a in self.thin else self.read(a) for a in eqn.inputs]
        else:
            operands = [self.read(a) for a in eqn.inputs]
        operands += [f"{name}={self.constant(value)}" for name, value in eqn.params.items()]
        return f"{self.constant(function)}({', '.join(operands)})"

    def several(self, eqn: Eqn, call: str) -> None:
        """A line for an op with a tuple of results."""
        names = [self.fresh("v") for _ in eqn.outputs]
        self.line(f"{', '.join(names)}, = {call}")
        self.names.update(zip(eqn.outputs, names, strict=True))
        if eqn.op.name not in _SAME:
            self.owned.update(names)

    def folded(self, eqn: Eqn) -> bool:
        """Whether an equation reads no argument and has small results, which are then computed."""
        if sum(var.type.nbytes for var in eqn.outputs) > SMALL:
            return False
        if any(isinstance(a, Var) and self.names.get(a) not in self.constants for a in eqn.inputs):
            return False
        names = [self.read(a) for a in eqn.inputs]
        if not self.constants.keys() >= set(names):  # a number that is an operand
            return False
        before = silence()
        try:
            found = eqn.op.numpy(*[self.constants[n] for n in names], **eqn.params)
        finally:
            restore(before)
        values = found if isinstance(found, tuple) else (found,)
        for var, value in zip(eqn.outputs, values, strict=True):
            self.names[var] = self.constant(np.asarray(value, var.type.dtype))
        return True

    def viewed(self, eqn: Eqn) -> bool:
        """Whether an equation only changes how elements are looked at: by reshaping, or by what
        NumPy repeats where it is read."""
        if eqn.op.name not in ("reshape", "broadcast", "transpose", "stop_gradient"):
            return False
        (source,), (var,) = eqn.inputs, eqn.outputs
        type_ = var.type
        if eqn.op.name == "reshape" and isinstance(source, Var):
            self.reshaped[var] = self.reshaped.get(source, source)
            return True
        if eqn.op.name == "broadcast" and type_.shape:
            self.thinned(eqn)
            return True
        name = self.read(source)
        if eqn.op.name == "stop_gradient":
            self.names[var] = name
        elif eqn.op.name == "reshape" or eqn.params.get("permutation") == tuple(range(type_.ndim)):
            self.names[var] = self.define(
                f"contiguous({name}).reshape({self.constant(type_.shape)})"
            )
        else:
            return False
        return True

    def thinned(self, eqn: Eqn) -> None:
        """What a broadcast repeats, in a shape that NumPy repeats by itself."""
        (source,), (var,) = eqn.inputs, eqn.outputs
        placed = [1] * var.type.ndim
        for axis, size in zip(eqn.params["axes"], source.type.shape, strict=True):
            placed[axis] = size
        shape, before = tuple(placed), self.reshaped.get(source, source)
        self.aligned[var] = shape if source.type.shape else ()
        self.repeated[var] = eqn
        if not source.type.shape:
            self.thin[var] = self.read(source)
        elif before.type.shape == shape:  # the axes of one element are where they were
            self.thin[var] = f"contiguous({self.read(before)})"
        else:
            self.thin[var] = f"contiguous({self.read(source)}).reshape({self.constant(shape)})"

    def read(self, atom: Atom) -> str:
        if isinstance(atom, Lit):
            number = self.numbers.get(atom.value)
            if number is not None:
                return f"asarray({number}, {self.constant(atom.type.dtype)})"
            return self.constant(np.asarray(atom.value, atom.type.dtype))
        if atom in self.reshaped and atom not in self.names:
            name, shape = self.read(self.reshaped[atom]), self.constant(atom.type.shape)
            self.names[atom] = self.define(f"contiguous({name}).reshape({shape})")
        if atom not in self.names:  # what was left to be repeated where it is read
            eqn = self.repeated[atom]
            self.names[atom] = self.define(self.called(eqn))
            self.owned.add(self.names[atom])
        return self.names[atom]


def _direct(op: Op, eqn: Eqn) -> Function:
    """An op's reference, or what that calls for all but half-width floats."""
    reference: Function = op.numpy
    dtype = eqn.inputs[0].type.dtype if eqn.inputs else None
    if dtype is None or (dtype.itemsize < 4 and dtype.kind not in "biu"):
        return reference
    direct: Function = getattr(reference, "direct", reference)
    return direct


def _executed(op: Op, params: dict[str, Any], *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """An op that holds programs, as `bind` runs it outside traces."""
    results = tracer.bind(op, *map(Concrete, arrays), **params)
    return tuple([concrete(r) for r in results])


_new = object.__new__


def _made(data: np.ndarray, type_: ArrayType, weak: bool) -> Array:
    made = _new(Concrete)  # `Concrete.of`, written out
    made._data, made.type, made.weak = data, type_, weak
    return made


_FIXED: dict[str, Any] = {
    "silence": silence,
    "restore": restore,
    "asarray": np.asarray,
    "contiguous": np.ascontiguousarray,
    "own": functools.partial(np.array, order="C"),
    "copied": aligned.copied,
    "share": np.may_share_memory,
    "made": _made,
}
