"""Programs under JAX's names: `make_jaxpr(f)(x).jaxpr.eqns`, and interpreters of them.

closed = fxad.make_jaxpr(f)(x)
for eqn in closed.jaxpr.eqns:
    print(eqn.primitive.name, eqn.invars, eqn.params)
eval_jaxpr(closed.jaxpr, closed.consts, x)

A Jaxpr is a view of a Program. One with other equations (`jaxpr.replace(eqns=...)`) is made into a
Program when it is run. Ops have JAX's names where they are JAX's (`dot_general` is `dot`,
`reduce_sum` is `sum`), and so have parameters (`jaxpr_params`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fxad.api import jaxpr_params
from fxad.api.derived import Printed, make_ir
from fxad.api.jaxpr_text import text_of
from fxad.api.shaped_array import ShapedArray, aval_of
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.core.promotion import is_python_scalar, scalar_entry
from fxad.core.types import ArrayType, Type
from fxad.ir import program as ir
from fxad.ir.program import OPS, Eqn, Op, Program
from fxad.ir.rewrite import literal
from fxad.ops.programs.captures import embed
from fxad.trace.array import Concrete
from fxad.trace.convert import is_array_like, to_value
from fxad.transform.context import run

# Ops that JAX calls otherwise. What is not here has the same name in both, or is not JAX's.
JAX_NAMES = {
    "all": "reduce_and",
    "any": "reduce_or",
    "barrier": "optimization_barrier",
    "bitcast": "bitcast_convert_type",
    "broadcast": "broadcast_in_dim",
    "call": "jit",
    "checkpoint": "remat",
    "convert": "convert_element_type",
    "custom_jvp": "custom_jvp_call",
    "custom_vjp": "custom_vjp_call",
    "dot": "dot_general",
    "dynamic_update": "dynamic_update_slice",
    "erfinv": "erf_inv",
    "max_reduce": "reduce_max",
    "min_reduce": "reduce_min",
    "mul_high": "mulhi",
    "popcount": "population_count",
    "prod": "reduce_prod",
    "reverse": "rev",
    "select": "select_n",
    "shl": "shift_left",
    "shr_arith": "shift_right_arithmetic",
    "shr_logical": "shift_right_logical",
    "sum": "reduce_sum",
}

# Ops with a tuple of results, however many, besides those that hold programs.
SEVERAL = frozenset(
    "barrier check eig eigh host lu qr slogdet sort svd tape_read top_k within".split()
)


class Primitive:
    """What an equation applies. Compared by identity; `bind` applies it."""

    multiple_results = False
    call_primitive = False
    map_primitive = False

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def op(self) -> Op:
        """The record in which fxad keeps its rules."""
        raise NotImplementedError

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it to values: run, recorded, differentiated or batched as the context asks. With
        `multiple_results` a list."""
        raise NotImplementedError

    def viewed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of its op as an equation of a Jaxpr has them."""
        raise NotImplementedError

    def plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The other way around."""
        raise NotImplementedError

    def ordered(self, operands: Sequence[Any]) -> list[Any]:
        """Operands, or something for each, in the order of a Jaxpr where they are in that of its
        op, and the other way around."""
        return list(operands)

    def get_bind_params(self, params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """([], parameters): programs are handed over as parameters."""
        return [], dict(params)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class Builtin(Primitive):
    """One of fxad's own ops."""

    def __init__(self, op: Op) -> None:
        super().__init__(JAX_NAMES.get(op.name, op.name))
        self._op = op
        self.multiple_results = bool(op.higher) or op.name in SEVERAL

    @property
    def op(self) -> Op:
        return self._op

    def bind(self, *args: Any, **params: Any) -> Any:
        out = self._op(*self.ordered([*map(_operand, args)]), **self.plain(params))
        return list(out) if self.multiple_results else out

    def viewed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        found = jaxpr_params.viewed(self._op.name, params)
        made = {name: _viewed(value) for name, value in found.items()}
        if self._op.name == "checkpoint":  # whose Jaxpr is an open one in JAX
            made["jaxpr"] = made["jaxpr"].jaxpr
        elif self._op.name == "call":
            made["name"] = params["program"].name
        return made

    def plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        found = jaxpr_params.plain(self._op.name, params)
        return {name: _plain(value) for name, value in found.items()}

    def ordered(self, operands: Sequence[Any]) -> list[Any]:
        if self._op.name != "select":
            return list(operands)
        test, *cases = operands  # JAX's have that of False first
        return [test, *reversed(cases)]


def _operand(value: Any) -> Any:
    """What ops take. NumPy's numbers stay: those of Literals have the dtype that is meant."""
    if is_python_scalar(value):
        return scalar_entry(value)[0].type(value)
    return to_value(value) if isinstance(value, np.ndarray) else value


_builtins: dict[str, Builtin] = {}
OWNERS: dict[Op, Primitive] = {}  # ops that Primitives of users have made


def builtin(name: str) -> Primitive:
    """The primitive of fxad's op of this name. Raises KeyError."""
    found = _builtins.get(name)
    # Two threads may both make one, and go on with the same.
    return _builtins.setdefault(name, Builtin(OPS[name])) if found is None else found


def primitive_of(op: Op) -> Primitive:
    return OWNERS.get(op) or builtin(op.name)


def by_jax_name(name: str) -> Primitive | None:
    """What JAX calls `exp_p` or `dot_general_p`, if it is an op here."""
    ours = {theirs: own for own, theirs in JAX_NAMES.items()}
    own = ours.get(name.removesuffix("_p"), name.removesuffix("_p"))
    return builtin(own) if own in OPS and JAX_NAMES.get(own, own) == name[:-2] else None


# ---------------------------------------------------------------- values


class Var:
    """A value of a Jaxpr. Compared by identity."""

    __slots__ = ("_var", "aval")

    def __init__(self, aval: Any, var: ir.Var | None = None) -> None:
        self.aval = aval
        self._var = var

    @property
    def var(self) -> ir.Var:
        """In a Program."""
        if self._var is None:
            self._var = ir.Var(self.aval.type)
        return self._var

    def __repr__(self) -> str:
        return self.var.label or f"Var({self.aval.str_short(short_dtypes=True)})"


class DropVar(Var):
    """A result that nobody reads."""

    __slots__ = ()


class Literal:
    """A number in a Jaxpr."""

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: Any = None) -> None:
        self.val = val
        self.aval = aval_of(val) if aval is None else aval

    @property
    def hash(self) -> int:
        return hash((self.val, self.aval))

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.str_short(short_dtypes=True)}"


