"""Python written for calls of one signature: `caller`.

For `f(x)` with one array in and out it is

    def call(args, kwargs):
        if stack.levels or state.interpret or not tracer.ordinary or ...: return MISS
        (x,) = args  # with checks, for the structure that was traced
        r0 = make0()
        if native(x, r0): ...  # not of the types that were traced
        a0 = new(Concrete)
        a0._data = r0; a0.type = type0; a0.weak = False
        return a0

The native function compares the arguments' types itself (`fxad.backend.llvm.direct`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxad.api import compiled
from fxad.core import dtypes as dt
from fxad.core.pytree import TreeDef
from fxad.core.treecode import DIFFERS, Code
from fxad.core.types import ArrayType
from fxad.trace import tracer
from fxad.trace.array import Array, Concrete
from fxad.trace.convert import is_array_like, to_value

if TYPE_CHECKING:
    from fxad.compiler import Direct

_SETTINGS = {
    "stack": tracer._stack,
    "tracer": tracer,
    "state": compiled._state,
    "options": compiled._options,
    "numerics": dt.numerics,
}
MISS: Any = object()  # returned by a call that is for others
_WRITTEN_OUT = 32  # results: each with lines of its own up to so many, in a loop beyond


def caller(
    trees: tuple[TreeDef, TreeDef],
    direct: Direct,
    captured: Sequence[Array],
    results: tuple[Sequence[ArrayType], Sequence[bool]],
) -> Callable[[tuple, dict[str, Any]], Any]:
    """A function of (args, kwargs) to the result, or to MISS.

    trees: of (args, kwargs) and of the result. direct: see `fxad.backend.llvm.direct.Direct`.
    captured: operands before the arguments. results: their types and weakness. It runs only
    outside of traces, and under the settings of now.
    """
    code, fusion = Code(failed="MISS"), compiled._options["fusion"]
    code.constants |= {**_SETTINGS, "MISS": MISS, "converted": _converted}
    code.constants |= {"direct": direct, "native": direct.call}
    leaves: list[str] = []
    with code.block("def call(args, kwargs):"):
        code.line("if stack.levels or state.interpret or not tracer.ordinary: return MISS")
        code.line(f"if numerics.key is not {code.constant(dt.numerics.key)}: return MISS")
        code.line(f"if options['fusion'] is not {fusion}: return MISS")
        with code.block("try:"):
            for tree, name in zip(trees[0].children(), ("args", "kwargs"), strict=True):
                code.take(tree, name, leaves)
        code.line(f"except ({DIFFERS}): return MISS")
        if direct.parallel:
            code.line("if not direct.renew(): return MISS")
        first = [f"*{code.constant(tuple(captured))}"] if captured else []
        writing = _WrittenOut if len(direct.makers) <= _WRITTEN_OUT else _Looped
        made = writing(code, direct.makers, *results)
        with code.block(f"if native({', '.join([*first, *leaves, *made.buffers])}):"):
            code.line(f"given = converted([{', '.join(leaves)}])")
            again = ", ".join([*first, "*given", *made.buffers])
            code.line(f"if given is None or native({again}): return MISS")
        code.line(f"return {code.put(trees[1], iter(made.wrapped()))}")
    return code.function("call", "compiled call")


def _converted(leaves: list[Any]) -> list[Array] | None:
    """NumPy's arrays and Python's numbers as Arrays; None if there are other things."""
    return [to_value(v) for v in leaves] if all(map(is_array_like, leaves)) else None


class _WrittenOut:
    """Lines that make the results' memory, and Arrays of it."""

    def __init__(self, code: Code, makers: Sequence[Any], types: Any, weak: Any) -> None:
        self._code, self._types, self._weak = code, types, weak
        self.buffers = [code.define(f"{code.constant(make)}()", "r") for make in makers]

    def wrapped(self) -> list[str]:
        code, names = self._code, []
        new, cls = code.constant(object.__new__), code.constant(Concrete)
        for buffer, type, weak in zip(self.buffers, self._types, self._weak, strict=True):
            names.append(name := code.define(f"{new}({cls})", "a"))
            kind = code.constant(type)
            code.line(f"{name}._data = {buffer}; {name}.type = {kind}; {name}.weak = {weak}")
        return names


class _Looped:
    """The same for many results."""

    def __init__(self, code: Code, makers: Sequence[Any], types: Any, weak: Any) -> None:
        self._code, self._types, self._weak = code, types, weak
        code.line(f"made = [make() for make in {code.constant(makers)}]")
        self.buffers = ["*made"]

    def wrapped(self) -> list[str]:
        code = self._code
        names = [code.fresh("a") for _ in self._types]
        of_all, types, weak = map(code.constant, (Concrete.of_all, self._types, self._weak))
        code.line(f"[{', '.join(names)}] = {of_all}(made, {types}, {weak})")
        return names
