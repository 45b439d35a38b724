"""Failures as values: what a Program does, and beside it the first site that failed.

p        (x) -> (log x)                       a check or a NaN may fail here
checked  (x) -> (code, values..., log x)      code 0: nothing failed

The code is the number of a site (`fxad.ops.programs.check`); values are what its message shows.
They run through calls, branches and loops as a further part of their operands, carries and results,
and are never changed once the code is not 0: the failure that comes first in time is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxad.core import dtypes as dt
from fxad.core.record import record, replace
from fxad.core.types import INT32, ArrayType, Type
from fxad.ir.program import OPS, Eqn, Lit, Op, Opaque, Program, Symbol, Var, subprograms
from fxad.ir.rewrite import last_uses, literal
from fxad.ops.base import full, tangent_type, type_of, zeros
from fxad.ops.programs.captures import staged
from fxad.ops.programs.check import Site, check
from fxad.ops.programs.scan import cut
from fxad.trace import location
from fxad.trace.tracer import bind
from fxad.transform.context import Environment, run

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues

# Ops that give exactly what their operands decide, which of these may still make a NaN. Others
# that are exact hand on what they are given; so do those of the second line.
_EXACT_AND_MAKE_NAN = frozenset({"add", "sub", "rem"})
_HAND_ON = frozenset({"abs", "sign", "captured", "name", "tape_read"})


@record
class State:
    """code: of the site that failed. values: of the slots that are in use."""

    code: AnyValue
    values: dict[int, AnyValue]

    def listed(self, slots: Sequence[int]) -> list[AnyValue]:
        """The code and the values of some slots."""
        return [self.code, *(self.values[slot] for slot in slots)]

    def changed(self, slots: Sequence[int], found: AnyValues) -> State:
        """With another code, and other values of these slots."""
        return State(found[0], {**self.values, **dict(zip(slots, found[1:], strict=True))})


@record
class _Found:
    """The sites of an equation: `first` is the number of the first of `count`. slots: where the
    values of a check go."""

    kind: str
    first: int
    count: int = 1
    slots: tuple[int, ...] = ()


class Checks:
    """The sites of a Program, numbered in its order, those inside loops and branches too.

    kinds: of the sites that count. name_of: what an op is called in messages. `sites` and `types`
    (of all slots) say what the results of `run` mean.
    """

    def __init__(
        self, program: Program, kinds: frozenset[str], name_of: Callable[[str], str] = str
    ) -> None:
        self.sites: list[Site] = []
        self.types: list[ArrayType] = []
        self._kinds = kinds
        self._name_of = name_of
        self._found: dict[Eqn, list[_Found]] = {}
        self._slots: dict[Program, frozenset[int] | None] = {}  # None: it stays as it is
        self._rewritten: dict[tuple[Program, tuple[int, ...], int], Program] = {}
        self._program = program
        self._collect(program)

    def run(self, args: AnyValues) -> tuple[AnyValues, AnyValue, list[AnyValue]]:
        """The Program's results, the code and the values of all slots. args: consts first."""
        none: dict[int, AnyValue] = dict(enumerate(map(zeros, self.types)))
        outs, state = self._eval(self._program, args, State(full(0, INT32), none))
        return outs, state.code, [state.values[slot] for slot in range(len(self.types))]

    # ------------------------------------------------------------ what there is

    def _collect(self, program: Program) -> frozenset[int] | None:
        """Number the sites of a Program; the slots of all of them."""
        if program in self._slots:
            return self._slots[program]
        self._slots[program] = None
        inside: set[int] = set()
        some = "check" in program.effects  # those that do not count are to go
        for eqn in program.eqns:
            found = self._sites_of(eqn)
            if found:
                self._found[eqn] = found
                inside.update(*[f.slots for f in found])
                some = True
            if eqn.op.name in _RULES:
                for _, inner in subprograms(eqn):
                    slots = self._collect(inner)
                    if slots is not None:
                        inside |= slots
                        some = True
        self._slots[program] = frozenset(inside) if some else None
        return self._slots[program]

    def _sites_of(self, eqn: Eqn) -> list[_Found]:
        if eqn.op is check:
            return self._check_sites(eqn)
        found = []
        where = eqn.where or location.current()
        if "div" in self._kinds and eqn.op.name == "div" and not _is_nonzero(eqn.inputs[1]):
            found.append(self._new("div", "division by zero", where))
        if "nan" in self._kinds and makes_nan(eqn):
            name = self._name_of(eqn.op.name)
            found.append(self._new("nan", f"nan generated by primitive: {name}.", where))
        return found

    def _new(self, kind: str, text: str, where: str) -> _Found:
        self.sites.append(Site(kind, text, where))
        return _Found(kind, len(self.sites))

    def _check_sites(self, eqn: Eqn) -> list[_Found]:
        given: tuple[Site, ...] = eqn.params["sites"].value
        if not any(site.kind in self._kinds for site in given):
            return []
        types = [a.type for a in eqn.inputs[1:]]
        slots = self._places(types)
        first = len(self.sites) + 1
        for site in given:
            self.sites.append(replace(site, slots=tuple([slots[s] for s in site.slots])))
        return [_Found("check", first, len(given), slots)]

    def _places(self, types: Sequence[Type]) -> tuple[int, ...]:
        """Slots of these types, each once; sites share them, as one message is shown at most."""
        taken: list[int] = []
        for type_ in types:
            assert isinstance(type_, ArrayType)  # what messages show
            free = (s for s, t in enumerate(self.types) if t == type_ and s not in taken)
            slot = next(free, None)
            if slot is None:
                slot = len(self.types)
                self.types.append(type_)
            taken.append(slot)
        return tuple(taken)

    def inside(self, eqn: Eqn) -> tuple[int, ...] | None:
        """The slots of sites in the programs of an equation, or None if these stay as they are."""
        if eqn.op.name not in _RULES:
            return None
        groups = [self._slots[inner] for _, inner in subprograms(eqn)]
        known = [slots for slots in groups if slots is not None]
        return tuple(sorted(frozenset().union(*known))) if known else None

    def changes(self, program: Program) -> bool:
        """Whether a program that the Program holds is another with the state."""
        return self._slots[program] is not None

    # ------------------------------------------------------------ the rewrite

    def with_state(self, program: Program, slots: tuple[int, ...], at: int = 0) -> Program:
        """The Program with the code and the values of some slots before its operand number `at`,
        and before its results."""
        key = (program, slots, at)
        found = self._rewritten.get(key)
        if found is None:
            count = 1 + len(slots)

            def checked(*args: AnyValue) -> list[AnyValue]:
                first, given, rest = cut(args, at, count)
                state = State(given[0], dict(zip(slots, given[1:], strict=True)))
                outs, state = self._eval(program, [*first, *rest], state)
                return [*state.listed(slots), *outs]

            types = [*program.in_types[:at], *self.state_types(slots), *program.in_types[at:]]
            found = self._rewritten[key] = staged(checked, types, program.name)
        return found

    def state_types(self, slots: Sequence[int]) -> list[ArrayType]:
        """Of the code and the values of some slots."""
        return [INT32, *(self.types[slot] for slot in slots)]

    def _eval(
        self, program: Program, args: AnyValues, state: State
    ) -> tuple[list[AnyValue], State]:
        if self._slots[program] is None:
            return run(program, args), state
        env: Environment[AnyValue] = Environment(program, args)
        last = last_uses(program)
        before, phase, pair = location.follow(""), location.phase(), location.pair()
        try:
            for eqn in program.eqns:
                location.follow(eqn.where)
                location.enter(eqn.tag or phase)
                location.enter_pair(eqn.pair)
                outs, state = self._step(eqn, [env.read(a) for a in eqn.inputs], state)
                env.write(eqn.outputs, outs)
                for var in last.get(eqn, ()):
                    del env.values[var]
        finally:
            location.restore(before)
            location.enter(phase)
            location.enter_pair(pair)
        return [env.read(a) for a in program.outputs], state

    def _step(self, eqn: Eqn, args: AnyValues, state: State) -> tuple[Any, State]:
        found = self._found.get(eqn, [])
        if eqn.op is check:
            if found:
                return (), self._checked(eqn, found[0], args, state)
            kept = any(site.kind == "index" for site in eqn.params["sites"].value)
            return (bind(eqn.op, *args, **eqn.params) if kept else ()), state
        for site in found:
            if site.kind == "div":
                zero = OPS["eq"](args[1], literal(0, type_of(args[1]).dtype))
                state = _failing(state, _any(zero), site.first)
        slots = self.inside(eqn)
        if slots is not None:
            outs, state = _RULES[eqn.op.name](self, eqn, args, state, slots)
        else:
            outs = bind(eqn.op, *args, **eqn.params)
        for site in found:
            if site.kind == "nan":
                results = outs if isinstance(outs, tuple | list) else (outs,)
                state = _failing(state, _any_nan(results), site.first)
        return outs, state

    def _checked(self, eqn: Eqn, found: _Found, args: AnyValues, state: State) -> State:
        """The state after a check, of which sites of other kinds do not count."""
        code, values = args[0], args[1:]
        counting = [s.kind in self._kinds for s in eqn.params["sites"].value]
        failed: AnyValue = OPS["ne"](code, 0)
        if not all(counting):
            those = [OPS["eq"](code, n) for n, counts in enumerate(counting, 1) if counts]
            failed = functools.reduce(OPS["or"], those)
        number = found.first if found.count == 1 else OPS["add"](code, found.first - 1)
        kept = [OPS["stop_gradient"](v) for v in values]
        return _failing(state, failed, number, dict(zip(found.slots, kept, strict=True)))