Atom = Var | Literal


def _aval(type_: Type) -> Any:
    return ShapedArray(type_.shape, type_.dtype) if isinstance(type_, ArrayType) else type_


# ---------------------------------------------------------------- equations and programs


class SourceInfo(str):
    """The line that an equation is of; there is no traceback."""

    __slots__ = ()
    traceback = None


class JaxprEqn:
    """outvars = primitive(invars; params)."""

    __slots__ = ("effects", "invars", "outvars", "params", "primitive", "source_info")

    def __init__(
        self,
        invars: Iterable[Atom],
        outvars: Iterable[Var],
        primitive: Primitive,
        params: dict[str, Any],
        effects: Iterable[Any] = (),
        source_info: Any = "",
    ) -> None:
        self.invars, self.outvars = list(invars), list(outvars)
        self.primitive, self.params = primitive, params
        self.effects = frozenset(effects)
        self.source_info = SourceInfo(source_info) if isinstance(source_info, str) else source_info

    def replace(self, **changes: Any) -> JaxprEqn:
        return JaxprEqn(**{**{name: getattr(self, name) for name in self.__slots__}, **changes})

    def __repr__(self) -> str:
        outs = " ".join(map(repr, self.outvars))
        params = " ".join(f"{k}={_short(v)}" for k, v in self.params.items())
        inside = f"[{params}]" if params else ""
        return f"{outs} = {self.primitive}{inside} {' '.join(map(repr, self.invars))}"


