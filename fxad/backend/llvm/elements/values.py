"""Expressions of a Kernel as LLVM values; elements of buffers, their indices and addresses.

    here = inner(scope, axes={axis: "%i"}, lanes=Lanes(axis, 16, (Copy(0, "%i"),)))
    value(here, Load(x, at(axis)))          # one vector load

A value is computed once in a scope and those inside it. What does not depend on the lane axis stays
scalar and is broadcast where it meets a vector. Loops call `hoist` first, which computes before the
loop whatever does not change in it, addresses included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fxad.backend.llvm.base.axes import stride_along
from fxad.backend.llvm.base.formats import Pair, Value, cast, is_unsigned, kind_of
from fxad.backend.llvm.base.traffic import PAGE, SECOND
from fxad.backend.llvm.base.vector import Code, Vec, bits_of
from fxad.backend.llvm.elements import prims
from fxad.backend.llvm.elements.memory import choose, gather, load_run, load_scalar, prefetch
from fxad.backend.llvm.elements.scope import Atom, Need, Scope, each_copy
from fxad.core.aligned import LINE
from fxad.ir import kernel as ir

I32 = np.dtype("int32")
I64 = np.dtype("int64")
_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


# ---------------------------------------------------------------- expressions


def value(scope: Scope, expr: ir.Expr) -> Value:
    """The register value of an expression at the current point (and copy)."""
    key = _key(scope, expr)
    known = scope.find(key)
    if known is not None:
        return known
    for e in _unknown(scope, expr):
        scope.remember(_key(scope, e), _computed(scope, e))
    return scope.known[0][key]


def remember(scope: Scope, expr: ir.Expr, known: Value) -> None:
    """Let an expression have a value that is there already."""
    scope.remember(_key(scope, expr), known)


def _key(scope: Scope, expr: ir.Expr) -> object:
    if scope.per_copy(scope.context.needs.of(expr)):
        return expr, scope.copy.number
    return expr


def _unknown(scope: Scope, root: ir.Expr) -> Iterator[ir.Expr]:
    """Not yet computed expressions below root, children first."""
    done: set[ir.Expr] = set()
    stack = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if e in done:
            continue
        if ready:
            done.add(e)
            yield e
        elif scope.find(_key(scope, e)) is None:
            stack.append((e, True))
            stack += [(c, False) for c in reversed(ir.children(e))]
        else:
            done.add(e)


def _computed(scope: Scope, e: ir.Expr) -> Value:
    match e:
        case ir.Const():
            return constant(scope.code, e.value, e.dtype)
        case ir.Param():
            return scope.context.params[e.scalar]
        case ir.Get():
            return scope.cells[e.cell][scope.copy.number if e.cell in scope.varying else 0]
        case ir.IndexValue():
            return _index_value(scope, e.index, e.dtype)
        case ir.Load():
            guard = None if e.guard is None else value(scope, e.guard)
            fill = None if e.fill is None else value(scope, e.fill)
            wide = scope.varies(scope.context.needs.of(e))
            return load(scope, e.buffer, e.index, guard, fill, wide)
        case ir.Cast():
            return cast(value(scope, e.arg), e.arg.dtype, e.dtype)
        case ir.Prim(name, (ir.IndexValue() as a, ir.IndexValue() as b)) if (
            name in _COMPARISONS and _is_short(a) and _is_short(b)
        ):
            args = [_index_value(scope, x.index, I32) for x in (a, b)]
            wide = max(x.width for x in args)
            return prims.apply(name, [splat(scope, x, wide) for x in args], I32, e.dtype)
        case ir.Prim():
            args = [value(scope, a) for a in e.args]
            wide = max(a.width for a in args)
            args = [splat(scope, a, wide) for a in args]
            return prims.apply(e.name, args, e.args[-1].dtype, e.dtype)
    raise TypeError(f"not an expression: {e!r}")


def constant(code: Code, number: bool | int | float | complex, dtype: np.dtype) -> Value:
    kind = kind_of(dtype)
    if isinstance(number, complex) or dtype.kind == "c":
        both = complex(number)
        return Pair(code.const(kind, both.real), code.const(kind, both.imag))
    if kind in ("float", "double"):
        number = float(np.asarray(number).astype(dtype))
    return code.const(kind, number)


def splat(scope: Scope, scalar: Value, width: int) -> Value:
    """A value in every lane, remembered in this scope."""
    if isinstance(scalar, Pair):
        return Pair(splat(scope, scalar.re, width), splat(scope, scalar.im, width))
    if scalar.width == width or not scalar.text.startswith("%"):
        return scalar.splat(width)
    key = ("splat", scalar.text, width)
    known = scope.find(key)
    if known is None:
        known = scalar.splat(width)
        scope.remember(key, known)
    return known


def roots_with_guards(stores: Sequence[ir.Store]) -> list[ir.Expr]:
    """Values and guards of stores."""
    return [s.value for s in stores] + [s.guard for s in stores if s.guard is not None]


# ---------------------------------------------------------------- hoisting


def hoist(scope: Scope, roots: Iterable[ir.Expr], blocked: frozenset[Need], width: int = 1) -> None:
    """Compute here what does not depend on `blocked`; broadcast it to `width` lanes."""
    seen: set[ir.Expr] = set()
    stack = list(roots)
    needs = scope.context.needs
    while stack:
        e = stack.pop()
        if e in seen or isinstance(e, ir.Const):
            continue
        seen.add(e)
        if blocked.isdisjoint(needs.of(e)):
            for here in each_copy(scope) if scope.per_copy(needs.of(e)) else (scope,):
                found = value(here, e)
                if width > 1 and isinstance(found, Vec) and found.width == 1:
                    splat(here, found, width)
            continue
        if isinstance(e, ir.Load):
            hoist_index(scope, e.buffer, e.index, blocked)
        stack += ir.children(e)


def hoist_index(scope: Scope, buffer: ir.Buffer, index: ir.Index, blocked: frozenset[Need]) -> None:
    """Add to a buffer's address whatever is known of the index already."""
    pointer, terms = _known_part(scope, buffer, index)
    ready: list[tuple[Atom, int]] = []
    rest: list[tuple[Atom, int]] = []
    for atom, coefficient in terms:
        needs = scope.context.needs.of_atom(atom)
        steady = atom is scope.lanes.axis or not scope.varies(needs)
        known = blocked.isdisjoint(needs) and steady
        (ready if known else rest).append((atom, coefficient))
    if ready:
        size = buffer.dtype.itemsize
        scaled = ir.Index(0, tuple((atom, coefficient * size) for atom, coefficient in ready))
        pointer = scope.f.offset(pointer, scalar_index(scope, scaled))
        scope.remember(("part", buffer, index), (pointer, tuple(rest)))