def makes_nan(eqn: Eqn) -> bool:
    """Whether an equation's results may be NaN where its operands are not. Of those that hold
    programs: whether that cannot be said of what is inside."""
    op = eqn.op
    if op.name in _RULES or op.name in _HAND_ON:
        return False
    if op.exact and op.name not in _EXACT_AND_MAKE_NAN:
        return False
    return any(_may_be_nan(v.type) for v in eqn.outputs)


def _may_be_nan(type_: Type) -> bool:
    return isinstance(type_, ArrayType) and dt.is_inexact(type_.dtype) and type_.size > 0


def _is_nonzero(atom: Any) -> bool:
    return isinstance(atom, Lit) and atom.value != 0


def _any(flags: AnyValue) -> AnyValue:
    type_ = type_of(flags)
    return OPS["any"](flags, axes=tuple(range(type_.ndim))) if type_.ndim else flags


def _any_nan(values: AnyValues) -> AnyValue:
    flags = [_any(OPS["ne"](v, v)) for v in values if _may_be_nan(type_of(v))]
    whole: AnyValue = functools.reduce(OPS["or"], flags)
    return whole


def _failing(
    state: State, failed: AnyValue, number: AnyValue, values: dict[int, AnyValue] | None = None
) -> State:
    """The state after the site of this number failed, or did not."""
    first = OPS["and"](OPS["eq"](state.code, 0), failed)
    held = dict(state.values)
    for slot, value in (values or {}).items():
        shape = type_of(value).shape
        whole = OPS["broadcast"](first, shape=shape, axes=()) if shape else first
        held[slot] = OPS["select"](whole, value, held[slot])
    return State(OPS["select"](first, number, state.code), held)


