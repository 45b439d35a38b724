"""What lies between a function and its machine code: `jit(f).lower(*args)`.

>>> lowered = fxad.jit(f).lower(x)
>>> print(lowered.program)      # also .kernels, .plan, .llvm, .asm, .cost()
"""

from __future__ import annotations

import functools
import numbers
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.api import above, compiled, views
from fxad.api.flat import flatten_args
from fxad.api.shape_struct import ShapeDtypeStruct
from fxad.compiler import native
from fxad.core import system
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.lazy import later
from fxad.core.pytree import TreeDef
from fxad.core.record import valued
from fxad.core.shared import Shared
from fxad.core.types import ArrayType
from fxad.ir.cost import cost, peak_bytes
from fxad.ir.kernel import Kernel
from fxad.ir.offload_ops import staging
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.program import Program
from fxad.ir.stages import Ran
from fxad.trace.tracer import Tracer

if TYPE_CHECKING:
    from fxad.ir.inspection import columns as listings
    from fxad.ir.inspection import diff as diffs
else:
    diffs = later("fxad.ir.inspection.diff")
    listings = later("fxad.ir.inspection.columns")


@valued
class Arguments:
    """What a function was traced for: the structure of (args, kwargs) without static ones, the
    leaves' types, how many captured values stand before them among the program's inputs, and the
    static ones."""

    tree: TreeDef
    types: tuple[ArrayType, ...]
    captured: int
    statics: tuple[Any, ...]


@valued
class Results:
    """What a traced function gives: its structure, and which leaves are weakly typed."""

    tree: TreeDef
    weak: tuple[bool, ...]


@valued
class ArgInfo:
    """One argument of a compiled function."""

    shape: tuple[int, ...]
    dtype: np.dtype
    donated: bool


class Kernels(list[Kernel]):
    """Kernels, shown as their texts."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    __repr__ = __str__


class MemoryAnalysis(dict[str, int]):
    """What `Lowered.memory` gives, with the attributes that JAX's analysis has."""

    argument_size_in_bytes = property(lambda self: self["argument_bytes"])
    output_size_in_bytes = property(lambda self: self["result_bytes"])
    temp_size_in_bytes = property(lambda self: self["arena_bytes"] + self["scratch_bytes"])
    peak_memory_in_bytes = property(lambda self: self["predicted_bytes"])
    alias_size_in_bytes = 0
    generated_code_size_in_bytes = 0


