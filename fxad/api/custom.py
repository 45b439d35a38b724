"""Rules given by the user: custom_jvp, custom_vjp, stop_gradient.

@fxad.custom_vjp
def f(x): ...
f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 2,))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxad.api.autodiff import jvp as jvp_function
from fxad.api.custom_rules import Perturbed, SymbolicZero, instantiated, run_rule
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import pytree
from fxad.core.errors import ShapeError, TreeError, TypeMismatch
from fxad.ir.program import OPS, Symbol
from fxad.ops.base import zeros
from fxad.trace.tracer import bind, stage, staging, type_of
from fxad.transform.context import differentiable, select
from fxad.transform.jvp import forward_level


class _Custom:
    """What custom_jvp and custom_vjp share: binding arguments and setting static ones aside."""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)
        self.function = function
        self.nondiff = tuple(nondiff_argnums)
        self._has_defaults = bool(getattr(function, "__defaults__", None))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _split_args(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, tuple]:
        """(static arguments, differentiable arguments), keywords resolved by the signature."""
        if kwargs or self._has_defaults:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        static = tuple(args[i] for i in self.nondiff)
        return static, tuple(a for i, a in enumerate(args) if i not in self.nondiff)

    def _primal(self, static: tuple) -> Callable[..., Any]:
        """The function of the differentiable arguments alone."""

        def call(*args: Any) -> Any:
            merged = list(args)
            for number, value in sorted(zip(self.nondiff, static, strict=True)):
                merged.insert(number, value)
            return self.function(*merged)

        return call


class custom_jvp(_Custom):
    """A function with its own forward rule: `f.defjvp(rule)`.

    rule(*nondiff, primals, tangents) -> (result, tangent of the result). Reverse mode follows by
    transposing the rule. `f.defjvps(*rules)` gives one rule(tangent, result, *primals) each.
    With symbolic_zeros the rule is given, and may return, a SymbolicZero for tangents that are.
    """

    rule: Any = None
    symbolic = False

    def defjvp(self, rule: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule; returns it, so it can be used as a decorator."""
        self.rule, self.symbolic = rule, symbolic_zeros
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """One rule per argument; their results are summed. None means a zero derivative."""

        def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
            result = self(*primals)
            total = None
            for part, tangent in zip(rules, tangents, strict=True):
                if part is None:
                    continue
                term = part(tangent, result, *primals)
                total = term if total is None else pytree.map(lambda a, b: a + b, total, term)
            return result, pytree.map(
                lambda r: zeros(type_of(r)), result
            ) if total is None else total

        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self.function)
        if self.rule is None:
            raise TypeMismatch(f"custom_jvp {name}: give its rule with {name}.defjvp(rule)")
        static, given = self._split_args(args, kwargs)
        leaves, tree = flatten_args((given, {}), name)
        primal = self._primal(static)
        flat = FlatFunction(primal, tree, what=name)
        count = len(leaves)

        trees: list[Any] = []

        def rule(*values: Any) -> list[Any]:
            results, out_tree = run_rule(partial(self.rule, *static), tree, values, name)
            trees.append(out_tree)
            return results if self.symbolic else instantiated(results)

        if staging():
            program, captured = stage(flat, [type_of(v) for v in leaves], name)
            skip, wide = len(captured), len(captured) + count
            symbol = Symbol(f"{name}_jvp", lambda *v: rule(*v[skip:wide], *v[wide + skip :]))
            closed = program.closed()
            more = {"symbolic": True} if self.symbolic else {}
            outs = OPS["custom_jvp"](*captured, *leaves, program=closed, rule=symbol, **more)
            return flat.tree.unflatten(outs)
        level = forward_level(leaves)
        if level is None:
            return primal(*given)
        pairs = [level.lower(v) for v in leaves]
        if all(t is None for _, t in pairs):
            return primal(*given)
        tangents = [zeros(type_of(p)) if t is None and not self.symbolic else t for p, t in pairs]
        results = rule(*(p for p, _ in pairs), *tangents)
        half = len(results) // 2
        outs = [
            level.dual(o, t if differentiable(o) else None)
            for o, t in zip(results[:half], results[half:], strict=True)
        ]
        return trees[-1].unflatten(outs)


