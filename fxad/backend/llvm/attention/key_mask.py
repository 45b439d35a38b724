"""Two versions of the code where a mask of keys is the same for all rows, as one of padding is.

    with_key_mask(code, scope, "0", "64", body)   # body(window)

Where the mask lets one run of keys through, no row sees others: they are neither read nor masked.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.code import Code
from fxad.backend.llvm.attention.window import Window, visible_keys, whole_window
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Copy, Lanes, Scope, inner, with_axes
from fxad.backend.llvm.elements.values import value
from fxad.ir.kernel import Expr


def with_key_mask(
    code: Code, scope: Scope, first: str, end: str, body: Callable[[Window], None]
) -> None:
    """body(window), for rows first ... end - 1 of the head at whose grid point the scope is.

    Where the mask lets one run of keys through and every row sees the first of them, another
    version of it sees no other keys.
    """
    f, mask, whole = code.f, code.problem.mask, whole_window(code, scope)
    if mask is None:
        body(whole)
        return
    low, high, count = _run_of_keys(code, scope, mask.expr)
    last = visible_keys(code, whole, f.op(f"sub i64 {end}, 1"))
    conditions = (
        f"eq i64 {f.op(f'sub i64 {high}, {low}')}, {count}",
        f"sle i64 {last[0]}, {low}",
        f"slt i64 {low}, {visible_keys(code, whole, first)[1]}",
    )
    is_run, *others = (f.op(f"icmp {c}") for c in conditions)
    for other in others:
        is_run = f.op(f"and i1 {is_run}, {other}")
    run = Window(inner(scope), low, high, masked=True, scale=mask.scale)
    f.when(is_run, lambda: body(run))
    f.when(f.op(f"xor i1 {is_run}, true"), lambda: body(whole))


def _run_of_keys(code: Code, scope: Scope, mask: Expr) -> list[str]:
    """The first key that a mask lets through, the end of the last one, and how many (keys, 0, 0 if
    it lets none through)."""
    f, keys, width = code.f, code.problem.stage.keys, code.lanes.width
    for name in ("cttz.i64(i64, i1", "ctlz.i64(i64, i1", "ctpop.i64(i64"):
        scope.code.declarations.add(f"declare i64 @llvm.{name})")

    def vector(j: str, values: list[str]) -> list[str]:
        inside = scope.code.first_lanes(width, f.op(f"sub i64 {keys.extent}, {j}"))
        copy = Copy(0, j, 0, inside)
        lanes = Lanes(keys, width, (copy,))
        found = value(inner(scope, axes=with_axes(scope, {keys: j}), lanes=lanes, copy=copy), mask)
        assert isinstance(found, Vec)
        through = inside & found.splat(width)
        bits = f.op(f"bitcast {through.type} {through.text} to i{width}")
        bits = f.op(f"zext i{width} {bits} to i64")
        low = f.add(j, f.op(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 false)"))
        after = f.op(f"call i64 @llvm.ctlz.i64(i64 {bits}, i1 false)")
        high = f.op(f"sub i64 {f.add(j, 64)}, {after}")
        some = f.op(f"icmp ne i64 {bits}, 0")
        low = f.op(f"select i1 {some}, i64 {f.least(low, values[0])}, i64 {values[0]}")
        high = f.op(f"select i1 {some}, i64 {high}, i64 {values[1]}")
        count = f.add(values[2], f.op(f"call i64 @llvm.ctpop.i64(i64 {bits})"))
        return [low, high, count]

    start = [("i64", str(keys.extent)), ("i64", "0"), ("i64", "0")]
    return f.loop(0, keys.extent, width, vector, start)