def checks_after(eqn: Eqn) -> Program:
    """An equation that holds programs with checks inside, as a program that runs it without them
    and then checks what came of them."""
    inputs = tuple([Var(a.type) for a in eqn.inputs])
    outputs = tuple([Var(v.type) for v in eqn.outputs])
    alone = Program(inputs, [eqn.copy(inputs=inputs, outputs=outputs)], outputs, eqn.op.name)
    checks = Checks(alone, frozenset({"user", "index"}))

    def checked(*args: AnyValue) -> AnyValues:
        outs, code, values = checks.run(args)
        check(code, *values, sites=Opaque(tuple(checks.sites)))
        return outs

    return staged(checked, alone.in_types, alone.name)


# ---------------------------------------------------------------- ops that hold programs

Rule = Callable[[Checks, Eqn, "AnyValues", State, tuple[int, ...]], tuple[Any, State]]


def _apart(outs: AnyValues, state: State, slots: tuple[int, ...]) -> tuple[tuple[Any, ...], State]:
    """What an equation gave: (its own results, the state)."""
    count = 1 + len(slots)
    return tuple(outs[count:]), state.changed(slots, outs[:count])


def _calling(op: Op) -> Rule:
    """Of an op that calls one program and says no more of it."""

    def rule(
        checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
    ) -> tuple[Any, State]:
        program = checks.with_state(eqn.params["program"], slots)
        params = {**eqn.params, "program": program} if op is eqn.op else {"program": program}
        return _apart(bind(op, *state.listed(slots), *args, **params), state, slots)

    return rule


def _cond(
    checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
) -> tuple[Any, State]:
    branches = tuple([checks.with_state(b, slots) for b in eqn.params["branches"]])
    outs = bind(eqn.op, args[0], *state.listed(slots), *args[1:], branches=branches)
    return _apart(outs, state, slots)


def _scan(
    checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
) -> tuple[Any, State]:
    """The state is the first part of the carry."""
    consts, carry = eqn.params["consts"], eqn.params["carry"]
    body = checks.with_state(eqn.params["body"], slots, consts)
    params = {**eqn.params, "body": body, "carry": carry + 1 + len(slots)}
    outs = bind(eqn.op, *args[:consts], *state.listed(slots), *args[consts:], **params)
    return _apart(outs, state, slots)