class Lowered(Shared):
    """The stages of one traced signature; each is made when first asked for."""

    def __init__(
        self,
        program: Program,
        donate: frozenset[int],
        function: Any,
        arguments: Arguments,
        results: Results,
        recognised: Sequence[Ran],
    ) -> None:
        self._traced = program
        self._donate = donate
        self._function = function
        self._arguments = arguments
        self._results = results
        self._recognised = recognised

    def __repr__(self) -> str:
        given = ", ".join([f"{v.label or '_'}: {v.type}" for v in self._traced.inputs])
        made = ", ".join(map(str, self._traced.out_types))
        count = len(self._traced.eqns)
        return f"<{type(self).__name__} {self._traced.name}({given}) -> {made}, {count} equations>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result: `jit(f).lower(x).compile()` is called like `jit(f)`."""
        return self._function(*args, **kwargs)

    @property
    def in_tree(self) -> TreeDef:
        """The structure of (args, kwargs), static arguments left out."""
        return self._arguments.tree

    @property
    def in_avals(self) -> Any:
        """(args, kwargs) with types instead of arrays."""
        return self.in_tree.unflatten(self._arguments.types)

    @property
    def out_tree(self) -> TreeDef:
        """The structure of the result."""
        return self._results.tree

    @property
    def out_info(self) -> Any:
        """The result with ShapeDtypeStructs instead of arrays."""
        pairs = zip(self._traced.out_types, self._results.weak, strict=True)
        return self.out_tree.unflatten(
            [ShapeDtypeStruct(t.shape, t.dtype, weak_type=weak) for t, weak in pairs]
        )

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The leaves of the arguments whose memory results may take over."""
        return tuple(sorted(n - self._arguments.captured for n in self._donate))

    @property
    def args_info(self) -> Any:
        """(args, kwargs) with an ArgInfo instead of each array."""
        donated = self.donate_argnums
        types = enumerate(self._arguments.types)
        return self.in_tree.unflatten([ArgInfo(t.shape, t.dtype, i in donated) for i, t in types])

    @property
    def traced(self) -> Program:
        """The program as it was recorded."""
        return self._traced

    @functools.cached_property
    def program(self) -> Program:
        """The program after the passes, within its memory budget if it has one."""
        return compiled.planned(self._traced, self._donate).program

    @property
    def executable(self) -> Any:
        """The compiled program."""
        return compiled.executable(self._traced, self._donate)

    @property
    def plan(self) -> Plan:
        """What runs when, and where every byte lives."""
        return self.executable.plan

    @property
    def kernels(self) -> Kernels:
        """The loop nests, each once, in order of first use: a list whose text is theirs."""
        return Kernels(dict.fromkeys(s.kernel for s in walk(self.plan.steps) if isinstance(s, Run)))

    @property
    def llvm(self) -> str:
        """LLVM IR of all kernels."""
        return self.executable.llvm

    @property
    def asm(self) -> str:
        """Machine code of all kernels, as assembly text."""
        return self.executable.asm

    def cost(self) -> dict[str, int]:
        """Floating-point operations, bytes moved, bytes of the arena (see `fxad.ir.cost`)."""
        return cost(self.plan)

    def memory(self, trips: int | Sequence[int] | None = None) -> dict[str, int]:
        """Bytes a run needs, known before it: of arguments, results and the arena, of scratch for
        all threads, of the memory in which values wait on their way to the disk or on the host, of
        tapes, and all of these together (predicted).

        Tapes are what loops of unknown length keep. trips: how many each of them makes at most,
        or a sequence: those outermost, those in their trips, and so on. Without it `tape_bytes` is
        the most that a run has taken so far, 0 before the first. `trip_bytes` is what a single
        trip of each keeps (tapes grow in slabs that double).

        Beside them what this process has seen so far: the most its allocator has had in use for
        arenas and large results (allocated), and its largest resident memory (resident). Raises
        BadArgument for trips that are no numbers.
        """
        counts, scratch = self.cost(), self.executable.scratch_bytes
        tapes = self.executable.tape_bytes if trips is None else self._tapes(trips)
        return {
            **{n: counts[n] for n in ("argument_bytes", "result_bytes", "arena_bytes")},
            "scratch_bytes": scratch,
            "offload_bytes": staging(self.program),
            "tape_bytes": tapes,
            "trip_bytes": native().trip_bytes(self.plan),
            "predicted_bytes": peak_bytes(self.plan, self.program) + scratch + tapes,
            "allocated_bytes": native().high_water,
            "resident_bytes": system.resident_bytes(),
        }

    def planned_bytes(self, arguments: bool = True) -> int:
        """Bytes a run needs by its plan: of arguments, results, the arena and of what waits on its
        way to the disk. No machine code is made for it, so the scratch memory of threads, a few MB,
        is left out, and tapes. Without `arguments`, what it needs beside them.

        >>> low = fxad.jit(lambda x: x * 2).lower(jnp.ones(1 << 20))
        >>> low.planned_bytes(), low.planned_bytes(arguments=False)
        (8388608, 4194304)
        """
        made = compiled.planned(self._traced, self._donate)
        held = 0 if arguments else cost(made.plan)["argument_bytes"]
        return peak_bytes(made.plan, made.program) - held

    def _tapes(self, trips: int | Sequence[int]) -> int:
        listed = trips if isinstance(trips, Sequence) else (trips,)
        whole = [t for t in listed if isinstance(t, numbers.Integral) and t >= 0]
        if not listed or len(whole) < len(listed):
            raise BadArgument(f"memory: trips is a number, or one for each depth, not {trips!r}")
        return native().tape_bytes(self.plan, tuple(map(int, listed)))

    cost_analysis = cost  # JAX's name

    def memory_analysis(self) -> MemoryAnalysis:
        """`memory()` with JAX's attributes beside."""
        return MemoryAnalysis(self.memory())

    def compile(self, compiler_options: Any = None) -> Compiled:
        """Compile now; the result takes arguments of exactly these types. compiler_options is
        accepted for code ported from JAX."""
        made = Compiled(
            self._traced,
            self._donate,
            self._function,
            self._arguments,
            self._results,
            self._recognised,
        )
        _ = made.executable
        return made

    def stages(self) -> list[Ran]:
        """The compiler's stages in order: what each was given and made, what it changed, and how
        long it took. The program is compiled anew for it; the first, `recognise`, ran when it was
        traced, once for each derivative in it and once for the whole."""
        return [*self._recognised, *compiled.stages(self._traced, self._donate)]

    def diff(self, other: Lowered) -> str:
        """What differs from another lowering: their programs after the passes, line by line (- for
        this one, + for the other), and their costs. Values that both programs have are called
        alike. Empty if there is no difference. Raises TypeMismatch if `other` is no Lowered."""
        if not isinstance(other, Lowered):
            raise TypeMismatch(f"diff: expected what jit(f).lower(x) gives, not {other!r:.60}")
        mine, others = self.cost(), other.cost()
        counts = [
            f"{name}: {mine[name]:,} -> {others[name]:,}"
            for name in mine
            if mine[name] != others[name]
        ]
        changed = diffs.difference(self.program, other.program)
        return "\n".join([*([changed] if changed else []), *counts])

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the program after the passes as one HTML file that needs no other (see
        `make_ir(f)(x).save_html`)."""
        views.save_html(self.program, path)

    def _repr_html_(self) -> str:
        return views.program_html(self.program)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program's text; debug_info: with a column for the lines it comes from.

        Raises BadArgument for a dialect: there is one.
        """
        if dialect is not None:
            raise BadArgument(
                f"as_text: there is one text of a program, not {dialect!r}; pass None"
            )
        return listings.listing(self.program, ("where",)) if debug_info else str(self.program)


