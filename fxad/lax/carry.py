"""What loops share: bodies over pytrees as flat functions, and carries that keep their types.

A carry leaf that is weakly typed (a Python number) takes the dtype the body gives it:

    scan(lambda c, x: (c + x, None), 0, jnp.ones(3))     # c: i32, then f32 from the start

It is no longer weakly typed where that is another dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.flat import flatten_args, name_of
from fxad.api.naming import label_arguments
from fxad.core import pytree
from fxad.core.errors import TypeMismatch, at
from fxad.core.promotion import promote
from fxad.core.pytree import TreeDef
from fxad.core.types import ArrayType, Type
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import rebuild
from fxad.numpy.core import cast
from fxad.trace.array import Array, kept
from fxad.trace.tracer import CarryNote, CarryTracer, bind, stage, type_of


def described(function: Callable[..., Any]) -> str:
    """A function's name and where it is defined, for messages."""
    code = getattr(function, "__code__", None)
    where = "" if code is None else f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
    return f"`{getattr(function, '__name__', type(function).__name__)}`{at(where)}"


def check_callable(what: str, **functions: Any) -> None:
    """Raise TypeMismatch naming the argument that is no function."""
    for name, function in functions.items():
        if not callable(function):
            raise TypeMismatch(f"lax.{what}: {name} should be callable, got {function!r}")


def scalar_weak(value: Any) -> bool:
    return bool(getattr(value, "weak", False))


class Body:
    """A loop body on flat values: (carry..., slices...) -> (carry..., ys...).

    `step(carry, slices)` takes the carry as a pytree and the slices as a list, and returns the
    new carry and any further results. `args` are the structures of what `function` is called with.
    `weak` says which results are weak after a call.
    """

    def __init__(
        self,
        what: str,
        function: Callable[..., Any],
        step: Callable[[Any, list[Any]], tuple[Any, Any]],
        args: Sequence[TreeDef],
        tree: TreeDef,
    ) -> None:
        self.what = what
        self.function = function
        self.step = step
        self.args = args
        self.tree = tree
        self.ys_tree: TreeDef | None = None
        self.weak: list[bool] = []

    def __call__(self, *leaves: Any) -> list[Any]:
        count = self.tree.num_leaves
        new, ys = self.step(self.tree.unflatten(leaves[:count]), list(leaves[count:]))
        outs, tree = flatten_args(new, f"{self.what}: carry that {described(self.function)} gives")
        pytree.same_structure_or_raise(
            self.tree,
            tree,
            f"{self.what}: carry that {described(self.function)} takes, and carry that it gives",
        )
        outs = [_adopted(o, leaf) for o, leaf in zip(outs, leaves[:count], strict=True)]
        given, self.ys_tree = flatten_args(ys, f"{self.what}: result of {described(self.function)}")
        everything = [*outs, *given]
        self.weak = [scalar_weak(o) for o in everything]
        return everything

    def check(self, carry: Sequence[ArrayType], outs: Sequence[Type]) -> None:
        """Raise TypeMismatch naming each leaf whose type the body changes."""
        wrong = [
            f"carry{pytree.keystr(path)} goes in as {before} and comes out as {after}"
            for path, before, after in zip(self.tree.paths(), carry, outs, strict=True)
            if before != after
        ]
        if wrong:
            raise TypeMismatch(
                f"{self.what}: {described(self.function)} changes the type of its carry: "
                f"{'; '.join(wrong)}. Shapes and dtypes must stay; convert the initial value or "
                "the result with .astype or reshape"
            )


def _adopted(out: Any, carry: Any) -> Any:
    """A weak result in the dtype of the carry, where that dtype can hold it."""
    out_type, in_type = type_of(out), _unsettled_type(carry)
    if not scalar_weak(out) or out_type.dtype == in_type.dtype or out_type.shape != in_type.shape:
        return out
    entries = ((in_type.dtype, scalar_weak(carry)), (out_type.dtype, True))
    if promote(*entries)[0] != in_type.dtype:
        return out
    converted = cast(out, in_type.dtype)
    converted.weak = scalar_weak(carry)
    return converted


