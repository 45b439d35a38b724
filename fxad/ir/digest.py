"""Identities across processes: `digest(program)` of a Program, `kernel_key(kernel)` of a Kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Container
from typing import Any

import numpy as np

from fxad.core.types import ArrayType, TapeType
from fxad.ir.kernel import Kernel, kernel_text
from fxad.ir.program import Program, subprograms

RULED = frozenset({"custom_jvp", "custom_vjp", "custom_vmap"})


def digest(program: Program, known: Container[str]) -> str | None:
    """A hash of what `Program.key` compares and of the user's lines, which kernels carry along.

    None if the program holds something that has no meaning outside this process: a Python
    function, or an op that is not among the `known` ones. Custom rules are no part of it: who
    compiles a program differentiates it no more, and runs what the rules stand beside.
    """
    parts: list[str] = []
    try:
        _write_rows(program.key(), parts)
        _places(program, known, parts)
    except TypeError:
        return None
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _write_rows(key: tuple[Any, ...], parts: list[str]) -> None:
    """One line for each equation; what equations of equal layers have in common is written once."""
    inputs, *eqns, outputs = key
    _write((inputs, outputs), parts)
    text = functools.cache(_text)
    for name, operands, params, types in map(_without_rules, eqns):
        places = [a if type(a) is int else text(a) for a in operands]  # of variables, or numbers
        parts += (f"{name}{places}", text(params), text(types))


def _without_rules(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key of an equation without the functions that its derivatives and lanes would call."""
    name, operands, params, types = row
    if name not in RULED:
        return row
    return name, operands, tuple([p for p in params if not _is_symbol(p[1])]), types


def _is_symbol(key: Any) -> bool:
    return type(key) is tuple and key[:1] == ("symbol",)


def _text(value: tuple[object, ...]) -> str:
    parts: list[str] = []
    _write(value, parts)
    return "\x1f".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    kind = type(value)
    if kind is tuple:
        if _is_symbol(value):
            raise TypeError("a Python function")
        if len(value) == 4 and type(value[0]) is str and value[0] in RULED:
            value = _without_rules(value)
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


def _places(program: Program, known: Container[str], parts: list[str]) -> None:
    for eqn in program.eqns:
        if eqn.op.name not in known:
            raise TypeError(f"the op {eqn.op.name}")
        parts.append(eqn.where)
        for _, inner in subprograms(eqn):
            _places(inner, known, parts)


def kernel_key(kernel: Kernel) -> str:
    """A hash (40 hex digits) of everything that the code of a kernel depends on."""
    return hashlib.sha256(kernel_text(kernel).encode()).hexdigest()[:40]
