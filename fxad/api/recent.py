"""What a jitted function knows of one signature: its program, and the short way to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api import compiled
from fxad.api.calling import MISS, caller
from fxad.api.donation import Donation
from fxad.core import dtypes as dt
from fxad.core import interrupts
from fxad.core.pytree import TreeDef
from fxad.core.treecode import builder, flattener
from fxad.core.types import array_types
from fxad.ir.program import Program
from fxad.ir.stages import Ran
from fxad.trace import tracer
from fxad.trace.array import Array, Concrete
from fxad.trace.convert import is_array_like, to_value
from fxad.trace.execute import concrete
from fxad.trace.tracer import tracing


class Trace:
    """One traced signature: a closed program whose leading operands are `captured`.

    `recognised`: the runs of the compiler's stage 0 while it was traced, one for each derivative
    in it and one for the whole. `ready` is the compiled program once it has run, with the settings
    it was compiled under.
    """

    __slots__ = (
        "captured",
        "donate",
        "out_tree",
        "program",
        "ready",
        "recognised",
        "types",
        "weak",
    )

    def __init__(
        self,
        program: Program,
        captured: list[Any],
        out_tree: TreeDef,
        weak: tuple[bool, ...],
        donate: frozenset[int],
        recognised: Sequence[Ran],
    ) -> None:
        self.program = program
        self.captured = captured
        self.out_tree = out_tree
        self.weak = weak
        self.donate = donate
        self.recognised = recognised
        self.types = array_types(program.out_types)
        self.ready: compiled.Ready | None = None

    @property
    def needed_bytes(self) -> int:
        """What a run needs beside its arguments, by the plan that was compiled; 0 before the first
        run. Nothing is planned for it."""
        return 0 if self.ready is None else self.ready.executable.peak_bytes

    def run(self, operands: list[Any]) -> Any:
        """The result for concrete operands. Raises DonatedError for one that was given away."""
        try:
            arrays = [v._data for v in operands]
        except AttributeError:
            arrays = [concrete(v) for v in operands]
        return self.finish(operands, arrays, self.out_tree.unflatten)

    def finish(
        self, operands: list[Any], arrays: list[np.ndarray], build: Callable[[Any], Any]
    ) -> Any:
        """What `build` makes of the results for operands whose arrays are at hand.

        Donated operands keep their memory where the run ends by an exception before it has
        overwritten any of it. Ctrl-C after that comes when the caller has the result.
        """
        ready = self.ready
        if ready is None or not ready.valid:
            ready = self.ready = compiled.Ready(self.program, self.donate)
        if not self.donate:
            return build(Concrete.of_all(ready.run(arrays), self.types, self.weak))
        interrupts.release()
        donation = Donation(operands, arrays, self.donate)
        try:
            donation.take()
            return build(Concrete.of_all(ready.run(arrays, donation), self.types, self.weak))
        except KeyboardInterrupt:
            if donation.results is None or not interrupts.hold():
                raise
        return build(Concrete.of_all(donation.results, self.types, self.weak))


class Recent:
    """The signature of a jitted function's last call, so that a call like it does little more
    than run: the arguments are taken apart by code written for their structure, and types are
    compared, not looked up. Once the program has run, `direct` does all of it but for static
    arguments, or answers MISS; it is None where there cannot be such a function."""

    __slots__ = (
        "_build", "_flatten", "_given_statics", "_settings", "_statics", "_trace", "_tree",
        "_types", "_weak", "direct",
    )  # fmt: skip

    def __init__(self, tree: TreeDef, leaves: list[Array], statics: tuple, trace: Trace) -> None:
        self._trace = trace
        self._tree = tree
        self._flatten = flattener(tree)
        self._build = builder(trace.out_tree)
        self._types = [v.type for v in leaves]
        self._weak = [v.weak for v in leaves]
        self._statics = {(statics, kinds_of(statics))}
        self._given_statics = bool(statics)  # a call that leaves them to their defaults is another
        self._settings = dt.numerics.key
        self.direct: Callable[[tuple, dict[str, Any]], Any] | None = _unknown
        if trace.ready is not None and trace.ready.valid:
            self.direct = self._written()

    def call(self, args: tuple, kwargs: dict[str, Any], statics: tuple) -> Any:
        """The result, or MISS if these are no existing arrays of this signature."""
        try:
            given = statics or self._given_statics
            if given and (statics, kinds_of(statics)) not in self._statics:
                return MISS
        except TypeError:  # not hashable
            return MISS
        if statics and self.direct is not None:
            result = self.direct(args, kwargs)
            if result is not MISS:
                return result
        leaves = self._flatten((args, kwargs))
        if leaves is None or tracing() or not tracer.ordinary:
            return MISS
        if self._settings is not dt.numerics.key:
            return MISS
        try:
            types = [v.type for v in leaves]
        except AttributeError:
            if not all(map(is_array_like, leaves)):
                return MISS
            leaves = [to_value(v) for v in leaves]
            types = [v.type for v in leaves]
        if types != self._types or [v.weak for v in leaves] != self._weak:
            return MISS
        trace = self._trace
        operands = [*trace.captured, *leaves] if trace.captured else leaves
        try:
            arrays = [v._data for v in operands]
        except AttributeError:  # traced, or given away
            return MISS
        result = trace.finish(operands, arrays, self._build)
        if self.direct is _unknown:
            self.direct = self._written()
        return result

    def _written(self) -> Callable[[tuple, dict[str, Any]], Any] | None:
        """`direct`, now that the program is compiled."""
        trace = self._trace
        assert trace.ready is not None
        types = [v.type for v in trace.captured] + self._types
        weak = [v.weak for v in trace.captured] + self._weak
        direct = None if trace.donate else trace.ready.direct(types, weak)
        if direct is None:
            return None
        trees, results = (self._tree, trace.out_tree), (trace.types, trace.weak)
        return caller(trees, direct, trace.captured, results)


def _unknown(args: tuple, kwargs: dict[str, Any]) -> Any:
    """`Recent.direct` before the first run."""
    return MISS


def kinds_of(statics: tuple) -> tuple[type, ...]:
    """1, 1.0 and True are equal, but a function may tell them apart."""
    return tuple([type(value) for _, value in statics])
