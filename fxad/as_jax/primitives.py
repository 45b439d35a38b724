"""`jax.extend.core.Primitive`: operations that a user defines by rules in JAX's form.

    double_p = Primitive("double")
    double_p.def_impl(lambda x: 2 * x)
    double_p.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
    ad.deflinear2(double_p, lambda ct, x: [double_p.bind(ct)])
    batching.primitive_batchers[double_p] = lambda args, dims: (double_p.bind(*args), dims[0])
    mlir.register_lowering(double_p, mlir.lower_fun(lambda x: x + x, multiple_results=False))

Each is an op like those of `fxad/ops`, whose record is adapted from the tables that `ad`,
`batching` and `mlir` hold: what is None there is a `Zero` here, `Unknown` an `UndefinedPrimal`, and
`decompose` what was registered as a lowering. One without a lowering is a call of its
implementation, on the host.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fxad.api import jaxpr
from fxad.api.jaxpr import OWNERS, Builtin
from fxad.api.shaped_array import AbstractValue, ShapedArray, aval_of
from fxad.core import system
from fxad.core.dtypes import float0
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.debug import pure_callback
from fxad.ir.program import OPS, Opaque, Unknown
from fxad.numpy import asarray, moveaxis, zeros
from fxad.ops import base
from fxad.ops.programs.captures import of_numbers
from fxad.trace.array import Concrete
from fxad.trace.tracer import Tracer, bind, stage, staging
from fxad.transform.context import run, transforms
from fxad.transform.jvp import apply_jvp

_numbers = itertools.count(2)
_names: set[str] = set()
_lock = system.free_in_children(threading.Lock())


class Primitive(jaxpr.Primitive):
    """An operation by rules. Rules are looked up when they are used, so they may come later and
    be replaced. A derived class may have `impl` and `abstract_eval` as methods."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._op: base.Primitive[Any] | None = None

    @property
    def op(self) -> base.Primitive[Any]:
        if self._op is None:
            self._op = _record(self)
        return self._op

    def renew(self) -> None:
        """Have another op from now on, since what compiled code depends on is about to change:
        code is looked up by the names of ops."""
        self._op = None

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it. With `multiple_results` a list. Outside every trace that is a call of the
        implementation."""
        if not staging() and not any(isinstance(a, Tracer) for a in args):
            return self.impl(*args, **params)
        out = bind(self.op, *map(asarray, args), **self.plain(params))
        return list(out) if self.multiple_results else out

    def viewed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v.value if isinstance(v, Opaque) else v for k, v in params.items()}

    def plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v if _is_plain(v) else Opaque(v) for k, v in params.items()}

    def impl(self, *args: Any, **params: Any) -> Any:
        """The results for arrays. Raises NotImplementedError where no rule was given."""
        raise self._missing("Evaluation rule", "def_impl")

    def abstract_eval(self, *avals: Any, **params: Any) -> Any:
        """The pair of the results' types and of effects, which are not looked at. Raises
        NotImplementedError where no rule was given."""
        raise self._missing("Abstract evaluation", "def_abstract_eval")

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """impl(*arrays, **params) computes it."""
        self.renew()
        self.impl = impl  # type: ignore[method-assign]
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """rule(*avals, **params) is the result's ShapedArray, or a list of them."""
        self.def_effectful_abstract_eval(
            lambda *avals, **params: (rule(*avals, **params), frozenset())
        )
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """rule(*avals, **params) is a pair: as above, and effects, which are not looked at."""
        self.renew()
        self.abstract_eval = rule  # type: ignore[method-assign]
        return rule

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """bind(*args, **params) is called in place of `bind`."""
        self.bind = bind  # type: ignore[method-assign]
        return bind

    def _missing(self, what: str, how: str) -> NotImplementedError:
        return NotImplementedError(
            f"{what} for {self.name!r} not implemented: give it by {self.name}_p.{how}"
        )


class Zero:
    """A tangent or cotangent that is zero and was not computed."""

    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        return Zero(aval_of(value).to_tangent_aval())

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


class UndefinedPrimal:
    """Stands for a linear operand in a transpose rule: only its type is known."""

    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


