"""Products of complex numbers as one product of their parts, which vectors compute.

before   c: c64[m,n] = dot(a, b)                                  # c64[m,k], c64[k,n]
after    x = [[re a, -im a], [im a, re a]]                        # f32[2,m,2k]
         y = [re b, im b]                                         # f32[2k,n]
         z: f32[2,m,n] = dot(x, y); c = complex(z[0], z[1])

The smaller operand x is written twice. Real parts are sums of re x * re y over k and then of
-im x * im y, imaginary parts of im x * re y and then of re x * im y, in blocks as all sums of
products; infinities make NaN where these products do. Which products are computed so is part of
their bits: it depends on shapes and dtypes alone. Small ones, and rows beside a large matrix, stay
loops, which write nothing in between.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from fxad.core import dtypes as dt
from fxad.ir.orders import (
    COMPLEX_DEPTH,
    COMPLEX_SIDE,
    COMPLEX_VECTOR_BYTES,
    COMPLEX_VECTOR_WORK,
    COMPLEX_WORK,
)
from fxad.ir.program import OPS, Eqn, Program
from fxad.ir.rewrite import everywhere, has_op
from fxad.ops.matrices.product import Pair, dot, free_axes
from fxad.passes.inserted import inserted
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value


def complex_products(program: Program) -> Program:
    """The program with such products as real ones, inside loops and branches too."""
    return everywhere(_split, program) if has_op(program, "dot") else program


def _split(program: Program) -> Program:
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        if not is_split(eqn):
            eqns.append(eqn)
            continue
        function = functools.partial(_by_parts, **eqn.params)
        made, _ = inserted(function, eqn.inputs, eqn.where, eqn.tag)
        eqns += made[:-1]
        eqns.append(made[-1].copy(outputs=eqn.outputs))
    if len(eqns) == len(program.eqns):
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def is_split(eqn: Eqn) -> bool:
    """Whether an equation is a product of complex numbers that is worth splitting."""
    if eqn.op.name != "dot" or not dt.is_complex(eqn.outputs[0].type.dtype):
        return False
    contract, batch = eqn.params["contract"], eqn.params["batch"]
    shapes = [x.type.shape for x in eqn.inputs]
    depth: int = math.prod(shapes[0][i] for i in contract[0])
    free = [free_axes(len(x), *axes) for x, *axes in zip(shapes, contract, batch, strict=True)]
    rows, columns = (
        math.prod(shape[i] for i in axes) for shape, axes in zip(shapes, free, strict=True)
    )
    if depth < COMPLEX_DEPTH or max(rows, columns) < COMPLEX_SIDE:
        return False
    if min(rows, columns) > 1:
        return rows * columns * depth >= COMPLEX_WORK
    # Operands are read once: copies of those of a batch cost what they save.
    alone = all(shapes[0][i] == 1 for i in batch[0])
    work = rows * columns * depth
    size = max(x.type.nbytes for x in eqn.inputs)
    return alone and work >= COMPLEX_VECTOR_WORK and size <= COMPLEX_VECTOR_BYTES


def _by_parts(a: Value, b: Value, *, contract: Pair, batch: Pair, dtype: Any) -> list[Value]:
    """The product by one of real numbers."""
    types = (type_of(a), type_of(b))
    twice = 0 if types[0].size <= types[1].size else 1
    free = [free_axes(t.ndim, contract[s], batch[s]) for s, t in enumerate(types)]
    place = min(free[twice], default=types[twice].ndim)
    sides = [_along(x, contract[s][0]) for s, x in enumerate((a, b))]
    sides[twice] = _twice((a, b)[twice], contract[twice][0], place)

    def moved(pair: Pair) -> Pair:
        found = [list(axes) for axes in pair]
        found[twice] = [i + (i >= place) for i in found[twice]]
        return tuple(found[0]), tuple(found[1])

    pairs = {"contract": moved(contract), "batch": moved(batch)}
    product = dot(*sides, **pairs, dtype=dt.real_of(dtype))
    axis = len(batch[0]) + (len(free[0]) if twice else 0)
    return [OPS["complex"](*[_at(product, axis, i) for i in (0, 1)])]


def _along(x: Value, axis: int) -> Any:
    """Real and imaginary parts, one after the other along an axis."""
    return OPS["concatenate"](OPS["real"](x), OPS["imag"](x), axis=axis)


def _twice(x: Value, axis: int, place: int) -> Any:
    """[re, -im] and [im, re] along the contracted axis, one after the other along a new one: the
    factors of real and of imaginary parts."""
    re, im = OPS["real"](x), OPS["imag"](x)
    parts = []
    for pair in ((re, OPS["neg"](im)), (im, re)):
        part = OPS["concatenate"](*pair, axis=axis)
        shape = type_of(part).shape
        parts.append(OPS["reshape"](part, shape=(*shape[:place], 1, *shape[place:])))
    return OPS["concatenate"](*parts, axis=place)


def _at(x: Value, axis: int, index: int) -> Any:
    """x at an index of an axis, without that axis."""
    shape = type_of(x).shape
    start = tuple(index if i == axis else 0 for i in range(len(shape)))
    stop = tuple(index + 1 if i == axis else n for i, n in enumerate(shape))
    cut = OPS["slice"](x, start=start, stop=stop, step=(1,) * len(shape))
    return OPS["reshape"](cut, shape=(*shape[:axis], *shape[axis + 1 :]))
