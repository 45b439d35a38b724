"""Linear systems given by a function: the op behind `fxad.lax.custom_linear_solve`.

    x = linear_solve(consts, b)           # matvec(consts, x) = b

It is differentiated as the inverse of a linear map, never through the steps of its solver:
dx = solve(db - (d matvec) x), and its transpose solves the transposed system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.ops.base import (
    Batched,
    define,
    nonzero,
    operand_type,
    spread,
    values_of,
    zeros,
)
from fxad.ops.programs.captures import closing
from fxad.ops.programs.control import filled, instantiate, present, subprogram_effects

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        Transforms,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue


def _type(
    *types: ArrayType, count: int, matvec: Program, solve: Program, **params: Any
) -> tuple[Type, ...]:
    if tuple(types[count:]) != matvec.out_types:
        seen = ", ".join(map(str, types[count:]))
        wanted = ", ".join(map(str, matvec.out_types))
        raise TypeMismatch(f"linear_solve: the right side is ({seen}), matvec gives ({wanted})")
    return solve.out_types


def _numpy(*arrays: np.ndarray, solve: Program, **params: Any) -> tuple[NumpyValue, ...]:
    return tuple(evaluate(solve, arrays))


def _jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    count: int,
    matvec: Program,
    **params: Any,
) -> WithTangents:
    outs = linear_solve(*primals, count=count, matvec=matvec, **params)
    unknowns = len(matvec.outputs)
    fixed, rhs = primals[:count], list(tangents[count:])
    active = (*present(tangents[:count]), *([False] * unknowns))
    if any(active):
        derived, flags = t.jvp(matvec, active)
        moving = nonzero(tangents[:count])
        results = t.run(derived, [*fixed, *outs[:unknowns], *moving])
        rhs = [
            _minus(db, moved)
            for db, moved in zip(rhs, filled(flags, results[unknowns:]), strict=True)
        ]
    if not any(present(rhs)):
        return outs, [None] * len(outs)
    dense = instantiate(primals[count:], rhs)
    dx = linear_solve(*fixed, *dense, count=count, matvec=matvec, **params)
    return outs, [*dx[:unknowns], *([None] * (len(outs) - unknowns))]


def _minus(db: AnyValue | None, moved: AnyValue | None) -> AnyValue | None:
    if moved is None:
        return db
    return OPS["neg"](moved) if db is None else OPS["sub"](db, moved)


def _transpose(
    t: Transforms,
    cotangents: AnyCotangents,
    args: AnyOperands,
    *,
    count: int,
    matvec: Program,
    vecmat: tuple[Program, ...],
    solve: Program,
    transposed: tuple[Program, ...],
) -> AnyCotangents:
    if not transposed:
        raise TypeMismatch(
            "custom_linear_solve: reverse mode needs transpose_solve= (or symmetric=True)"
        )
    unknowns = len(matvec.outputs)
    dense = [
        zeros(operand_type(a)) if ct is None else ct
        for a, ct in zip(args[count:], cotangents[:unknowns], strict=True)
    ]
    found = linear_solve(
        *values_of(args[:count]),
        *dense,
        count=count,
        matvec=vecmat[0],
        vecmat=(matvec,),
        solve=transposed[0],
        transposed=(solve,),
    )
    return [None] * count + list(found[:unknowns])


def _batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    count: int,
    matvec: Program,
    vecmat: tuple[Program, ...],
    solve: Program,
    transposed: tuple[Program, ...],
) -> Batched:
    unknowns = len(matvec.outputs)
    flags = (*batched[:count], *([True] * unknowns))
    rhs = [a if b else spread(a, size) for a, b in zip(args[count:], batched[count:], strict=True)]

    def lanes(program: Program) -> Program:
        return t.batch(program, size, flags, (True,) * len(program.outputs))[0]

    outs = linear_solve(
        *args[:count],
        *rhs,
        count=count,
        matvec=lanes(matvec),
        vecmat=tuple(map(lanes, vecmat)),
        solve=lanes(solve),
        transposed=tuple(map(lanes, transposed)),
    )
    return Batched(tuple(outs), (True,) * len(outs))


linear_solve = define(
    "linear_solve",
    higher=True,
    doc="x (and whatever else solve gives) with matvec(consts, x) = b. Operands: `count` consts, "
    "then b. All programs take (consts, vectors). vecmat and transposed hold one program each, "
    "or none where the system cannot be transposed.",
    type=_type,
    numpy=_numpy,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    close=closing(["matvec", "vecmat", "solve", "transposed"], 0, "count"),
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    runs="solve",
    dtypes="",
)