class AxisData(NamedTuple):
    """What a rule of `fancy_primitive_batchers` is told of the lanes. The axis's name is not known
    where rules are asked."""

    name: Any
    size: int
    spmd_name: Any = None
    explicit_mesh_axis: Any = None


class Rules(MutableMapping[jaxpr.Primitive, Callable[..., Any]]):
    """Rules by primitive. One that is set for an op of fxad's own replaces that op's, until it is
    deleted. Where none is set, the op's own can be read in JAX's form, if `own` is given."""

    def __init__(
        self, what: str, how: str, rule: str, own: Callable[..., Any] | None = None
    ) -> None:
        self.what, self.how, self._rule, self._own = what, how, rule, own
        self._set: dict[jaxpr.Primitive, Callable[..., Any]] = {}
        self._replaced: dict[jaxpr.Primitive, Any] = {}  # by what was set

    def __getitem__(self, primitive: jaxpr.Primitive) -> Callable[..., Any]:
        if primitive in self._set or self._own is None or not isinstance(primitive, Builtin):
            return self._set[primitive]
        rule = getattr(primitive.op, self._rule)
        if not callable(rule) and self._rule != "jvp":
            raise KeyError(primitive)
        return partial(self._own, primitive, rule)

    def __setitem__(self, primitive: jaxpr.Primitive, rule: Callable[..., Any]) -> None:
        self._set[primitive] = rule
        if not isinstance(primitive, Builtin):
            return
        op = primitive.op
        self._replaced.setdefault(primitive, getattr(op, self._rule))
        adapted = _ADAPTED[self._rule](primitive)
        if self._rule == "jvp":
            op.joint = True
        elif op.higher:  # its rules are handed the transforms first
            adapted = partial(_without_transforms, adapted)
        setattr(op, self._rule, adapted)

    def __delitem__(self, primitive: jaxpr.Primitive) -> None:
        del self._set[primitive]
        if primitive in self._replaced:
            setattr(primitive.op, self._rule, self._replaced.pop(primitive))
            if self._rule == "jvp":
                primitive.op.joint = None  # no op of fxad's own is

    def __iter__(self) -> Iterator[jaxpr.Primitive]:
        return iter(self._set)

    def __len__(self) -> int:
        return len(self._set)

    def of(self, primitive: jaxpr.Primitive) -> Callable[..., Any]:
        """Raises NotImplementedError where there is none."""
        if primitive not in self:
            raise NotImplementedError(
                f"{self.what} rule for {primitive.name!r} not implemented: give it by {self.how}"
            )
        return self[primitive]


def _without_transforms(rule: Callable[..., Any], t: Any, *args: Any, **params: Any) -> Any:
    return rule(*args, **params)


def _own_jvp(
    primitive: Builtin, rule: Any, primals: Any, tangents: Any, **params: Any
) -> tuple[Any, Any]:
    rule = rule or (lambda *args, **params: None)  # ops without one have no derivative but zero
    values = primitive.ordered([*map(asarray, primals)])
    moving = primitive.ordered([*map(_or_none, tangents)])
    outs, found = apply_jvp(primitive.op, values, moving, primitive.plain(params), rule)
    results = _many(primitive, outs)
    given = [
        Zero.from_primal_value(out) if t is None else t
        for out, t in zip(results, found, strict=True)
    ]
    if primitive.multiple_results:
        return list(results), given
    return results[0], given[0]


def _own_transpose(
    primitive: Builtin, rule: Any, cts: Any, *operands: Any, **params: Any
) -> list[Any]:
    given = [
        Unknown(x.aval.type) if isinstance(x, UndefinedPrimal) else asarray(x)  # type: ignore[attr-defined]
        for x in primitive.ordered(operands)
    ]
    listed = [*map(_or_none, _many(primitive, cts))]
    plain, first = primitive.plain(params), (transforms(),) if primitive.op.higher else ()
    if all(ct is None for ct in listed):
        found: Sequence[Any] = [None] * len(given)
    else:
        found = rule(*first, _one_or_many(primitive, listed), given, **plain)
    return primitive.ordered(
        [
            Zero(_aval(x)) if ct is None and isinstance(x, Unknown) else ct
            for x, ct in zip(given, found, strict=True)
        ]
    )


