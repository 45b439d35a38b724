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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from fxad.api import jaxpr
from fxad.api.jaxpr import OWNERS, Builtin, Opaque
from fxad.api.shaped_array import AbstractValue, ShapedArray, aval_of
from fxad.core.types import ArrayType
from fxad.debug import pure_callback
from fxad.ir.program import OPS, Unknown
from fxad.numpy import asarray, moveaxis, zeros
from fxad.ops import base
from fxad.trace.tracer import Tracer, bind, staging

_numbers = itertools.count(2)
_names: set[str] = set()
_KEPT = (bool, int, str, type(None), np.dtype)  # parameters that compare as they are


class Primitive(jaxpr.Primitive):
    """An operation by rules. Rules are looked up when they are used, so they may come later and
    be replaced."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.impl: Callable[..., Any] = self._missing("Evaluation rule", "def_impl")
        self.abstract_eval: Callable[..., Any] = self._missing(
            "Abstract evaluation", "def_abstract_eval"
        )
        self._op = _record(self)

    @property
    def op(self) -> base.Primitive[Any]:
        return self._op

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply it. With `multiple_results` a list. Outside every trace that is a call of the
        implementation."""
        if not staging() and not any(isinstance(a, Tracer) for a in args):
            return self.impl(*args, **params)
        kept = {k: v if type(v) in _KEPT else Opaque(v) for k, v in params.items()}
        out = bind(self._op, *map(asarray, args), **kept)
        return list(out) if isinstance(out, tuple) else out

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """impl(*arrays, **params) computes it."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """rule(*avals, **params) is the result's ShapedArray, or a list of them."""
        self.abstract_eval = rule
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """rule(*avals, **params) is a pair: as above, and effects, which are not looked at."""
        self.abstract_eval = lambda *avals, **params: rule(*avals, **params)[0]
        return rule

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """bind(*args, **params) is called in place of `bind`."""
        self.bind = bind  # type: ignore[method-assign]
        return bind

    def _missing(self, what: str, how: str) -> Callable[..., NoReturn]:
        def rule(*args: Any, **params: Any) -> NoReturn:
            raise NotImplementedError(
                f"{what} for {self.name!r} not implemented: give it by {self.name}_p.{how}"
            )

        return rule


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


class Rules(dict[jaxpr.Primitive, Callable[..., Any]]):
    """Rules by primitive. One that is set for an op of fxad's own replaces that op's."""

    def __init__(self, what: str, how: str, rule: str) -> None:
        super().__init__()
        self.what, self.how, self._rule = what, how, rule

    def __setitem__(self, primitive: jaxpr.Primitive, rule: Callable[..., Any]) -> None:
        super().__setitem__(primitive, rule)
        if isinstance(primitive, Builtin):
            setattr(primitive.op, self._rule, _ADAPTED[self._rule](primitive))

    def of(self, primitive: jaxpr.Primitive) -> Callable[..., Any]:
        """Raises NotImplementedError where there is none."""
        if primitive not in self:
            raise NotImplementedError(
                f"{self.what} rule for {primitive.name!r} not implemented: give it by {self.how}"
            )
        return self[primitive]


jvps = Rules("Differentiation", "ad.primitive_jvps or ad.defjvp", "jvp")
transposes = Rules("Transpose", "ad.primitive_transposes or ad.deflinear2", "transpose")
batchers = Rules("Batching", "batching.primitive_batchers", "batch")
axis_batchers: dict[jaxpr.Primitive, Callable[..., Any]] = {}
lowerings: dict[jaxpr.Primitive, Callable[..., Any]] = {}  # functions of ops that are known


# ---------------------------------------------------------------- the record of an op


def _record(primitive: Primitive) -> base.Primitive[Any]:
    """An op of a name that no other has. It is in no table: nothing reads it from text."""
    name = primitive.name
    while name in OPS or name in _names:
        name = f"{primitive.name}_{next(_numbers)}"
    _names.add(name)
    op: base.Primitive[Any] = base.Primitive(
        name,
        type=_type_rule(primitive),
        numpy=_reference(primitive),
        decompose=_decomposition(primitive),
        dtypes=base.ANY,
        **{rule: adapt(primitive) for rule, adapt in _ADAPTED.items()},
    )
    OWNERS[op] = primitive
    return op


def _values(params: dict[str, Any]) -> dict[str, Any]:
    return {k: v.value if isinstance(v, Opaque) else v for k, v in params.items()}


def _many(primitive: jaxpr.Primitive, found: Any) -> tuple[Any, ...]:
    """What a rule answered, as a tuple of the results'."""
    return tuple(found) if _is_many(primitive) else (found,)


def _is_many(primitive: jaxpr.Primitive) -> bool:
    return primitive.multiple_results and not isinstance(primitive, Builtin)


