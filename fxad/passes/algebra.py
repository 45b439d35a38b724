"""Algebraic identities that hold bit for bit (x * 1, x - 0, transpose of transpose, ...).

x + 0.0 is not among them: it turns -0.0 into 0.0. Nor is x * 0: it is NaN for infinite x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.config import spend_fuel
from fxad.ir.program import Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import rebuild

Definitions = dict[Atom, Eqn]
Rule = Callable[[Eqn, tuple[Atom, ...], Definitions], "Atom | Eqn | None"]


def algebra(program: Program) -> Program:
    """Replace equations by cheaper equal ones.

    before   b = mul(a, 1.0); c = transpose(b); d = transpose(c)
    after    d is a
    """
    defined: Definitions = {}
    made: list[tuple[Var, Eqn]] = []

    def rewrite(eqn: Eqn, inputs: tuple[Atom, ...]) -> Sequence[Atom] | None:
        rule = _RULES.get(eqn.op.name)
        answer = rule(eqn, inputs, defined) if rule else None
        if answer is None or not spend_fuel():
            current = eqn if inputs is eqn.inputs else eqn.with_inputs(inputs)
            for output in eqn.outputs:
                defined[output] = current
            return None
        if isinstance(answer, Eqn):
            defined[eqn.outputs[0]] = answer
            made.append((eqn.outputs[0], answer))
            return None
        return (answer,)

    result = rebuild(program, rewrite)
    if not made:
        return result
    better = dict(made)
    eqns = [better.get(e.outputs[0], e) if e.outputs else e for e in result.eqns]
    return Program(result.inputs, eqns, result.outputs, result.name, result.consts)


def _is(atom: Atom, number: float, *, negative_zero: bool | None = None) -> bool:
    if not isinstance(atom, Lit) or isinstance(atom.value, bool) or atom.value != number:
        return False
    if number != 0 or negative_zero is None or not dt.is_float(atom.type.dtype):
        return True
    return (math.copysign(1.0, float(atom.value.real)) < 0) == negative_zero


def _same(atom: Atom, eqn: Eqn) -> Atom | None:
    """`atom`, if it can stand for the equation's result."""
    return atom if atom.type == eqn.outputs[0].type else None


def _add(eqn: Eqn, inputs: tuple[Atom, ...], _: Definitions) -> Atom | None:
    x, y = inputs
    if _is(y, 0, negative_zero=True):
        return _same(x, eqn)
    return _same(y, eqn) if _is(x, 0, negative_zero=True) else None


def _sub(eqn: Eqn, inputs: tuple[Atom, ...], _: Definitions) -> Atom | None:
    return _same(inputs[0], eqn) if _is(inputs[1], 0, negative_zero=False) else None


def _mul(eqn: Eqn, inputs: tuple[Atom, ...], _: Definitions) -> Atom | None:
    x, y = inputs
    if dt.is_complex(eqn.outputs[0].type.dtype):
        return None
    if _is(y, 1):
        return _same(x, eqn)
    return _same(y, eqn) if _is(x, 1) else None


def _div(eqn: Eqn, inputs: tuple[Atom, ...], _: Definitions) -> Atom | None:
    if dt.is_complex(eqn.outputs[0].type.dtype):
        return None
    return _same(inputs[0], eqn) if _is(inputs[1], 1) else None


def _involution(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | None:
    """neg(neg(x)) and friends."""
    inner = defined.get(inputs[0])
    if inner is None or inner.op is not eqn.op or inner.params != eqn.params:
        return None
    return _same(inner.inputs[0], eqn)


def _reshape(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | Eqn | None:
    if inputs[0].type == eqn.outputs[0].type:
        return inputs[0]
    inner = defined.get(inputs[0])
    if inner is None or inner.op is not eqn.op:
        return None
    source = inner.inputs[0]
    if source.type == eqn.outputs[0].type:
        return source
    return eqn.with_inputs((source,))


def _transpose(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | Eqn | None:
    order = eqn.params["permutation"]
    if order == tuple(range(len(order))):
        return inputs[0]
    inner = defined.get(inputs[0])
    if inner is None or inner.op is not eqn.op:
        return None
    first = inner.params["permutation"]
    combined = tuple(first[i] for i in order)
    if combined == tuple(range(len(order))):
        return inner.inputs[0]
    params = {"permutation": combined}
    return eqn.copy(inputs=inner.inputs, params=params)


def _broadcast(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | Eqn | None:
    if inputs[0].type == eqn.outputs[0].type:
        return inputs[0]
    inner = defined.get(inputs[0])
    if inner is None or inner.op is not eqn.op:
        return None
    axes = tuple(eqn.params["axes"][i] for i in inner.params["axes"])
    params = {"shape": eqn.params["shape"], "axes": axes}
    return eqn.copy(inputs=inner.inputs, params=params)


def _convert(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | None:
    """A conversion to the dtype a value has, or had before it was widened."""
    inner = defined.get(inputs[0])
    if inner is not None and inner.op is eqn.op:
        source = inner.inputs[0]
        if _widens(source.type.dtype, inputs[0].type.dtype) and _is_rounded(source, defined):
            return _same(source, eqn)
    return _same(inputs[0], eqn)


def _widens(narrow: np.dtype, wide: np.dtype) -> bool:
    """Whether a float has every number of a narrower one."""
    both_floats = dt.is_float(narrow) and dt.is_float(wide)
    return both_floats and narrow.itemsize < wide.itemsize and wide.itemsize >= 4


# Of a bfloat16 input a subnormal number may come, which rounding makes 0; what these compute in
# float32 has been rounded already.
_ROUNDED = frozenset("add convert div dot exp logistic mul sub sum tanh".split())


def _is_rounded(atom: Atom, defined: Definitions) -> bool:
    """Whether rounding a value to its own dtype leaves it as it is."""
    if atom.type.dtype == dt.float16:
        return True
    made = defined.get(atom)
    if made is None or made.op.name not in _ROUNDED:
        return False
    return made.op.name != "convert" or made.inputs[0].type.dtype.itemsize >= 4


def _literal_operands(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Eqn | None:
    """Broadcast literals become literal operands: elementwise ops take them with any shape."""
    shape = eqn.outputs[0].type.shape
    replaced = []
    for atom in inputs:
        inner = defined.get(atom)
        spread = inner is not None and inner.op.name == "broadcast"
        source = inner.inputs[0] if spread and inner is not None else atom
        replaced.append(source if isinstance(source, Lit) else atom)
    if all(a is b for a, b in zip(replaced, inputs, strict=True)):
        return None
    if not any(isinstance(a, Var) and a.type.shape == shape for a in replaced):
        return None
    return eqn.with_inputs(tuple(replaced))


def _then_literals(rule: Rule) -> Rule:
    def both(eqn: Eqn, inputs: tuple[Atom, ...], defined: Definitions) -> Atom | Eqn | None:
        better = _literal_operands(eqn, inputs, defined)
        answer = rule(eqn, better.inputs if better is not None else inputs, defined)
        return better if answer is None else answer

    return both


def _nothing(eqn: Eqn, inputs: tuple[Atom, ...], _: Definitions) -> None:
    return None


_RULES: dict[str, Rule] = {
    "add": _then_literals(_add),
    "sub": _then_literals(_sub),
    "mul": _then_literals(_mul),
    "div": _then_literals(_div),
    "neg": _involution,
    "not": _involution,
    "conj": _involution,
    "reverse": _involution,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "convert": _convert,
    **{
        name: _then_literals(_nothing)
        for name in "max min pow select eq ne lt le gt ge and or xor rem atan2".split()
    },
}
