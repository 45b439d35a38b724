"""`jit`: trace once per signature, compile, and run as one native call.

@fxad.jit
def f(x):
    return fxad.numpy.sin(x) * 2
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fxad.api import compiled, naming, override, retrace, views
from fxad.api.arguments import check_function, chosen_arguments
from fxad.api.axes import in_force
from fxad.api.calling import MISS
from fxad.api.donation import example, held
from fxad.api.flat import FlatFunction, call_place, called_by_python, flatten_args, name_of
from fxad.api.indices import recorded_indices
from fxad.api.recent import Recent, Trace, kinds_of
from fxad.api.traces import traces_of
from fxad.compiler import BACKENDS, recognise
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.collecting import without_collection
from fxad.core.config import config
from fxad.core.errors import BadArgument, ConcretizationError, RetraceError
from fxad.core.lazy import later
from fxad.core.pytree import TreeDef
from fxad.core.shared import Shared
from fxad.core.treecode import MOST_LEAVES
from fxad.ir.program import OPS
from fxad.ir.stages import Ran, listening
from fxad.ops.programs.policies import Budget
from fxad.trace import tracer
from fxad.trace.array import Array
from fxad.trace.tracer import Tracer, stage, staging

if TYPE_CHECKING:
    from fxad.api import placement, stages
else:
    placement = later("fxad.api.placement")
    stages = later("fxad.api.stages")


def signature(leaves: list[Array], tree: TreeDef, statics: tuple) -> tuple:
    """What a trace is looked up by; `fxad.api.retrace` explains how two differ."""
    types, weak = tuple([v.type for v in leaves]), tuple([v.weak for v in leaves])
    settings = (*dt.numerics.key, override.active(), recorded_indices())
    return tree, types, weak, statics, kinds_of(statics), settings


class Jit(Shared):
    """A function that compiles itself for every new signature of its arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[frozenset[int], frozenset[str]],
        donate: tuple[frozenset[int], frozenset[str]],
        memory_budget: Budget | None,
    ) -> None:
        functools.update_wrapper(self, function)
        with contextlib.suppress(ValueError, TypeError):  # some built-in functions have none
            self.__signature__ = inspect.signature(function)
        self._function = function
        self._what = f"jit({name_of(function)})"
        self._static = static
        self._has_statics = any(static)
        self._donate_argnums, self._donate_argnames = donate
        self._memory_budget = memory_budget
        self._traces = traces_of(function, (static, donate, memory_budget))
        self._traces.users.add(self)
        self._recent: Recent | None = None
        self._direct: Callable[[tuple, dict[str, Any]], Any] | None = None  # of `_recent`

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._direct is not None:
            result = self._direct(args, kwargs)
            if result is not MISS:
                return result
        statics: tuple = ()
        if compiled.interpreting():
            args, kwargs, statics = self._take_statics(args, kwargs)
            return called_by_python(self._with(statics), args, kwargs, self._what, self._place)
        if self._has_statics:
            args, kwargs, statics = self._take_statics(args, kwargs)
        recent = self._recent
        if recent is not None:
            result = recent.call(args, kwargs, statics)
            if result is not MISS:
                if not self._has_statics:
                    self._direct = recent.direct
                return result
        return self.with_statics(args, kwargs, statics)

    def with_statics(self, args: tuple, kwargs: dict[str, Any], statics: tuple) -> Any:
        """The result for arguments without the static ones, and those."""
        leaves, trace = self._trace_for(args, kwargs, statics)
        operands = [*trace.captured, *leaves] if trace.captured else leaves
        if not staging() and not any(isinstance(v, Tracer) for v in operands):
            return trace.run(operands)
        outs = OPS["call"](*operands, program=trace.program)
        for out, weak in zip(outs, trace.weak, strict=True):
            out.weak = weak
        return trace.out_tree.unflatten(outs)

    def __reduce__(self) -> str | tuple:
        """By name where that leads here, as with Python's functions, else made again from the
        function; what was traced and compiled stays behind."""
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name
        donate = self._donate_argnums, self._donate_argnames
        return Jit, (self._function, self._static, donate, self._memory_budget)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def dynamic_arguments(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict]:
        """The arguments without the static ones: what a trace's operands are the leaves of."""
        return self._take_statics(args, kwargs)[:2]

    def trace_for(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[Array], Trace]:
        """The arguments' leaves, and the trace of their signature (made now if there is none)."""
        return self._trace_for(*self._take_statics(args, kwargs))

    def _trace_for(
        self, args: tuple, kwargs: dict[str, Any], statics: tuple
    ) -> tuple[list[Array], Trace]:
        leaves, tree = flatten_args((args, kwargs), self._what, self._place)
        key = signature(leaves, tree, statics)
        if named := in_force():
            key = (*key, named)
        found = self._traces.find(key, self._what, statics)
        if found is None:
            retrace.check_allowed(self._what)
            self._check_limit(key)
            # Not under the lock: the function may wait for another thread that uses it.
            with without_collection():
                found = self._trace(leaves, tree, statics, args, kwargs)
            if any(isinstance(c, Tracer) for c in found.captured):
                return leaves, found
        elif tree.num_leaves <= MOST_LEAVES and not named and tracer.ordinary:
            self._recent, self._direct = self._traces.met(found, tree, leaves, statics), None
        return leaves, self._traces.keep(key, found)

    def _check_limit(self, key: tuple) -> None:
        limit = config.max_traces
        if limit is not None and len(self._traces) >= limit:
            raise RetraceError(
                f"{retrace.explain(self._what, self._traces, key)}; that is one signature more "
                f"than config.max_traces = {limit} allows: pad shapes, convert dtypes, or make "
                "values that change arrays instead of static arguments"
            )

    def explain_retrace(self, *args: Any, **kwargs: Any) -> str:
        """Whether a call with these arguments would be traced, and what differs from the trace
        nearest to it. Nothing is traced or run."""
        args, kwargs, statics = self._take_statics(args, kwargs)
        leaves, tree = flatten_args((args, kwargs), self._what, self._place)
        key = signature(leaves, tree, statics)
        return retrace.explain(self._what, self._traces, key)

    def _place(self, path: pytree.KeyPath) -> str:
        """`call_place` in the call as it was written: static arguments have been taken out."""
        if path[0].idx == 1 or not self._has_statics:
            return call_place(path)
        number = path[1].idx
        for static in sorted(self._static[0]):
            number += static <= number
        return f"args[{number}]{pytree.keystr(path[2:])}"

    def _take_statics(self, args: tuple, kwargs: dict[str, Any]) -> tuple:
        if not self._has_statics:
            return args, kwargs, ()
        numbers, names = self._static
        statics: list[tuple[int | str, Any]] = [(i, a) for i, a in enumerate(args) if i in numbers]
        statics += [(k, v) for k, v in sorted(kwargs.items()) if k in names]
        dynamic = tuple(a for i, a in enumerate(args) if i not in numbers)
        rest = {k: v for k, v in kwargs.items() if k not in names}
        return dynamic, rest, tuple(statics)

    def _with(self, statics: tuple) -> Callable[..., Any]:
        """The function of its other arguments."""
        placed = [(k, v) for k, v in statics if isinstance(k, int)]
        named = {k: v for k, v in statics if isinstance(k, str)}

        def call(*dynamic: Any, **rest: Any) -> Any:
            merged = list(dynamic)
            for number, value in placed:
                merged.insert(number, value)
            return self._function(*merged, **named, **rest)

        return call

    def _trace(
        self, leaves: list[Array], tree: TreeDef, statics: tuple, args: tuple, kwargs: dict
    ) -> Trace:
        flat = FlatFunction(self._with(statics), tree, what=name_of(self._function))
        types = [v.type for v in leaves]
        weak = [v.weak for v in leaves]
        recognised: list[Ran] = []

        def note(ran: Ran) -> None:
            if ran.stage == "recognise":
                recognised.append(ran)

        with listening(note):
            try:
                staged = stage(flat, types, name_of(self._function), weak)
            except ConcretizationError as error:
                names = naming.arguments_of(self._function, self._static[0], tree, error.inputs)
                error.of_arguments(names, name_of(self._function))
                raise
            program, captured = recognise(*staged)
        donate = self._donated_leaves(args, kwargs, {k for k, _ in statics if isinstance(k, int)})
        captured = [held(value) for value in captured]
        shifted = frozenset(i + len(captured) for i in donate)
        assert flat.tree is not None
        closed = program.closed()
        if self._memory_budget is not None:
            compiled.limit_memory(closed, self._memory_budget)
        return Trace(closed, captured, flat.tree, flat.weak, shifted, recognised)

    def _donated_leaves(self, args: tuple, kwargs: dict[str, Any], static: set[int]) -> list[int]:
        if not self._donate_argnums and not self._donate_argnames:
            return []
        numbers = [i for i in range(len(args) + len(static)) if i not in static]
        marks = [number in self._donate_argnums for number in numbers]
        named = {k: k in self._donate_argnames for k in kwargs}
        flags: list[bool] = []
        for mark, arg in zip(marks, args, strict=True):
            flags += [mark] * len(pytree.leaves(arg))
        for key in sorted(kwargs):
            flags += [named[key]] * len(pytree.leaves(kwargs[key]))
        return [i for i, flag in enumerate(flags) if flag]

    def lower(self, *args: Any, **kwargs: Any) -> stages.Lowered:
        """Trace and compile for these arguments (arrays or shape structs) without running."""
        return self.trace(*args, **kwargs).lower()

    def trace(self, *args: Any, **kwargs: Any) -> stages.Traced:
        """Trace for these arguments (arrays or shape structs): types of the result, the program as
        a jaxpr, and `lower()`."""
        args, kwargs, statics = self._take_statics(args, kwargs)
        args, kwargs = pytree.map(example, (args, kwargs))
        leaves, trace = self._trace_for(args, kwargs, statics)
        tree, types = pytree.structure((args, kwargs)), tuple(v.type for v in leaves)
        signature = stages.Arguments(tree, types, len(trace.captured), statics)
        naming.label_program(
            trace.program, self, self._static[0], tree, trace.out_tree, len(trace.captured)
        )
        results = stages.Results(trace.out_tree, trace.weak)
        lowered = stages.Lowered(
            trace.program, trace.donate, self, signature, results, trace.recognised
        )
        return stages.Traced(lowered, trace.captured, name_of(self._function))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The result's ShapeDtypeStructs for these arguments (arrays or shape structs)."""
        return self.trace(*args, **kwargs).out_info

    def on(self, target: str) -> Callable[..., Any]:
        """The same function run from the same Kernels by another backend.

        target: "cuda" (an NVIDIA GPU, or numba's simulator), "cpu" (numba) or "python" (the same
        source interpreted). Arguments are copied, never donated. Slow where it is not a GPU:
        these are oracles. Raises BadArgument for another target and for calls inside another
        transformation, and when called DeviceError where there is no such GPU.
        """
        targets = [name for name in BACKENDS if name != "llvm"]
        if target not in targets:
            raise BadArgument(f"{self._what}.on: {target!r} is not one of {', '.join(targets)}")

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, trace = self.trace_for(args, kwargs)
            operands = [*trace.captured, *leaves]
            if staging() or any(isinstance(v, Tracer) for v in operands):
                raise BadArgument(
                    f"{self._what}.on({target!r}) runs at once, so it cannot be used inside jit, "
                    f"grad or vmap; transform first: fxad.jit(fxad.grad(f)).on({target!r})"
                )
            outs = compiled.run_on(target, trace.program, operands)
            return trace.out_tree.unflatten(outs)

        return call

    def __repr__(self) -> str:
        count = len(self._traces)
        traced = f"traced for {count} signature{'s' * (count != 1)}" if count else "not traced yet"
        return f"<jit({naming.called(self._function)}), {traced}>"

    def _repr_html_(self) -> str:
        return views.jit_html(self)

    def traces(self) -> list[Trace]:
        """What has been traced so far, a program for each signature, the oldest first."""
        return self._traces.all()

    def _cache_size(self) -> int:
        """The number of signatures traced so far (JAX's name)."""
        return len(self._traces)

    def clear_cache(self) -> None:
        """Forget all traces, also those that other jitted forms of the function made."""
        self._traces.clear()

    def forget(self) -> None:
        self._recent = self._direct = None


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    memory_budget: int | str | None = None,
    compress: str | None = None,
    offload: str | None = None,
    **ported: Any,
) -> Any:
    """Compile a function of arrays to machine code, one trace per argument signature.

    static_argnums / static_argnames: arguments passed as Python values; they must be hashable and
    a new value means a new trace. donate_argnums / donate_argnames: arguments whose memory the
    results may take over; using them afterwards raises DonatedError. Of numbers and names one is
    enough, the other follows. memory_budget: bytes (or a text such as "2GiB") that arguments,
    results and intermediate values may take together; values that wait for a backward pass are
    then recomputed or offloaded to disk, whichever is faster (same bits). compress: "bf16"
    allows a budget to round f32 and f64 values that only a backward pass reads, where that is
    cheaper or nothing else fits: gradients change, results do not. offload: "disk" (default) or
    "none", which keeps a budget off the disk. SizeError names the equations that prevent it.
    Budgets of functions called from another jitted function have no effect. Of JAX's other options
    inline, keep_unused and compiler_options are accepted and change nothing; device and backend may
    name the CPU, and for anything else BadArgument says what there is (`on` for NVIDIA GPUs);
    in_shardings and out_shardings are checked to be places (`fxad.sharding`).

    >>> @fxad.jit
    ... def normalize(x):
    ...     print("tracing", x)
    ...     return x / jnp.sum(x)
    >>> normalize(jnp.array([1.0, 3.0]))
    tracing Traced<f32[2]>
    Array([0.25, 0.75], dtype=float32)
    >>> normalize(jnp.array([2.0, 2.0]))  # same shape and dtype: the code is there
    Array([0.5, 0.5], dtype=float32)
    >>> power = fxad.jit(lambda x, n: x**n, static_argnames="n")
    >>> power(2.0, n=5)
    Array(32., dtype=float32)
    """
    if unknown := sorted(set(ported) - _IGNORED - _DEVICES - _PLACES):
        raise TypeError(f"jit() got an unexpected keyword argument {unknown[0]!r}")
    for option in sorted(_DEVICES & set(ported)):
        _check_device(option, ported[option])
    for option in sorted(_PLACES & set(ported)):
        placement.check_places(f"jit: {option}", ported[option])
    budget = compiled.memory_budget(memory_budget, compress, offload)

    def make(f: Callable[..., Any]) -> Jit:
        check_function(f)
        static = chosen_arguments(f, "static", static_argnums, static_argnames)
        donate = chosen_arguments(f, "donate", donate_argnums, donate_argnames)
        both = sorted(map(str, static[0] & donate[0] or static[1] & donate[1]))
        if both:
            raise BadArgument(f"jit({name_of(f)}): {both} cannot be both static and donated")
        return Jit(f, static, donate, budget)

    return make if function is None else make(function)


_IGNORED = {"inline", "keep_unused", "compiler_options"}
_DEVICES = {"device", "backend"}
_PLACES = {"in_shardings", "out_shardings"}


def _check_device(option: str, device: Any) -> None:
    """Raise BadArgument for a device other than the CPU: code is compiled for no other."""
    if device is None or getattr(device, "platform", device) == "cpu":
        return
    raise BadArgument(
        f"jit: {option}={device!r} is not available: jit compiles for the CPU only. "
        '`fxad.jit(f).on("cuda")` runs the same kernels on an NVIDIA GPU (outside other '
        "transformations, copying arguments and results in every call)"
    )