jvps = Rules("Differentiation", "ad.primitive_jvps or ad.defjvp", "jvp", _own_jvp)
transposes = Rules(
    "Transpose", "ad.primitive_transposes or ad.deflinear2", "transpose", _own_transpose
)
batchers = Rules("Batching", "batching.primitive_batchers", "batch")
axis_batchers: dict[jaxpr.Primitive, Callable[..., Any]] = {}
fancy_batchers: dict[jaxpr.Primitive, Callable[..., Any]] = {}
lowerings: dict[jaxpr.Primitive, Callable[..., Any]] = {}  # functions of ops that are known


# ---------------------------------------------------------------- the record of an op


def _record(primitive: Primitive) -> base.Primitive[Any]:
    """An op of a name that no other has. It is in no table: nothing reads it from text."""
    name = primitive.name
    with _lock:
        while name in OPS or name in _names:
            name = f"{primitive.name}_{next(_numbers)}"
        _names.add(name)
    op: base.Primitive[Any] = base.Primitive(
        name,
        type=_type_rule(primitive),
        numpy=_reference(primitive),
        decompose=_decomposition(primitive),
        joint=True,
        dtypes=base.ANY,
        **{rule: adapt(primitive) for rule, adapt in _ADAPTED.items()},
    )
    OWNERS[op] = primitive
    return op


def _is_plain(value: Any) -> bool:
    """Whether a parameter is one that fxad's own ops may have, and equal ones are the same."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in (int, str, type(None)) or isinstance(value, np.dtype)


def _many(primitive: jaxpr.Primitive, found: Any) -> tuple[Any, ...]:
    """What a rule answered, as a tuple of the results'."""
    return tuple(found) if primitive.multiple_results else (found,)


def _one_or_many(primitive: jaxpr.Primitive, found: Sequence[Any]) -> Any:
    """The same as an op answers."""
    return tuple(found) if primitive.multiple_results else found[0]


def _type_rule(primitive: Primitive) -> Callable[..., Any]:
    def rule(*types: ArrayType, **params: Any) -> Any:
        given = [*map(_aval, types)]
        found, _ = primitive.abstract_eval(*given, **primitive.viewed(params))
        made = tuple(
            [ArrayType(np.dtype(a.dtype), tuple(a.shape)) for a in _many(primitive, found)]
        )
        return _one_or_many(primitive, made)

    return rule


def _reference(primitive: Primitive) -> Callable[..., Any]:
    types = _type_rule(primitive)

    def rule(*arrays: Any, **params: Any) -> Any:
        wanted = types(*[ArrayType(a.dtype, a.shape) for a in arrays], **params)
        # An implementation may keep them or use their methods, as it may JAX's arrays.
        given = [Concrete(np.array(a)) for a in arrays]
        found = _many(primitive, primitive.impl(*given, **primitive.viewed(params)))
        declared = _many(primitive, wanted)
        made = [*map(np.asarray, found)]
        if [a.shape for a in made] != [t.shape for t in declared]:
            raise ShapeError(
                f"{primitive.name}: its implementation gave shapes {[a.shape for a in made]}, and "
                f"its abstract evaluation says ({', '.join(map(str, declared))})"
            )
        converted = [a.astype(t.dtype) for a, t in zip(made, declared, strict=True)]
        return _one_or_many(primitive, converted)

    return rule


def _decomposition(primitive: Primitive) -> Callable[..., Any]:
    types, reference = _type_rule(primitive), _reference(primitive)

    def rule(*args: Any, **params: Any) -> Any:
        given = [base.type_of(a) for a in args]
        wanted = types(*given, **params)
        lowering = lowerings.get(primitive)
        if lowering is None:
            call = partial(reference, **params)
            return pure_callback(lambda *arrays: call(*map(np.asarray, arrays)), wanted, *args)

        def lowered(*operands: Any) -> tuple[Any, ...]:
            found = _many(primitive, lowering(*operands, **primitive.viewed(params)))
            return tuple(map(asarray, found))

        program, captured = stage(lowered, given, primitive.name)
        expected = _many(primitive, wanted)
        if program.out_types != expected:
            raise TypeMismatch(
                f"{primitive.name}: its lowering gives {program.out_types}, and its abstract "
                f"evaluation says {expected}"
            )
        found = run(program.closed(), [*map(_held, captured), *args])
        return _one_or_many(primitive, found)

    return rule