def _while(
    checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
) -> tuple[Any, State]:
    """The state is the first part of the carry. A condition with sites runs before the loop and at
    the end of each trip, and the carry holds what it said."""
    params = eqn.params
    test, body = params["cond"], checks.with_state(params["body"], slots, params["body_consts"])
    cc, bc, k = cut(args, params["cond_consts"], params["body_consts"])
    count = 1 + len(slots)
    if not checks.changes(test):
        n = len(cc)
        types = [*test.in_types[:n], *checks.state_types(slots), *test.in_types[n:]]
        test = staged(lambda *v: run(params["cond"], [*v[:n], *v[n + count :]]), types, test.name)
        outs = bind(
            eqn.op, *cc, *bc, *state.listed(slots), *k, **{**params, "cond": test, "body": body}
        )
        return _apart(outs, state, slots)
    tested = checks.with_state(test, slots, len(cc))

    def step(*values: AnyValue) -> list[AnyValue]:
        fixed, own, (_,), held = cut(values, len(cc), len(bc), 1)
        after = run(body, [*own, *held])
        *kept, again = run(tested, [*fixed, *after])
        return [again, *kept, *after[count:]]

    *kept, again = run(tested, [*cc, *state.listed(slots), *k])
    carry = [again, *kept, *k]
    types = [type_of(v) for v in carry]
    outs = bind(
        eqn.op,
        *cc,
        *bc,
        *carry,
        cond=staged(lambda go, *_: [go], types, test.name),
        body=staged(step, [type_of(v) for v in (*cc, *bc, *carry)], body.name),
        cond_consts=0,
        body_consts=len(cc) + len(bc),
    )
    return _apart(outs[1:], state, slots)


def _custom_jvp(
    checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
) -> tuple[Any, State]:
    """The rule says nothing of failures: the state has no derivative."""
    program = checks.with_state(eqn.params["program"], slots)
    symbol, count = eqn.params["rule"], 1 + len(slots)

    def rule(*values: AnyValue | None) -> list[AnyValue | None]:
        half = len(values) // 2
        after: Any = run(program, values[:half])[:count]  # type: ignore[arg-type]
        found = symbol.value(*values[count:half], *values[half + count :])
        outs = len(found) // 2
        return [*after, *found[:outs], *[None] * count, *found[outs:]]

    params = {**eqn.params, "program": program, "rule": Symbol(symbol.name, rule)}
    return _apart(bind(eqn.op, *state.listed(slots), *args, **params), state, slots)


def _custom_vjp(
    checks: Checks, eqn: Eqn, args: AnyValues, state: State, slots: tuple[int, ...]
) -> tuple[Any, State]:
    program = checks.with_state(eqn.params["program"], slots)
    types, count = checks.state_types(slots), 1 + len(slots)
    outs = len(program.outputs)
    fwd, bwd = eqn.params["fwd"], eqn.params["bwd"]
    push: Symbol | None = eqn.params.get("rule")

    def forward(*values: AnyValue, **flags: Any) -> list[AnyValue]:
        own = {name: flag[count:] for name, flag in flags.items()}
        return [*run(program, values)[:count], *fwd.value(*values[count:], **own)]

    def back(*values: AnyValue | None) -> list[AnyValue | None]:
        start = len(values) - outs  # of the cotangents, those of the state first
        found = bwd.value(*values[:start], *values[start + count :])
        return [*map(zeros, types), *found]

    def pushed(*values: AnyValue) -> list[AnyValue]:
        assert push is not None
        half = len(values) // 2
        found = push.value(*values[count:half], *values[half + count :])
        none = [zeros(tangent_type(t)) for t in types]
        after = run(program, values[:half])[:count]
        return [*after, *found[: outs - count], *none, *found[outs - count :]]

    params = {**eqn.params, "program": program}
    params |= {"fwd": Symbol(fwd.name, forward), "bwd": Symbol(bwd.name, back)}
    if push is not None:
        params["rule"] = Symbol(push.name, pushed)
    return _apart(bind(eqn.op, *state.listed(slots), *args, **params), state, slots)


_RULES: dict[str, Rule] = {
    "call": _calling(OPS["call"]),
    "checkpoint": _calling(OPS["checkpoint"]),
    "custom_vmap": _calling(OPS["call"]),  # its rule gives results alone
    "cond": _cond,
    "scan": _scan,
    "while": _while,
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
}