# ---------------------------------------------------------------- loads


def load(
    scope: Scope,
    buffer: ir.Buffer,
    index: ir.Index,
    guard: Vec | None,
    fill: Value | None,
    wide: bool,
) -> Value:
    """buffer[index], or `fill` where the guard is false; `wide`: one element per lane."""
    code, dtype, width = scope.code, buffer.dtype, scope.lanes.width
    if guard is not None and fill is None:
        fill = constant(code, 0, dtype)
    if not wide:
        return _load_scalar(scope, buffer, index, guard, fill)
    mask = lanes_mask(scope, guard)
    if is_contiguous(scope, buffer, index):
        pointer, _ = address(scope, buffer, index)
        if buffer in scope.context.sequential and scope.copy.offset * dtype.itemsize % LINE == 0:
            _prefetch_on(scope, pointer, dtype.itemsize)
        found = load_run(code, pointer, dtype, width, mask)
    else:
        pointer, offsets = lane_offsets(scope, buffer, index)
        found = gather(code, pointer, offsets, dtype, mask)
    if guard is None:
        return found
    return choose(splat(scope, guard, width), found, splat(scope, fill, width))


def _load_scalar(
    scope: Scope, buffer: ir.Buffer, index: ir.Index, guard: Vec | None, fill: Value | None
) -> Value:
    pointer, _ = address(scope, buffer, index)
    if guard is not None:
        readable = scope.context.readable
        pointer = scope.f.op(f"select i1 {guard.text}, ptr {pointer}, ptr {readable}")
    found = load_scalar(scope.code, pointer, buffer.dtype)
    return found if guard is None else choose(guard, found, fill)


def lanes_mask(scope: Scope, guard: Vec | None) -> Vec | None:
    """Lanes that may touch memory; None means all."""
    mask = scope.copy.mask
    if guard is None:
        return mask
    guard = splat(scope, guard, scope.lanes.width)
    return guard if mask is None else guard & mask