def _held(value: Any) -> Any:
    """An array that a lowering has captured, in a program that has no operand for it."""
    made = of_numbers(value)
    return pure_callback(lambda: value, base.type_of(value)) if made is None else made


def _adapted_jvp(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, **params: Any) -> Any:
        given = [
            Zero.from_primal_value(p) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        answer = jvps.of(primitive)(
            tuple(primitive.ordered([*map(asarray, primals)])),
            tuple(primitive.ordered(given)),
            **primitive.viewed(params),
        )
        values, found = (_many(primitive, part) for part in answer)
        outs, moving = [*map(asarray, values)], [*map(_or_none, found)]
        for out, tangent in zip(outs, moving, strict=True):
            if tangent is not None and tangent.shape != out.shape:
                raise ShapeError(
                    f"{primitive.name}: its derivative rule gave a tangent {base.type_of(tangent)} "
                    f"for a result {base.type_of(out)}"
                )
        return _one_or_many(primitive, outs), _one_or_many(primitive, moving)

    return rule


def _adapted_transpose(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(ct: Any, args: Any, **params: Any) -> Any:
        given = [UndefinedPrimal(_aval(a)) if isinstance(a, Unknown) else asarray(a) for a in args]
        if primitive.multiple_results:
            types: Any = primitive.op.type(*map(base.operand_type, args), **params)
            # Of one result the cotangent stands alone.
            cts = ct if isinstance(ct, tuple | list) else (ct,)
            ct = [Zero(_aval(t)) if c is None else c for c, t in zip(cts, types, strict=True)]
        found = transposes.of(primitive)(ct, *primitive.ordered(given), **primitive.viewed(params))
        return [*map(_or_none, primitive.ordered(found))]

    return rule


def _adapted_batch(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(size: int, batched: Any, args: Any, **params: Any) -> Any:
        dims = tuple([0 if b else None for b in batched])
        if primitive in axis_batchers:
            batch: Callable[..., Any] = partial(axis_batchers[primitive], size, None, None)
        elif primitive in fancy_batchers:
            batch = partial(fancy_batchers[primitive], AxisData(None, size))
        else:
            batch = batchers.of(primitive)
        answer = batch(
            tuple(primitive.ordered(args)),
            tuple(primitive.ordered(dims)),
            **primitive.viewed(params),
        )
        values, where = (_many(primitive, part) for part in _with_dims(primitive, answer))
        moved = tuple(
            [v if d in (None, 0) else moveaxis(v, d, 0) for v, d in zip(values, where, strict=True)]
        )
        return base.Batched(moved, tuple([d is not None for d in where]))

    return rule


def _with_dims(primitive: jaxpr.Primitive, answer: Any) -> tuple[Any, Any]:
    """(results, dimensions), where one dimension may be said for several results."""
    values, dims = answer
    if primitive.multiple_results and not isinstance(dims, Sequence):
        dims = (dims,) * len(values)
    return values, dims


_ADAPTED = {"jvp": _adapted_jvp, "transpose": _adapted_transpose, "batch": _adapted_batch}


def _aval(type_: Any) -> ShapedArray:
    return ShapedArray(type_.shape, type_.dtype)


def _or_none(value: Any) -> Any:
    """A tangent or cotangent as ops have it: None is zero."""
    zero = value is None or isinstance(value, Zero) or getattr(value, "dtype", None) == float0
    return None if zero else asarray(value)


def instantiate(value: Any) -> Any:
    """A Zero as an array of zeros."""
    if not isinstance(value, Zero):
        return value
    aval: Any = value.aval
    return zeros(aval.shape, aval.dtype)


def apply_primitive(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Run it as it is compiled: an implementation for what has a lowering alone."""
    return lowerings[primitive](*args, **params)
