"""Which elements of a Program's results depend on which elements of its inputs.

    x: f32[4]  ->  y = x[1:] - x[:-1]       y[i] depends on x[i] and x[i + 1]

What an op does to dependences follows from its loop body (`fxad.ir.loops`): an elementwise op keeps
them, a view renames them (its NumPy reference is run on positions to see how), a reduction or
product unites them. Values that are known, like the indices of a gather or a constant matrix, are
computed, and zeros in them cut dependences. Whatever is not understood depends on everything.
Loops and branches are in `fxad.analysis.sparsity_loops`.

Programs are meant to be linear in the inputs followed: the tangents of a `jvp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.analysis.sparsity_loops import FOLLOWED, everything
from fxad.analysis.sparsity_pattern import Known, Pattern, union
from fxad.analysis.sparsity_tapes import TAPES
from fxad.core.types import ArrayType, array_type
from fxad.ir import loops
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import evaluate
from fxad.ops.base import Unknown
from fxad.trace.execute import concrete
from fxad.trace.tracer import stage, type_of

_KNOWN = 1 << 24  # elements: larger constants are not computed


def sparsity(program: Program, inputs: Sequence[Known]) -> list[Known]:
    """What is known of a closed Program's outputs, given what is known of its inputs."""
    env: dict[Atom, Known] = dict(zip(program.inputs, inputs, strict=True))

    def read(atom: Atom) -> Known:
        return env[atom] if isinstance(atom, Var) else Known(value=concrete(atom))

    for eqn in program.eqns:
        found = _equation(eqn, [read(a) for a in eqn.inputs])
        env.update(zip(eqn.outputs, found, strict=True))
    return [read(a) for a in program.outputs]


def _equation(eqn: Eqn, args: list[Known]) -> list[Known]:
    rule = FOLLOWED.get(eqn.op.name)
    if rule is not None:
        return rule(sparsity, eqn, args)
    if eqn.op.name in TAPES:
        return TAPES[eqn.op.name](eqn, args)
    if all(a.pattern is None for a in args):
        return _constant(eqn, args)
    body = loops.loops_of(eqn)
    copies = body if isinstance(body, tuple) else (body,)
    if all(isinstance(c, loops.Alias) for c in copies):
        return [args[c.operand] for c in copies]
    found = _RULES.get(type(body), _dense)(eqn, args)
    return [Known(p) for p in found]


def _constant(eqn: Eqn, args: list[Known]) -> list[Known]:
    """Values where all operands are known and the op is pure."""
    size = sum(v.type.size for v in eqn.outputs if isinstance(v.type, ArrayType))
    if eqn.effects or eqn.op.higher or size > _KNOWN or any(a.value is None for a in args):
        return [Known() for _ in eqn.outputs]
    with np.errstate(all="ignore"):
        results = eqn.op.numpy(*[a.value for a in args], **eqn.params)
    if not isinstance(results, tuple):
        results = (results,)
    return [Known(value=np.asarray(r)) for r in results]


# ---------------------------------------------------------------- one equation, by its loop body

Found = list[Pattern | None]


def _dense(eqn: Eqn, args: list[Known]) -> Found:
    return [k.pattern for k in everything(eqn, args)]


def _pointwise(eqn: Eqn, args: list[Known]) -> Found:
    size = eqn.outputs[0].type.size
    parts: Found = []
    for place, (arg, atom) in enumerate(zip(args, eqn.inputs, strict=True)):
        if arg.pattern is None:
            continue
        outs = np.arange(size)
        keep = _relevant(eqn, args, place)
        if keep is not None:
            outs = outs[np.broadcast_to(keep, eqn.outputs[0].type.shape).ravel()]
        spread = atom.type.shape == () and size != 1
        parts.append(arg.pattern.through(outs, np.zeros_like(outs) if spread else outs, size))
    return [union(parts, size)]


def _relevant(eqn: Eqn, args: list[Known], place: int) -> np.ndarray | None:
    """Where a known operand lets this operand through: factors that are not 0, a select's side."""
    if eqn.op.name == "mul" and args[1 - place].value is not None:
        nonzero: np.ndarray = np.asarray(args[1 - place].value) != 0
        return nonzero
    if eqn.op.name == "select" and args[0].value is not None:
        chosen = np.asarray(args[0].value).astype(bool)
        return chosen if place == 1 else ~chosen
    return None


def _moved(eqn: Eqn, args: list[Known]) -> Found:
    """Views, gathers, concatenations: the reference is run on the positions of the elements."""
    size = eqn.outputs[0].type.size
    dtype = eqn.outputs[0].type.dtype
    moving = [a.type.dtype == dtype for a in eqn.inputs]
    operands, first = [], 1
    starts = []
    for arg, atom, moves in zip(args, eqn.inputs, moving, strict=True):
        starts.append(first)
        if moves:
            count = atom.type.size
            operands.append(np.arange(first, first + count).reshape(atom.type.shape))
            first += count
        elif arg.value is None:
            return _dense(eqn, args)
        else:
            operands.append(arg.value)
    places = np.asarray(eqn.op.numpy(*operands, **eqn.params)).ravel()
    parts: Found = []
    for arg, atom, start in zip(args, eqn.inputs, starts, strict=True):
        if arg.pattern is not None:
            here = np.flatnonzero((places >= start) & (places < start + atom.type.size))
            parts.append(arg.pattern.through(here, places[here] - start, size))
    return [union(parts, size)]