def _prefetch_on(scope: Scope, pointer: str, size: int) -> None:
    """Prefetch what a loop over elements reads some way behind its current vector.

    Where it reads one array only, in as many pages in turn as it reads lines at a time: a core
    that computes has too few requests under way on one page (Emerald Rapids, exp of 128 MB: 8.8
    ms with one page, 8.0 with two, 7.6 with four, the plain loop 8.1).
    """
    code, f, context, lanes = scope.code, scope.f, scope.context, scope.lanes
    alone, tuning = len(context.sequential) == 1, code.target.tuning.rows
    if tuning.near_only and (alone or not context.streamed):
        prefetch(code, f.offset(pointer, tuning.near))
        return
    lines = len(lanes.copies) * lanes.width * size // LINE
    if lines < 2 or not alone or scope.copy.mask is not None or lanes.axis is None:
        prefetch(code, f.offset(pointer, tuning.distance))
        if not alone:
            prefetch(code, f.offset(pointer, tuning.far), SECOND)
        return
    block, key = lines * PAGE // size, ("back", lanes.axis)
    back = scope.find(key)
    if back is None:  # from the present iteration to its place in the block's first page
        at = f.op(f"and i64 {scope.axes[lanes.axis]}, {block - 1}")
        back = f.mul(f.op(f"sub i64 {f.op(f'udiv i64 {at}, {lines}')}, {at}"), size)
        scope.remember(key, back)
    offset = scope.copy.offset * size
    page = (lines + offset // LINE) * PAGE - offset
    prefetch(code, f.offset(f.offset(pointer, back), page))


# ---------------------------------------------------------------- addresses


def _known_part(scope: Scope, buffer: ir.Buffer, index: ir.Index) -> tuple[str, tuple]:
    """An address with what has been hoisted of the index, and the terms that are left."""
    key = ("part", buffer, index)
    known = scope.find(key)
    if known is None:
        start = scope.context.pointers[buffer]
        known = scope.f.offset(start, index.const * buffer.dtype.itemsize), index.terms
        scope.remember(key, known)
    return known


def address(scope: Scope, buffer: ir.Buffer, index: ir.Index) -> tuple[str, list]:
    """(address at lane 0 without its varying atoms, those atoms with their coefficients)."""
    key, size, f = ("address", buffer, index), buffer.dtype.itemsize, scope.f
    known = scope.find(key)
    if known is None:
        pointer, terms = _known_part(scope, buffer, index)
        total: str | int = 0
        rest = []
        for atom, coefficient in terms:
            if atom is scope.lanes.axis or not scope.varies(scope.context.needs.of_atom(atom)):
                total = f.add(total, f.mul(_scalar_atom(scope, atom), coefficient * size))
            else:
                rest.append((atom, coefficient))
        known = f.offset(pointer, total), rest
        scope.remember(key, known)
    pointer, rest = known
    if scope.lanes.width == 1 or not scope.copy.offset:
        return pointer, rest
    stride = stride_along(index, scope.lanes.axis)
    return f.offset(pointer, scope.copy.offset * stride * size), rest


def lane_offsets(scope: Scope, buffer: ir.Buffer, index: ir.Index) -> tuple[str, Vec]:
    """(scalar address, element offset of every lane from it)."""
    width = scope.lanes.width
    pointer, rest = address(scope, buffer, index)
    stride = stride_along(index, scope.lanes.axis)
    span = ir.Index(0, tuple(rest)).bounds()
    reach = max(abs(span[0]), abs(span[1])) + abs(stride) * width
    parts = 2 if buffer.dtype.kind == "c" else 1
    kind = "i32" if reach * parts < 2**31 else "i64"
    offsets = scope.code.iota(kind, width, 0, stride * parts)
    for atom, coefficient in rest:
        offsets = _lane_atom(scope, atom, kind) * (coefficient * parts) + offsets
    return pointer, offsets


def is_contiguous(scope: Scope, buffer: ir.Buffer, index: ir.Index) -> bool:
    """Do the lanes lie side by side?"""
    if stride_along(index, scope.lanes.axis) != 1:
        return False
    return not address(scope, buffer, index)[1]


# ---------------------------------------------------------------- indices


def _index_value(scope: Scope, index: ir.Index, dtype: np.dtype) -> Value:
    if not scope.varies(scope.context.needs.of_index(index)):
        return cast(Vec(scope.code, "i64", 1, scalar_index(scope, index)), I64, dtype)
    own = _index_dtype(index)
    return cast(lane_index(scope, index, kind_of(own)), own, dtype)


def _is_short(e: ir.IndexValue) -> bool:
    """Whether an integer has the same value in 32 bits."""
    return e.dtype in (I32, I64) and _index_dtype(e.index) == I32


def _index_dtype(index: ir.Index) -> np.dtype:
    low, high = index.bounds()
    return I32 if low > -(2**31) and high < 2**31 else I64


def scalar_index(scope: Scope, index: ir.Index) -> str:
    """A lane-independent index as an i64."""
    f = scope.f
    total: str | int = index.const
    for atom, coefficient in index.terms:
        total = f.add(f.mul(_scalar_atom(scope, atom), coefficient), total)
    return str(total)


def _scalar_atom(scope: Scope, atom: Atom) -> str:
    if isinstance(atom, ir.Axis):
        return scope.axes[atom]
    known = scope.find(("atom", atom))
    if known is None:
        known = _computed_atom(scope, atom)
        scope.remember(("atom", atom), known)
    return known


def _computed_atom(scope: Scope, atom: ir.Quot | ir.Rem | ir.Data) -> str:
    if isinstance(atom, ir.Data):
        return _data(scope, atom, "i64").text
    f = scope.f
    index, shift = _nonnegative(atom.index, atom.divisor)
    inside = scalar_index(scope, index)
    if isinstance(atom, ir.Rem):
        return f.op(f"urem i64 {inside}, {atom.divisor}")
    return f.add(f.op(f"udiv i64 {inside}, {atom.divisor}"), -shift)


def lane_index(scope: Scope, index: ir.Index, kind: str) -> Vec:
    """An index in every lane."""
    f, width = scope.f, scope.lanes.width
    uniform: str | int = index.const
    total: Vec | None = None
    for atom, coefficient in index.terms:
        if scope.varies(scope.context.needs.of_atom(atom)):
            term = _lane_atom(scope, atom, kind) * coefficient
            total = term if total is None else total + term
        else:
            uniform = f.add(f.mul(_scalar_atom(scope, atom), coefficient), uniform)
    base = Vec(scope.code, "i64", 1, str(uniform))
    if total is None:
        return splat(scope, _narrow(base, kind), width)
    if str(uniform) == "0":
        return total
    return total + splat(scope, _narrow(base, kind), width)


def _lane_atom(scope: Scope, atom: Atom, kind: str) -> Vec:
    key = ("lanes", atom, kind, scope.copy.number)
    known = scope.find(key)
    if known is None:
        known = _computed_lanes(scope, atom, kind)
        scope.remember(key, known)
    return known


def _computed_lanes(scope: Scope, atom: Atom, kind: str) -> Vec:
    code, width = scope.code, scope.lanes.width
    if isinstance(atom, ir.Axis):
        base = _narrow(Vec(code, "i64", 1, scope.copy.base), kind)
        lanes = code.iota(kind, width, scope.copy.offset)
        return splat(scope, base, width) + lanes
    if isinstance(atom, ir.Data):
        return _data(scope, atom, kind).splat(width)
    index, shift = _nonnegative(atom.index, atom.divisor)
    inside = lane_index(scope, index, kind if _index_dtype(index) == I32 else "i64")
    if isinstance(atom, ir.Rem):
        return _narrow(inside.binary("urem", atom.divisor), kind)
    return _narrow(inside.binary("udiv", atom.divisor), kind) - shift


def _data(scope: Scope, atom: ir.Data, kind: str) -> Vec:
    """The clamped integer read from an array, as `kind`."""
    code, x = scope.code, value(scope, atom.value)
    limit = max(atom.size - 1, 0)
    unsigned = is_unsigned(atom.value.dtype)
    if x.kind == "i1":
        x = x.convert("zext", "i32")
    if not unsigned:
        x = code.intrinsic("smax", x, x.like(0))
    if limit < (1 << (bits_of(x.kind) - (not unsigned))) - 1:
        x = code.intrinsic("umin", x, x.like(limit))
    return _narrow(x, kind, "zext")


def remember_in_bounds(scope: Scope, index: ir.Index, guard: ir.Expr) -> None:
    """Let an index be used without clamps where a guard holds that keeps it in bounds."""
    tests, stack = set(), [guard]
    while stack:
        match stack.pop():
            case ir.Prim("and", args):
                stack += args
            case ir.Prim(name, (read, ir.Const(limit))):
                tests.add((name, read, limit))
    for atom, _ in index.terms:
        if isinstance(atom, ir.Data):
            read = atom.value
            above = is_unsigned(read.dtype) or ("ge", read, 0) in tests
            if above and ("lt", read, atom.size) in tests:
                known = _narrow(value(scope, read), "i64", "zext")
                scope.remember(("atom", atom), known.text)


def _nonnegative(index: ir.Index, divisor: int) -> tuple[ir.Index, int]:
    """(index + k * divisor, k) that is never negative: division needs no sign then."""
    low, _ = index.bounds()
    shift = -(low // divisor) if low < 0 else 0
    return index + shift * divisor, shift


def _narrow(x: Vec, kind: str, widen: str = "sext") -> Vec:
    """An integer as another kind; constants fold."""
    if x.kind == kind:
        return x
    if x.width == 1 and not x.text.startswith("%"):
        return x.code.const(kind, int(x.text))
    return x.convert("trunc" if bits_of(kind) < bits_of(x.kind) else widen, kind)