def _type_rule(primitive: Primitive) -> Callable[..., Any]:
    def rule(*types: ArrayType, **params: Any) -> Any:
        given = [ShapedArray(t.shape, t.dtype) for t in types]
        found = primitive.abstract_eval(*given, **_values(params))
        made = tuple(
            [ArrayType(np.dtype(a.dtype), tuple(a.shape)) for a in _many(primitive, found)]
        )
        return made if primitive.multiple_results else made[0]

    return rule


def _reference(primitive: Primitive) -> Callable[..., Any]:
    types = _type_rule(primitive)

    def rule(*arrays: Any, **params: Any) -> Any:
        wanted = types(*[ArrayType(a.dtype, a.shape) for a in arrays], **params)
        found = _many(primitive, primitive.impl(*arrays, **_values(params)))
        pairs = zip(found, wanted if primitive.multiple_results else (wanted,), strict=True)
        made = tuple([np.asarray(x).astype(t.dtype).reshape(t.shape) for x, t in pairs])
        return made if primitive.multiple_results else made[0]

    return rule


def _decomposition(primitive: Primitive) -> Callable[..., Any]:
    types, reference = _type_rule(primitive), _reference(primitive)

    def rule(*args: Any, **params: Any) -> Any:
        lowering = lowerings.get(primitive)
        if lowering is not None:
            found = _many(primitive, lowering(*args, **_values(params)))
            return found if primitive.multiple_results else found[0]
        wanted = types(*[base.type_of(a) for a in args], **params)

        def call(*arrays: Any) -> Any:
            return reference(*map(np.asarray, arrays), **params)

        return pure_callback(call, wanted, *args)

    return rule


def _adapted_jvp(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, outs: Any, **params: Any) -> Any:
        given = tuple(
            [
                Zero.from_primal_value(p) if t is None else t
                for p, t in zip(primals, tangents, strict=True)
            ]
        )
        _, found = jvps.of(primitive)(tuple(primals), given, **_values(params))
        made = tuple(map(_or_none, _many(primitive, found)))
        return made if _is_many(primitive) else made[0]

    return rule


def _adapted_transpose(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(ct: Any, args: Any, **params: Any) -> Any:
        given = [
            UndefinedPrimal(ShapedArray(a.shape, a.dtype)) if isinstance(a, Unknown) else a
            for a in args
        ]
        if _is_many(primitive):
            avals = primitive.abstract_eval(*[_aval(a) for a in args], **_values(params))  # type: ignore[attr-defined]
            cts = ct if isinstance(ct, tuple) else (ct,)  # of one result, the cotangent alone
            ct = [Zero(a) if c is None else c for c, a in zip(cts, avals, strict=True)]
        found = transposes.of(primitive)(ct, *given, **_values(params))
        return [*map(_or_none, found)]

    return rule


def _adapted_batch(primitive: jaxpr.Primitive) -> Callable[..., Any]:
    def rule(size: int, batched: Any, args: Any, **params: Any) -> Any:
        dims = tuple([0 if b else None for b in batched])
        if primitive in axis_batchers:
            batch: Callable[..., Any] = partial(axis_batchers[primitive], size, None, None)
        else:
            batch = batchers.of(primitive)
        answer = batch(tuple(args), dims, **_values(params))
        values, where = (_many(primitive, part) for part in _with_dims(primitive, answer))
        moved = tuple(
            [v if d in (None, 0) else moveaxis(v, d, 0) for v, d in zip(values, where, strict=True)]
        )
        return base.Batched(moved, tuple([d is not None for d in where]))

    return rule


def _with_dims(primitive: jaxpr.Primitive, answer: Any) -> tuple[Any, Any]:
    """(results, dimensions), where one dimension may be said for several results."""
    values, dims = answer
    if _is_many(primitive) and not isinstance(dims, Sequence):
        dims = (dims,) * len(values)
    return values, dims


_ADAPTED = {"jvp": _adapted_jvp, "transpose": _adapted_transpose, "batch": _adapted_batch}


def _aval(value: Any) -> ShapedArray:
    return ShapedArray(value.shape, value.dtype) if isinstance(value, Unknown) else aval_of(value)


def _or_none(value: Any) -> Any:
    """A tangent or cotangent as ops have it: None is zero."""
    return None if value is None or isinstance(value, Zero) else asarray(value)


def instantiate(value: Any) -> Any:
    """A Zero as an array of zeros."""
    if not isinstance(value, Zero):
        return value
    aval: Any = value.aval
    return zeros(aval.shape, aval.dtype)


def apply_primitive(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Run it as it is compiled: an implementation for what has a lowering alone."""
    return lowerings[primitive](*args, **params)