def _scattered(eqn: Eqn, args: list[Known]) -> Found:
    """Updates of known places: the transpose, run on positions, says where each one lands."""
    size = eqn.outputs[0].type.size
    kinds = [Unknown(array_type(a.type).with_dtype(np.dtype(np.float64))) for a in eqn.inputs[:2]]
    if any(a.value is None for a in args[2:]):
        return _dense(eqn, args)
    params = dict(eqn.params)
    if "monoid" in params:
        params["monoid"] = "add"
    places = np.arange(1.0, size + 1).reshape(eqn.outputs[0].type.shape)
    indices = [np.asarray(a.value) for a in args[2:]]
    found = _transposed(eqn, kinds, places, indices, params)
    parts: Found = []
    for arg, where in zip(args[:2], found[:2], strict=True):
        if arg.pattern is not None:
            landed = where.astype(np.int64).ravel()
            ins = np.flatnonzero(landed)
            parts.append(arg.pattern.through(landed[ins] - 1, ins, size))
    return [union(parts, size)]


def _transposed(
    eqn: Eqn,
    kinds: list[Unknown],
    places: np.ndarray,
    indices: list[np.ndarray],
    params: dict[str, Any],
) -> list[np.ndarray]:
    """Cotangents of the two array operands, on NumPy whatever trace is active around us."""

    transpose = eqn.op.transpose
    assert callable(transpose)

    def back(cotangent: Any, *given: Any) -> list[Any]:
        return list(transpose(cotangent, [*kinds, *given], **params))[:2]

    program, consts = stage(back, [type_of(v) for v in (places, *indices)], eqn.op.name)
    found = evaluate(program, [places, *indices], [concrete(c) for c in consts])
    return [np.asarray(f) for f in found]


def _reduced(eqn: Eqn, args: list[Known]) -> Found:
    axes = loops.loops_of(eqn).axes
    shape = eqn.inputs[0].type.shape
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    size = math.prod(kept)
    outs = np.broadcast_to(np.arange(size).reshape(kept), shape).ravel()
    pattern = args[0].pattern
    return [pattern.through(outs, np.arange(outs.size), size) if pattern else None]


def _contracted(eqn: Eqn, args: list[Known]) -> Found:
    (a_k, b_k), (a_batch, b_batch) = eqn.params["contract"], eqn.params["batch"]
    a, b = eqn.inputs[0].type, eqn.inputs[1].type
    left = [i for i in range(a.ndim) if i not in (*a_k, *a_batch)]
    right = [i for i in range(b.ndim) if i not in (*b_k, *b_batch)]
    lanes = math.prod(a.shape[i] for i in a_batch)
    depth = math.prod(a.shape[i] for i in a_k)
    m, n = (math.prod(t.shape[i] for i in free) for t, free in ((a, left), (b, right)))

    def arranged(array: np.ndarray, order: Sequence[int], first: bool) -> np.ndarray:
        cube = array.transpose(order).reshape(lanes, m if first else n, depth)
        return np.broadcast_to(
            cube[:, :, None, :] if first else cube[:, None, :, :], (lanes, m, n, depth)
        ).ravel()

    size = lanes * m * n
    outs = np.repeat(np.arange(size), depth)
    orders = ((*a_batch, *left, *a_k), (*b_batch, *right, *b_k))
    parts: Found = []
    for place, (arg, atom) in enumerate(zip(args, eqn.inputs, strict=True)):
        if arg.pattern is None:
            continue
        ins = arranged(np.arange(atom.type.size).reshape(atom.type.shape), orders[place], not place)
        other = args[1 - place].value
        if other is None:
            parts.append(arg.pattern.through(outs, ins, size))
        else:
            keep = arranged(np.asarray(other), orders[1 - place], bool(place)) != 0
            parts.append(arg.pattern.through(outs[keep], ins[keep], size))
    return [union(parts, size)]


def _lines(shape: tuple[int, ...], axis: int, related: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(out, in) pairs of elements on one line along `axis`, `related`[out place, in place]."""

    def places(extent: int) -> np.ndarray:
        there = (*shape[:axis], extent, *shape[axis + 1 :])
        numbered = np.moveaxis(np.arange(math.prod(there)).reshape(there), axis, -1)
        return numbered.reshape(-1, extent) if extent else numbered.reshape(0, 0)

    outs, ins = np.nonzero(related)
    return places(related.shape[0])[:, outs].ravel(), places(related.shape[1])[:, ins].ravel()


def _cumulated(eqn: Eqn, args: list[Known]) -> Found:
    shape = eqn.inputs[0].type.shape
    body = loops.loops_of(eqn)
    count = shape[body.axis]
    before = np.tri(count, dtype=bool)
    pairs = _lines(shape, body.axis, before.T if body.reverse else before)
    pattern = args[0].pattern
    return [pattern.through(*pairs, math.prod(shape)) if pattern else None]


def _sorted(eqn: Eqn, args: list[Known]) -> Found:
    shape = eqn.inputs[0].type.shape
    axis = loops.loops_of(eqn).axis
    out = eqn.outputs[0].type
    pairs = _lines(shape, axis, np.ones((out.shape[axis], shape[axis]), bool))
    parts = [a.pattern.through(*pairs, out.size) if a.pattern else None for a in args]
    return [union(parts, out.size)] * len(eqn.outputs)


_RULES: dict[type, Callable[[Eqn, list[Known]], Found]] = {
    loops.Pointwise: _pointwise,
    loops.View: _moved,
    loops.Indexed: _moved,
    loops.Reduce: _reduced,
    loops.Contract: _contracted,
    loops.Scan: _cumulated,
    loops.Sort: _sorted,
    loops.Scatter: _scattered,
}