def new_jaxpr_eqn(
    invars: Sequence[Atom],
    outvars: Sequence[Var],
    primitive: Primitive,
    params: dict[str, Any],
    effects: Iterable[Any] = (),
    source_info: Any = "",
    ctx: Any = None,
) -> JaxprEqn:
    """An equation."""
    return JaxprEqn(invars, outvars, primitive, params, effects, source_info)


class Jaxpr:
    """constvars and invars to outvars through equations."""

    def __init__(
        self,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Iterable[Any] = (),
        debug_info: Any = None,
        is_high: bool = False,
    ) -> None:
        self.constvars, self.invars = list(constvars), list(invars)
        self.outvars, self.eqns = list(outvars), list(eqns)
        self.effects, self.debug_info = frozenset(effects), debug_info
        self._program: Program | None = None

    @staticmethod
    def of(program: Program) -> Jaxpr:
        """The view of a Program."""
        known: dict[ir.Var, Var] = {}

        def defined(var: ir.Var) -> Var:
            known[var] = Var(_aval(var.type), var)
            return known[var]

        def read(atom: ir.Atom) -> Atom:
            if isinstance(atom, ir.Var):
                return known[atom]
            return Literal(np.asarray(atom.value, atom.type.dtype)[()], _aval(atom.type))

        consts, inputs = [*map(defined, program.consts)], [*map(defined, program.inputs)]

        def equation(eqn: Eqn) -> JaxprEqn:
            primitive = primitive_of(eqn.op)
            operands = primitive.ordered([*map(read, eqn.inputs)])
            params, outs = primitive.viewed(eqn.params), [*map(defined, eqn.outputs)]
            return JaxprEqn(operands, outs, primitive, params, eqn.effects, eqn.where)

        eqns = [*map(equation, program.eqns)]
        outputs = [*map(read, program.outputs)]
        made = Jaxpr(consts, inputs, outputs, eqns, program.effects, program.name)
        made._program = program
        return made

    @property
    def program(self) -> Program:
        """The same as a Program."""
        if self._program is None:
            name = self.debug_info if isinstance(self.debug_info, str) else "f"
            consts, inputs = ([v.var for v in vars] for vars in (self.constvars, self.invars))
            eqns = [
                Eqn(
                    eqn.primitive.op,
                    tuple(map(_atom, eqn.primitive.ordered(eqn.invars))),
                    eqn.primitive.plain(eqn.params),
                    tuple([v.var for v in eqn.outvars]),
                    eqn.source_info if isinstance(eqn.source_info, str) else "",
                )
                for eqn in self.eqns
            ]
            self._program = Program(inputs, eqns, map(_atom, self.outvars), name, consts)
        return self._program

    @property
    def in_avals(self) -> list[Any]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with some of constvars, invars, outvars, eqns, effects and debug_info changed."""
        names = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        return Jaxpr(**{**{name: getattr(self, name) for name in names}, **changes})

    def pretty_print(self, **ignored: Any) -> str:
        return str(self)

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__


class ClosedJaxpr(Printed):
    """A Jaxpr and the values of its constvars. `str` gives it in JAX's notation, numbers
    among its consts in their places; `text()` as a Program."""

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()) -> None:
        if len(consts) != len(jaxpr.constvars):
            raise BadArgument(
                f"ClosedJaxpr: {len(consts)} consts for {len(jaxpr.constvars)} constvars"
            )
        self.jaxpr = jaxpr
        self.captured = tuple(consts)

    @property
    def program(self) -> Program:  # type: ignore[override]  # Printed has an attribute
        return self.jaxpr.program

    @property
    def consts(self) -> list[Any]:
        return list(self.captured)

    literals = consts

    @property
    def eqns(self) -> list[JaxprEqn]:  # type: ignore[override]
        return self.jaxpr.eqns

    @property
    def in_avals(self) -> list[Any]:
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> list[Any]:
        return self.jaxpr.out_avals

    @property
    def effects(self) -> frozenset[Any]:
        return self.jaxpr.effects

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Any = None) -> ClosedJaxpr:
        return ClosedJaxpr(jaxpr or self.jaxpr, self.consts if consts is None else consts)

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    def pretty_print(self, **ignored: Any) -> str:
        return str(self)

    def __str__(self) -> str:
        numbers = {
            var: value.data[()]
            for var, value in zip(self.jaxpr.constvars, self.captured, strict=True)
            if isinstance(value, Concrete) and not value.shape and value.dtype != dt.key
        }
        return text_of(self.jaxpr, numbers)

    __repr__ = __str__


def _atom(atom: Atom) -> ir.Atom:
    return atom.var if isinstance(atom, Var) else literal(atom.val, atom.aval.dtype)


def _viewed(value: Any) -> Any:
    """A parameter as a Jaxpr has it."""
    if isinstance(value, Program):
        return ClosedJaxpr(Jaxpr.of(value))
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        return tuple(map(_viewed, value))
    return value


def _plain(value: Any) -> Any:
    """The same as an op has it."""
    if isinstance(value, ClosedJaxpr):
        return embed(value.program, value.consts)
    if isinstance(value, Jaxpr):
        return value.program
    return tuple(map(_plain, value)) if type(value) is tuple else value


def _short(value: Any) -> str:
    if isinstance(value, ClosedJaxpr | Jaxpr):
        return f"<{len(value.eqns)} equations>"
    return repr(value)


# ---------------------------------------------------------------- made and run


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """make_jaxpr(f)(*args) is the ClosedJaxpr that tracing f for these arguments gives: a Program
    (`.program`, `.text()`, `.to_python()`) with JAX's names for its parts.

    With return_shape a pair: it, and the result's ShapeDtypeStructs.

    >>> [eqn.primitive.name for eqn in fxad.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).eqns]
    ['sin', 'mul']
    """
    make = make_ir(fun, static_argnums, axis_env, return_shape=True)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        printed, shapes = make(*args, **kwargs)
        closed = ClosedJaxpr(Jaxpr.of(printed.program), printed.captured)
        return (closed, shapes) if return_shape else closed

    return wrapped


def eval_jaxpr(
    jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True
) -> list[Any]:
    """The results of a Jaxpr, as a list, for the values of its constvars and its arguments.
    Raises BadArgument for another number of them."""
    counts, wanted = (len(consts), len(args)), (len(jaxpr.constvars), len(jaxpr.invars))
    if counts != wanted:
        raise BadArgument(f"eval_jaxpr: {counts} consts and arguments for {wanted} in the Jaxpr")
    given = [to_value(v) if is_array_like(v) else v for v in (*consts, *args)]
    return list(run(jaxpr.program.closed(), given))


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr, *args: Any) -> Any:
    """The function of a ClosedJaxpr, which returns a list; with arguments, its results."""

    def call(*given: Any) -> list[Any]:
        return eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *given)

    return call(*args) if args else call


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The Jaxprs among an equation's parameters."""
    for value in params.values():
        for one in value if type(value) is tuple else (value,):
            if isinstance(one, Jaxpr):
                yield one
            elif isinstance(one, ClosedJaxpr):
                yield one.jaxpr


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The Jaxprs inside one's equations."""
    return itertools.chain.from_iterable(jaxprs_in_params(e.params) for e in jaxpr.eqns)


def gensym(suffix: str = "") -> Callable[[Any], Var]:
    """A function that makes a fresh Var of an aval."""
    return Var