def stage_body(
    body: Body, carry: Sequence[Array], xs: Sequence[ArrayType], xs_weak: Sequence[bool] = ()
) -> tuple[Program, list[Any], list[Array]]:
    """The body as a closed Program, what it captures, and the carry in its final dtypes.

    The body is traced once, and once more only where a weakly typed carry comes out in another
    dtype, unless all it does with that carry is to hand it to loops that have settled its dtype.
    So in nested loops the innermost body is traced at most twice for each dtype.

    Raises TreeError or TypeMismatch if the carry changes structure or type.
    """
    carry = list(carry)
    weak = [scalar_weak(c) for c in carry]
    types = [_unsettled_type(c) for c in carry]
    count = len(carry)
    name = name_of(body.function)
    slices_weak = list(xs_weak) or [False] * len(xs)
    while True:
        notes = [CarryNote() for _ in carry]
        flat = _noted(body, weak, notes)
        program, captured = stage(flat, [*types, *xs], name, [*weak, *slices_weak])
        outs = program.out_types[:count]
        settled = [
            _settled(type_, is_weak, out, out_weak)
            for type_, is_weak, out, out_weak in zip(types, weak, outs, body.weak, strict=False)
        ]
        changed = [i for i in range(count) if settled[i][0] != types[i]]
        if not changed:
            break
        for i in changed:
            types[i], weak[i] = settled[i]
            carry[i] = _widened(carry[i], *settled[i])
        if all(_only_handed_on(program, i, settled[i], notes[i]) for i in changed):
            program = _with_wider_inputs(program, {i: types[i] for i in changed})
            break
    body.check(types, outs)
    label_arguments(program.inputs, body.function, body.args)
    return program.closed(), captured, carry


def _noted(
    body: Body, weak: Sequence[bool], notes: Sequence[CarryNote]
) -> Callable[..., list[Any]]:
    """The body, with a note on what becomes of each weakly typed carry."""
    if not any(weak):
        return body

    def noted(*leaves: Any) -> list[Any]:
        carry = [
            CarryTracer(leaf, note) if is_weak else leaf
            for leaf, is_weak, note in zip(leaves, weak, notes, strict=False)
        ]
        return body(*carry, *leaves[len(carry) :])

    return noted


def _unsettled_type(value: Any) -> Any:
    """The type of a carry, where asking decides nothing that another dtype would change unnoticed:
    `_widened` and the equations say what was made of it."""
    return value.atom.type if isinstance(value, CarryTracer) else type_of(value)


def _widened(value: Any, type_: ArrayType, weak: bool) -> Any:
    """A carry as another dtype, noting that if it is the carry of a loop around this one."""
    if not isinstance(value, CarryTracer):
        return cast(value, type_.dtype)
    note = value.note
    note.observed |= note.widened not in (None, (type_, weak))
    note.widened = type_, weak
    return bind(OPS["convert"], value, dtype=type_.dtype)  # calling the op would ask for the type


def _only_handed_on(
    program: Program, number: int, settled: tuple[ArrayType, bool], note: CarryNote
) -> bool:
    """Whether a body does nothing with a carry but hand it to loops that take it as `settled`: then
    tracing it again would record the same, without the conversion."""
    if note.observed or note.widened != settled or program.out_types[number] != settled[0]:
        return False
    var, dtype = program.inputs[number], settled[0].dtype
    return var not in program.outputs and all(
        eqn.op.name == "convert" and eqn.params["dtype"] == dtype
        for eqn in program.eqns
        if var in eqn.inputs
    )


def _with_wider_inputs(program: Program, types: dict[int, ArrayType]) -> Program:
    """The program taking inputs in the dtype that it converts them to."""
    inputs, wider = list(program.inputs), {}
    for number, type_ in types.items():
        wider[inputs[number]] = inputs[number] = Var(type_)

    def taken(eqn: Eqn, atoms: tuple[Atom, ...]) -> Sequence[Atom] | None:
        return (wider[atoms[0]],) if atoms and atoms[0] in wider else None

    made = rebuild(program, taken)
    return Program(inputs, made.eqns, made.outputs, program.name, program.consts)


def with_forwarded(
    program: Program, consts: int, carry: Sequence[Any], outs: Sequence[Any]
) -> list[Any]:
    """A loop's results, where the body only hands a part of the carry on that part as it came in:
    what does not change needs no trip through the loop, and is not batched because others are."""
    parts = zip(program.inputs[consts:], program.outputs, carry, outs, strict=False)
    return [kept(c) if before is after else out for before, after, c, out in parts]


def _settled(type_: ArrayType, weak: bool, out: Type, out_weak: bool) -> tuple[ArrayType, bool]:
    """The type and weakness a carry leaf should go in with, given what came out. One that had to
    take another dtype keeps it as arrays do: it is no longer weak, as in JAX."""
    if not weak or (out.dtype == type_.dtype and out_weak):
        return type_, weak
    dtype, still_weak = promote((type_.dtype, True), (out.dtype, out_weak))
    return type_.with_dtype(dtype), still_weak and dtype == type_.dtype


def marked(values: Sequence[Any], weak: Sequence[bool]) -> list[Any]:
    """The values, weakly typed where `weak` says so."""
    for value, is_weak in zip(values, weak, strict=True):
        if is_weak:
            value.weak = True
    return list(values)
