"""Identities across processes: `digest(program)` of a Program, `kernel_key(kernel)` of a Kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Container
from typing import Any

import numpy as np

from fxad.core.types import ArrayType, TapeType
from fxad.ir.kernel import Kernel, kernel_text
from fxad.ir.program import Eqn, Program, Symbol, param_key, subprograms


def digest(program: Program, known: Container[str]) -> str | None:
    """A hash of what `Program.key` compares and of the user's lines, which kernels carry along.

    Left out are the functions that say how a call is differentiated or batched: compiled, it is
    the program that it `runs`. None if the program holds something else that has no meaning outside
    this process: a Python function, or an op that is not among the `known` ones.
    """
    try:
        return _Digests(known).of(program)
    except TypeError:
        return None


class _Digests:
    """Hashes of programs, of each that is held in many places once. `text`: what equations of equal
    layers have in common is written once."""

    def __init__(self, known: Container[str]) -> None:
        self.known = known
        self.text = functools.cache(_text)
        self.of = functools.cache(self._of)

    def _of(self, program: Program) -> str:
        parts: list[str] = []
        _write_program(program, parts, self)
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _write_program(program: Program, parts: list[str], digests: _Digests) -> None:
    """One line for each equation, with the user's line."""
    text = digests.text
    key: tuple[Any, ...] = program.key()
    inputs, *rows, outputs = key
    _write((inputs, outputs, len(rows)), parts)
    for eqn, (name, operands, params, types) in zip(program.eqns, rows, strict=True):
        if eqn.op.name not in digests.known:
            raise TypeError(f"the op {eqn.op.name}")
        places = [a if type(a) is int else text(a) for a in operands]  # of variables, or numbers
        parts.append(f"{name}{places}")
        if any(subprograms(eqn)):
            _write_params(eqn, parts, digests)
        else:
            parts.append(text(params))
        parts += (text(types), eqn.where)


def _write_params(eqn: Eqn, parts: list[str], digests: _Digests) -> None:
    """The parameters of an equation that holds programs."""
    for name in sorted(eqn.params):
        value = eqn.params[name]
        if isinstance(value, Symbol) and eqn.op.runs not in (None, name):
            continue
        parts.append(name)
        held = value if isinstance(value, tuple) else (value,)
        if not any(isinstance(one, Program) for one in held):
            _write(param_key(value), parts)
            continue
        parts.append("(")
        for one in held:
            if isinstance(one, Program):
                parts.append(digests.of(one))
            else:
                _write(param_key(one), parts)
        parts.append(")")


def _text(value: tuple[object, ...]) -> str:
    parts: list[str] = []
    _write(value, parts)
    return "\x1f".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    kind = type(value)
    if kind is tuple:
        if value and value[0] == "symbol":
            raise TypeError("a Python function")
        parts.append("(")
        for item in value:
            _write(item, parts)
        parts.append(")")
    elif kind is str:
        parts.append(repr(value))
    elif kind in _PLAIN or isinstance(value, np.dtype):
        parts.append(str(value))
    elif kind is frozenset:
        _write(tuple(sorted(value)), parts)
    else:
        raise TypeError(f"a {kind.__name__}")


_PLAIN = frozenset({int, bool, float, type(None), ArrayType, TapeType})


def kernel_key(kernel: Kernel) -> str:
    """A hash (40 hex digits) of everything that the code of a kernel depends on."""
    return hashlib.sha256(kernel_text(kernel).encode()).hexdigest()[:40]
