"""Small rewrites of Programs that everything above leans on: dce, evaluate, substitute, rebuild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Lit, Number, Op, Program, Var, new_pair, subprograms
from fxad.ir.tape import NumpyValue
from fxad.ir.uses import values_read


def dce(program: Program, keep: Sequence[bool] | None = None) -> Program:
    """Drop equations whose results nobody reads; effects stay.

    before   b = exp(a); c = sin(a); return c
    after    c = sin(a); return c

    `keep` says which outputs are wanted (all by default). An equation of which some results are
    read is asked to drop the others (rule `dce`): loops stop carrying and stacking them.
    """
    outputs = program.outputs
    if keep is not None:
        outputs = tuple(o for o, wanted in zip(outputs, keep, strict=True) if wanted)
    live: set[Atom] = set(outputs)
    kept: list[Eqn] = []
    changed = len(outputs) != len(program.outputs)
    for eqn in reversed(program.eqns):
        if live.isdisjoint(eqn.outputs) and not eqn.effects:
            changed = True
            continue
        if eqn.op.dce is not None and not live.issuperset(eqn.outputs):
            smaller = eqn.op.dce(eqn, tuple(v in live for v in eqn.outputs))
            changed, eqn = changed or smaller is not eqn, smaller
        kept.append(eqn)
        live.update(eqn.inputs)
    kept.reverse()
    if not changed:
        return program
    return Program(program.inputs, kept, outputs, program.name, program.consts)


def used_inputs(program: Program) -> tuple[bool, ...]:
    """Which inputs any equation or output reads."""
    read = values_read(program.eqns, program.outputs)
    return tuple(v in read for v in program.inputs)


def evaluate(
    program: Program, args: Sequence[NumpyValue], consts: Sequence[NumpyValue] = ()
) -> list[NumpyValue]:
    """Run a Program on NumPy arrays, one equation after another: the oracle.

    Equations run through each op's NumPy reference, which for ops holding sub-programs calls
    this function again. Results are NumPy arrays of exactly the declared types.
    """
    env: dict[Atom, NumpyValue] = dict(zip(program.consts, consts, strict=True))
    env.update(zip(program.inputs, args, strict=True))

    def read(atom: Atom) -> NumpyValue:
        if isinstance(atom, Var):
            return env[atom]
        return np.asarray(atom.value, atom.type.dtype)

    last = last_uses(program)
    watch = _watch
    with np.errstate(all="ignore"):
        for eqn in program.eqns:
            results: Any = eqn.op.numpy(*map(read, eqn.inputs), **eqn.params)
            if len(eqn.outputs) == 1 and not isinstance(results, tuple):
                results = (results,)
            if watch is not None:
                watch(eqn.op, [read(a) for a in eqn.inputs], results, eqn.where)
            for var, value in zip(eqn.outputs, results, strict=True):
                env[var] = value
            for var in last.get(eqn, ()):
                del env[var]
    return [read(a) for a in program.outputs]


Watch = Callable[[Op, Sequence[NumpyValue], Sequence[NumpyValue], str], None]
_watch: Watch | None = None


def set_watch(watch: Watch | None) -> None:
    """Have `evaluate` show every equation's op, operands, results and location to `watch`."""
    global _watch
    _watch = watch


def last_uses(program: Program) -> dict[Eqn, list[Var]]:
    """For each equation the values it is the last to touch (outputs never read included)."""
    seen: set[Atom] = {a for a in program.outputs if isinstance(a, Var)}
    last: dict[Eqn, list[Var]] = {}
    for eqn in reversed(program.eqns):
        dying: dict[Var, None] = {}
        for atom in (*eqn.outputs, *eqn.inputs):
            if isinstance(atom, Var) and atom not in seen:
                seen.add(atom)
                dying[atom] = None
        if dying:
            last[eqn] = list(dying)
    return last


def substitute(program: Program, replace: Mapping[Var, Atom]) -> Program:
    """The program with every read of a variable replaced (definitions stay)."""

    def swap(atom: Atom) -> Atom:
        return replace.get(atom, atom) if isinstance(atom, Var) else atom

    eqns = [e.with_inputs(tuple(map(swap, e.inputs))) for e in program.eqns]
    outputs = tuple(map(swap, program.outputs))
    return Program(program.inputs, eqns, outputs, program.name, program.consts)


def rebuild(
    program: Program, rewrite: Callable[[Eqn, tuple[Atom, ...]], Sequence[Atom] | None]
) -> Program:
    """Walk the equations in order; `rewrite(eqn, inputs)` may answer replacement atoms.

    Where it answers None the equation is kept (with its inputs replaced). The workhorse of
    passes that remove equations: cse, fold, algebra.
    """
    env: dict[Atom, Atom] = {}
    kept: list[Eqn] = []
    for eqn in program.eqns:
        inputs = replaced(eqn.inputs, env)
        answer = rewrite(eqn, inputs)
        if answer is None:
            kept.append(eqn if inputs is eqn.inputs else eqn.with_inputs(inputs))
        else:
            env.update(zip(eqn.outputs, answer, strict=True))
    outputs = replaced(program.outputs, env)
    return Program(program.inputs, kept, outputs, program.name, program.consts)


def replaced(atoms: tuple[Atom, ...], env: Mapping[Atom, Atom]) -> tuple[Atom, ...]:
    """The atoms with those that `env` knows replaced; the same tuple if it knows none."""
    if env.keys().isdisjoint(atoms):
        return atoms
    return tuple([env.get(a, a) for a in atoms])