class custom_vjp(_Custom):
    """A function with its own backward rule: `f.defvjp(fwd, bwd)`.

    fwd(*args) -> (result, residuals); bwd(*nondiff, residuals, cotangent) -> a tuple of cotangents,
    one per differentiable argument (None means zero). With symbolic_zeros fwd is given a
    `Perturbed(value, perturbed)` for every leaf of its differentiable arguments, and bwd may be
    given a SymbolicZero for results nobody differentiates.

    Forward mode differentiates the function itself, or uses a rule like custom_jvp's if
    `f.defjvp(rule)` gives one too.
    """

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
            raise TypeMismatch(f"custom_vjp {name}: give its rules with {name}.defvjp(fwd, bwd)")
        static, given = self._split_args(args, kwargs)
        leaves, tree = flatten_args((given, {}), name)
        rules = _Rules(self, static, tree, leaves, name)
        if staging():
            return rules.staged()
        level = forward_level(leaves)
        if level is None:
            return self._primal(static)(*given)
        return rules.eager(level)


class _Rules:
    """One call of a custom_vjp function: its flat forward and backward functions."""

    def __init__(self, owner: custom_vjp, static: tuple, tree: Any, leaves: list, name: str):
        self.owner = owner
        self.static = static
        self.tree = tree
        self.leaves = leaves
        self.name = name
        self.flat = FlatFunction(owner._primal(static), tree, what=name)
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
        args = list(self.tree.unflatten(values)[0])
        for number, value in sorted(zip(self.owner.nondiff, self.static, strict=True)):
            args.insert(number, value)
        result = self.owner.fwd(*args)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeMismatch(f"{self.name}: fwd must return (result, residuals)")
        outs, self.out_tree = flatten_args(result[0], f"fwd of {self.name}")
        residuals, self.residual_tree = flatten_args(result[1], f"residuals of {self.name}")
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
        args = self.tree.unflatten(self.leaves)[0]
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
        leaves, tree = pytree.flatten(arg)
        if ct is None:
            return [zeros(type_of(v)) for v in leaves]
        given, given_tree = flatten_args(ct, f"bwd of {self.name}")
        if tree != given_tree:
            raise TreeError(
                f"{self.name}: bwd's cotangent {number} has structure {given_tree}, the argument "
                f"has {tree}"
            )
        checked = []
        for value, cotangent in zip(leaves, given, strict=True):
            wanted, seen = type_of(value), type_of(cotangent)
            if wanted.shape != seen.shape:
                raise ShapeError(
                    f"{self.name}: bwd gave a cotangent {seen} for an argument {wanted}"
                )
            if wanted.dtype != seen.dtype:
                cotangent = bind(OPS["convert"], cotangent, dtype=wanted.dtype)
            checked.append(cotangent)
        return checked

    def staged(self) -> Any:
        types = [type_of(v) for v in self.leaves]
        program, captured = stage(self.flat, types, self.name)
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
        return self.flat.tree.unflatten(outs)

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
        fixed = [*residuals, *primals]
        n = len(residuals)

        def apply(*values: Any) -> list[Any]:
            own, tangents = values[n : len(fixed)], iter(values[len(fixed) :])
            full = [
                next(tangents) if on else np.zeros(type_of(p).shape, type_of(p).dtype)
                for p, on in zip(own, mask, strict=True)
            ]
            if self.owner.rule is not None:
                return self.pushed(*own, *full)[self.count :]
            pushed = jvp_function(lambda *xs: self.flat(*xs), tuple(own), tuple(full))[1]
            return list(pushed)

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


def stop_gradient(tree: Any) -> Any:
    """The same values, treated as constants by differentiation."""
    leaves, structure = flatten_args(tree, "stop_gradient")
    return structure.unflatten([bind(OPS["stop_gradient"], v) for v in leaves])