class Compiled(Lowered):
    """A compiled signature: called like the function, it never traces again."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result for its arguments without static ones, whose values are those that
        it was lowered for.

        Raises TypeMismatch for arguments of another structure or type, and inside `jit`, `vmap`
        or a derivative: what is compiled runs, it is not traced.
        """
        leaves, tree = flatten_args((args, kwargs), "a compiled function")
        if tree != self.in_tree:
            static = "; leave out static arguments, which are those it was lowered for"
            raise TypeMismatch(
                f"this function was compiled for arguments of structure {self.in_tree}, it is "
                f"called with {tree}{static if self._arguments.statics else ''}"
            )
        for leaf, wanted in zip(leaves, self._arguments.types, strict=True):
            if isinstance(leaf, Tracer):
                raise TypeMismatch(
                    "a compiled function cannot be transformed or traced: call the jitted function "
                    "that it was lowered from"
                )
            if leaf.type != wanted:
                raise TypeMismatch(
                    f"this function was compiled for an argument {wanted}, it is called with "
                    f"{leaf.type}"
                )
        return self._function.with_statics(args, kwargs, self._arguments.statics)


class Traced(Shared):
    """A traced signature before it is compiled: `jit(f).trace(*args)`."""

    def __init__(self, lowered: Lowered, captured: Sequence[Any], fun_name: str) -> None:
        self._lowered = lowered
        self._captured = tuple(captured)
        self.fun_name = fun_name

    def __repr__(self) -> str:
        return repr(self._lowered).replace("Lowered", "Traced", 1)

    in_tree = property(lambda self: self._lowered.in_tree)
    in_avals = property(lambda self: self._lowered.in_avals)
    args_info = property(lambda self: self._lowered.args_info)
    out_tree = property(lambda self: self._lowered.out_tree)
    out_info = property(lambda self: self._lowered.out_info)
    donate_argnums = property(lambda self: self._lowered.donate_argnums)

    @functools.cached_property
    def jaxpr(self) -> Any:
        """The program as a ClosedJaxpr, whose consts are the captured arrays."""
        closed, count = self._lowered.traced, len(self._captured)
        opened = Program(
            closed.inputs[count:], closed.eqns, closed.outputs, closed.name, closed.inputs[:count]
        )
        return above.jaxprs.ClosedJaxpr(above.jaxprs.Jaxpr.of(opened), self._captured)

    @property
    def out_avals(self) -> Any:
        """The types of the result's leaves."""
        return self.jaxpr.out_avals

    def lower(self, *, lowering_platforms: Any = None) -> Lowered:
        """The stages of the compiler. The platform there is may be named ("cpu").

        Raises BadArgument for another.
        """
        if lowering_platforms is not None and set(lowering_platforms) != {"cpu"}:
            raise BadArgument(f"lower: there is one platform, 'cpu', not {lowering_platforms!r}")
        return self._lowered