def inline_into(
    program: Program, args: Sequence[Atom], where: str = ""
) -> tuple[list[Eqn], tuple[Atom, ...]]:
    """Fresh copies of the program's equations with `args` for its inputs (consts first).

    Loops that are paired among them are a pair of their own; one whose partner is elsewhere stays
    paired with it.
    """
    env: dict[Atom, Atom] = dict(zip((*program.consts, *program.inputs), args, strict=True))

    def read(atom: Atom) -> Atom:
        return env[atom] if isinstance(atom, Var) else atom

    eqns, renewed = [], _new_pairs(program)
    for eqn in program.eqns:
        outputs = tuple(Var(v.type) for v in eqn.outputs)
        inputs, pair = tuple(map(read, eqn.inputs)), renewed.get(eqn.pair, eqn.pair)
        eqns.append(Eqn(eqn.op, inputs, eqn.params, outputs, eqn.where or where, eqn.tag, pair))
        env.update(zip(eqn.outputs, outputs, strict=True))
    return eqns, tuple(map(read, program.outputs))


def _new_pairs(program: Program) -> dict[int | None, int]:
    """New numbers for pairs of which a program has more than one loop."""
    found = Counter(eqn.pair for eqn in program.eqns if eqn.pair is not None)
    return {pair: new_pair() for pair, count in found.items() if count > 1}


def flattened(program: Program) -> Program:
    """The program with its calls replaced by what they compute; programs inside stay."""
    if all(eqn.op.name != "call" for eqn in program.eqns):
        return program
    env: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        inputs = replaced(eqn.inputs, env)
        if eqn.op.name == "call":
            body, outs = inline_into(flattened(eqn.params["program"]), inputs, eqn.where)
            eqns += body
            env.update(zip(eqn.outputs, outs, strict=True))
        else:
            eqns.append(eqn.with_inputs(inputs))
    outputs = replaced(program.outputs, env)
    return Program(program.inputs, eqns, outputs, program.name, program.consts)


def without_identity_views(program: Program) -> Program:
    """The program without views that change neither shape nor order.

    before   b = transpose(a; permutation=(0, 1)); c = reshape(b; shape=b.shape); d = exp(c)
    after    d = exp(a)
    """

    def rewrite(eqn: Eqn, inputs: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
        return inputs if _is_identity_view(eqn) and isinstance(inputs[0], Var) else None

    return rebuild(program, rewrite)


def _is_identity_view(eqn: Eqn) -> bool:
    if eqn.op.name not in ("reshape", "broadcast", "transpose", "slice"):
        return False
    type_ = eqn.outputs[0].type
    if eqn.inputs[0].type != type_ or not isinstance(type_, ArrayType):
        return False
    in_order = tuple(range(len(type_.shape)))
    match eqn.op.name:
        case "transpose":
            return bool(eqn.params["permutation"] == in_order)
        case "broadcast":
            return bool(eqn.params["axes"] == in_order)
        case "slice":
            return set(eqn.params["step"]) <= {1}
    return True


def is_literal(atom: Atom, value: Number) -> bool:
    """Whether an atom is this number itself."""
    return isinstance(atom, Lit) and atom.value == value


def literal(value: Any, dtype: np.dtype) -> Lit:
    """A Lit whose value is a plain Python number of the dtype's kind. Raises TypeMismatch for a
    complex number and a real dtype."""
    kind = dtype.kind
    if kind == "b":
        return Lit(bool(value), dtype)
    if kind in "iu" or dtype == dt.key:  # of a typed random key, both of its words as one
        return Lit(int(value), dtype)
    if kind == "c":
        return Lit(complex(value), dtype)
    if isinstance(value, complex):
        raise TypeMismatch(f"the complex number {value} is no {dtype}; take its real part")
    return Lit(float(value), dtype)


def map_subprograms(program: Program, rewrite: Callable[[Program], Program]) -> Program:
    """The program with `rewrite` applied to every program in its equations' parameters."""
    eqns = []
    changed = False
    for eqn in program.eqns:
        if not holds_programs(eqn):
            eqns.append(eqn)
            continue
        params = {name: _map_param(value, rewrite) for name, value in eqn.params.items()}
        if all(params[name] is eqn.params[name] for name in params):
            eqns.append(eqn)
            continue
        changed = True
        eqns.append(eqn.copy(params=params))
    if not changed:
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def holds_programs(eqn: Eqn) -> bool:
    """Whether a parameter is a program or a tuple with one."""
    if not eqn.op.higher:
        return False
    for value in eqn.params.values():
        if isinstance(value, Program):
            return True
        if type(value) is tuple:
            for item in value:
                if isinstance(item, Program):
                    return True
    return False


def _map_param(value: Any, rewrite: Callable[[Program], Program]) -> Any:
    if isinstance(value, Program):
        return rewrite(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        parts = tuple(_map_param(v, rewrite) for v in value)
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    return value


def everywhere(rewrite: Callable[[Program], Program], program: Program) -> Program:
    """A rewrite of a Program and of all Programs inside it, the innermost first, each once."""
    return _visited(program, rewrite, {})


def _visited(
    program: Program, rewrite: Callable[[Program], Program], done: dict[Program, Program]
) -> Program:
    if program not in done:
        inside = map_subprograms(program, lambda inner: _visited(inner, rewrite, done))
        done[program] = rewrite(inside)
    return done[program]


def has_op(program: Program, name: str) -> bool:
    """Whether an op of this name is in a Program or in one inside it."""
    return any(
        eqn.op.name == name or any(has_op(inner, name) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )
