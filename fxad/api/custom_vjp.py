"""Backward rules given by the user: custom_vjp.

@fxad.custom_vjp
def f(x): ...
f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 2,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxad.api.autodiff import jvp as jvp_function
from fxad.api.custom import Custom
from fxad.api.custom_rules import Perturbed, SymbolicZero, instantiated, run_rule
from fxad.api.flat import FlatFunction, flatten_args, name_of, with_number_nodes
from fxad.api.linear import as_weak_as, weakness, zero_tangent
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import LeakedTracerError, ShapeError, TreeError, TypeMismatch
from fxad.core.masks import select
from fxad.ir.program import OPS, Symbol
from fxad.ops.base import zeros
from fxad.trace.array import Array, Borrowed
from fxad.trace.tracer import Tracer, bind, stage, staging, type_of
from fxad.transform.context import differentiable
from fxad.transform.jvp import forward_level


class custom_vjp(Custom):
    """A function with its own backward rule: `f.defvjp(fwd, bwd)`.

    fwd(*args) -> (result, residuals); bwd(*nondiff, residuals, cotangent) -> a tuple of cotangents,
    one per differentiable argument (None means zero). With symbolic_zeros fwd is given a
    `Perturbed(value, perturbed)` for every leaf of its differentiable arguments, and bwd may be
    given a SymbolicZero for results nobody differentiates.

    Forward mode differentiates the function itself, or uses a rule like custom_jvp's if
    `f.defjvp(rule)` gives one too.

    >>> @fxad.custom_vjp
    ... def clipped(x):  # the identity, with gradients limited to [-1, 1]
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1, 1),))
    >>> fxad.grad(lambda x: 10 * clipped(x))(3.0)
    Array(1., dtype=float32)
    """

    kind = "custom_vjp"
    fwd: Any = None
    bwd: Any = None
    rule: Any = None
    symbolic = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the forward and backward rules. optimize_remat is accepted for ported code."""
        self.fwd, self.bwd, self.symbolic = fwd, bwd, symbolic_zeros

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule of forward mode; returns it, so it can be used as a decorator."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.function)
        if self.fwd is None or self.bwd is None:
            raise self.missing("defvjp(fwd, bwd)")
        static, given = self.split_args(args, kwargs)
        self._check_static(static)
        leaves, tree = flatten_args((given, {}), name)
        if staging():
            return _Rules(self, static, tree, leaves, name).staged()
        level = forward_level(leaves)
        if level is None:
            return self.check_closed(self.function(*self.merged(static, given)), None)
        return _Rules(self, static, tree, leaves, name).eager(level)

    def _check_static(self, static: tuple) -> None:
        for number, value in zip(self.nondiff, static, strict=True):
            for leaf in pytree.leaves(value):
                if isinstance(leaf, Tracer):
                    raise LeakedTracerError(
                        f"{self.what}: argument {number} is in nondiff_argnums, but holds the "
                        f"traced value {leaf.type}; make it an ordinary argument whose cotangent "
                        "bwd gives as None"
                    )


class _Rules:
    """One call of a custom_vjp function: its flat forward and backward functions."""

    def __init__(self, owner: custom_vjp, static: tuple, tree: Any, leaves: list, name: str):
        self.owner = owner
        self.static = static
        self.tree = tree
        self.leaves = leaves
        self.types = [type_of(v) for v in leaves]
        self.name = name
        self.flat = FlatFunction(owner.primal(static), tree, what=name)
        self.out_tree: Any = None
        self.residual_tree: Any = None
        self.expected: list[Any] | None = None

    def pushed(self, *values: Any) -> list[Any]:
        """Flat results and tangents by the function's own jvp rule."""
        rule = partial(self.owner.rule, *self.static)
        return instantiated(run_rule(rule, self.tree, values, self.name)[0])

    def forward(self, *values: Any, perturbed: Sequence[bool] | None = None) -> list[Any]:
        if perturbed is not None:
            values = tuple(map(Perturbed, values, perturbed))
        args = self.tree.unflatten(values)[0]
        result = self.owner.fwd(*self.owner.merged(self.static, args))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeMismatch(f"{self.name}: fwd must return (result, residuals)")
        outs, self.out_tree = flatten_args(result[0], f"fwd of {self.name}")
        kept = with_number_nodes(result[1])
        residuals, self.residual_tree = flatten_args(kept, f"residuals of {self.name}")
        self.count = len(outs)
        self.out_types = [type_of(o) for o in outs]
        self._check_forward(self.out_types)
        return [*outs, *residuals]

    def _check_forward(self, types: list[Any]) -> None:
        """fwd must give what the function gives (known once the function has been traced)."""
        if self.expected is None:
            return
        if self.out_tree != self.flat.tree:
            raise TreeError(
                f"{self.name}: fwd's result has structure {self.out_tree}, the function's has "
                f"{self.flat.tree}"
            )
        if types != self.expected:
            raise ShapeError(
                f"{self.name}: fwd's results have types {types}, the function's {self.expected}"
            )

    def backward(self, *values: Any) -> list[Any]:
        n = self.residual_tree.num_leaves
        residuals = self.residual_tree.unflatten(values[:n])
        given = [
            SymbolicZero(t) if c is None else c
            for c, t in zip(values[n:], self.out_types, strict=True)
        ]
        cotangent = self.out_tree.unflatten(given)
        result = self.owner.bwd(*self.static, residuals, cotangent)
        args = self.tree.unflatten(map(_stand_in, self.types))[0]
        if not isinstance(result, tuple | list) or len(result) != len(args):
            raise TreeError(
                f"{self.name}: bwd must return a tuple with one cotangent per differentiable "
                f"argument ({len(args)}), not {type(result).__name__}"
                + (f" of {len(result)}" if isinstance(result, tuple | list) else "")
            )
        found: list[Any] = []
        for number, (arg, ct) in enumerate(zip(args, result, strict=True)):
            found += self._cotangents(arg, ct, number)
        return found

    def _cotangents(self, arg: Any, ct: Any, number: int) -> list[Any]:
        """One cotangent for every leaf of an argument; None and symbolic zeros become zeros, None
        also in place of a whole subtree."""
        what = f"{self.name}: bwd's cotangent {number}"
        found: list[Any] = []
        try:
            pairs = pytree.flatten_prefix(ct, arg, is_leaf=_is_zero)
        except TreeError:
            raise TreeError(
                f"{what} has structure {pytree.structure(ct)}, the argument has "
                f"{pytree.structure(arg)}"
            ) from None
        for given, subtree in pairs:
            types = [type_of(v) for v in pytree.leaves(subtree)]
            if isinstance(given, SymbolicZero):
                self._check_shape(given.type, types, what)
            if _is_zero(given):
                found += map(zeros, types)
                continue
            if len(types) != 1:
                raise TreeError(
                    f"{what} has one leaf where the argument has {pytree.structure(subtree)}"
                )
            value = flatten_args(given, what)[0][0]
            self._check_shape(type_of(value), types, what)
            whole = not dt.is_inexact(type_of(value).dtype) and not value.weak
            if whole and dt.is_inexact(types[0].dtype):
                raise TypeMismatch(f"{what} is {type_of(value)} for an argument {types[0]}")
            if type_of(value).dtype != types[0].dtype:
                value = bind(OPS["convert"], value, dtype=types[0].dtype)
            found.append(value)
        return found

    def _check_shape(self, seen: Any, wanted: list[Any], what: str) -> None:
        if [seen.shape] != [w.shape for w in wanted]:
            raise ShapeError(
                f"{what} is {seen} for an argument {', '.join(map(str, wanted))}; where the "
                "cotangent is zero, return None"
            )

    def staged(self) -> Any:
        program, captured = stage(self.flat, self.types, self.name, weakness(self.leaves))
        self.expected = list(program.out_types)
        skip = len(captured)
        shared = [type_of(c) for c in captured]

        def back(*values: Any) -> list[Any]:
            return [*map(zeros, shared), *self.backward(*values)]

        def forward(*values: Any, perturbed: Sequence[bool] | None = None) -> list[Any]:
            flags = None if perturbed is None else perturbed[skip:]
            return self.forward(*values[skip:], perturbed=flags)

        def pushed(*values: Any) -> list[Any]:
            half = len(values) // 2
            return self.pushed(*values[skip:half], *values[half + skip :])

        more: dict[str, Any] = {"symbolic": True} if self.owner.symbolic else {}
        if self.owner.rule is not None:
            more["rule"] = Symbol(f"{self.name}_jvp", pushed)
        outs = OPS["custom_vjp"](
            *captured,
            *self.leaves,
            program=program.closed(),
            fwd=Symbol(f"{self.name}_fwd", forward),
            bwd=Symbol(f"{self.name}_bwd", back),
            **more,
        )
        self.leaves = []  # the rules hold no tracer
        return self.flat.tree.unflatten(as_weak_as(outs, self.flat))

    def eager(self, level: Any) -> Any:
        pairs = [level.lower(v) for v in self.leaves]
        primals = [p for p, _ in pairs]
        flags = [t is not None for _, t in pairs] if self.owner.symbolic else None
        results = self.forward(*primals, perturbed=flags)
        outs, residuals = results[: self.count], results[self.count :]
        mask = [differentiable(p) for p in primals]
        dense = [
            zeros(type_of(p)) if t is None else t
            for (p, t), on in zip(pairs, mask, strict=True)
            if on
        ]
        self.owner.check_closed(outs, level)
        fixed = [*residuals, *primals]
        n = len(residuals)

        def apply(*values: Any) -> list[Any]:
            own, tangents = values[n : len(fixed)], iter(values[len(fixed) :])
            full = [
                next(tangents) if on else zero_tangent(type_of(p))
                for p, on in zip(own, mask, strict=True)
            ]
            if self.owner.rule is not None:
                return self.pushed(*own, *full)[self.count :]
            pushed = jvp_function(lambda *xs: self.flat(*xs), tuple(own), tuple(full))[1]
            pairs = zip(pushed, outs, strict=True)
            return [zeros(type_of(o)) if dt.is_float0(t) else t for t, o in pairs]

        def back(*values: Any) -> list[Any]:
            return select(self.backward(*values[:n], *values[len(fixed) :]), mask)

        tangents = bind(
            OPS["linear_call"],
            *fixed,
            *dense,
            count=len(fixed),
            apply=Symbol(f"{self.name}_jvp", apply),
            transpose=Symbol(f"{self.name}_bwd", back),
            outs=tuple(type_of(o) for o in outs),
            **({"symbolic": True} if self.owner.symbolic else {}),
        )
        duals = [
            level.dual(o, t if differentiable(o) else None)
            for o, t in zip(outs, tangents, strict=True)
        ]
        return self.out_tree.unflatten(duals)


def _stand_in(type_: Any) -> Array:
    """An array of this type, since a class of the user's may convert its leaves."""
    return Borrowed(np.broadcast_to(np.zeros((), type_.dtype), type_.shape))


def _is_zero(value: Any) -> bool:
    return value is None or isinstance(value, SymbolicZero) or dt.is_float0(value)
