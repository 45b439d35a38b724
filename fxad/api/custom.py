"""Rules given by the user: custom_jvp, stop_gradient, and what custom_vjp shares with them.

@fxad.custom_jvp
def f(x): ...
f.defjvp(lambda primals, tangents: (f(*primals), 2 * tangents[0]))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fxad.api.arguments import as_tuple
from fxad.api.custom_rules import instantiated, run_rule
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import pytree
from fxad.core.errors import BadArgument, LeakedTracerError, MissingRule, TypeMismatch
from fxad.ir.program import OPS, Symbol
from fxad.ops.base import zeros
from fxad.trace.tracer import Tracer, bind, stage, staging, type_of
from fxad.transform.context import differentiable
from fxad.transform.jvp import Dual, Forward, forward_level


class Custom:
    """What custom_jvp and custom_vjp share: binding arguments and taking static ones out."""

    kind = "custom"

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        wrapper: Any = self
        functools.update_wrapper(wrapper, fun)
        self.function = fun
        try:
            self._signature: inspect.Signature | None = inspect.signature(fun)
        except (TypeError, ValueError):  # a function written in C
            self._signature = None
        self._arity = _plain_arity(self._signature)
        self.nondiff = (
            *as_tuple(nondiff_argnums),
            *(self._position(name) for name in as_tuple(nondiff_argnames)),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """What the function has, if it is itself one with rules: def_vmap of a custom_vjp."""
        if name == "function" or name.startswith("__"):
            raise AttributeError(name)
        if name == "defvjp" and not hasattr(self.function, name):
            raise AttributeError(
                f"{self.what} has a rule for tangents alone: for rules of both modes decorate with "
                "custom_vjp, which has defvjp(fwd, bwd) and defjvp(rule)"
            )
        return getattr(self.function, name)

    @property
    def what(self) -> str:
        return f"{self.kind} {name_of(self.function)}"

    def _position(self, name: str) -> int:
        names = [] if self._signature is None else list(self._signature.parameters)
        if name not in names:
            raise BadArgument(
                f"{self.what}: nondiff_argnames has {name!r}, but the arguments are "
                f"{', '.join(names) or 'not known'}"
            )
        return names.index(name)

    def missing(self, call: str) -> MissingRule:
        """The error of a call before there is a rule."""
        return MissingRule(f"{self.what}: give its rule with {name_of(self.function)}.{call}")

    def split_args(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, tuple]:
        """(static arguments, differentiable arguments), keywords resolved by the signature."""
        if kwargs or len(args) != self._arity:
            args = self._positional(args, kwargs)
        static = tuple(args[i] for i in self.nondiff)
        return static, tuple(a for i, a in enumerate(args) if i not in self.nondiff)

    def _positional(self, args: tuple, kwargs: dict[str, Any]) -> tuple:
        if self._signature is None:
            if kwargs:
                raise TypeMismatch(f"{self.what}: its signature is not known; give no keywords")
            return args
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeMismatch(f"{self.what}: {error}") from None
        bound.apply_defaults()
        if left := sorted(set(bound.kwargs) & set(kwargs)):
            raise TypeMismatch(
                f"{self.what}: rules are given arguments by position, which "
                f"{', '.join(left)} does not have"
            )
        return bound.args

    def primal(self, static: tuple) -> Callable[..., Any]:
        """The function of the differentiable arguments alone."""
        return lambda *args: self.function(*self.merged(static, args))

    def merged(self, static: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """All arguments in their order."""
        args = list(given)
        for number, value in sorted(zip(self.nondiff, static, strict=True), key=lambda p: p[0]):
            args.insert(number, value)
        return args

    def check_closed(self, result: Any, level: Forward | None) -> Any:
        """The result itself. Raises LeakedTracerError if it depends on a value that is being
        differentiated but is no argument: the rule says nothing about it."""
        for leaf in pytree.leaves(result):
            if isinstance(leaf, Dual) and (level is None or leaf.level.depth >= level.depth):
                raise LeakedTracerError(
                    f"{self.what} depends on {leaf.type} made at {leaf.where}, which is being "
                    "differentiated, but not through its arguments; the rule cannot say how. "
                    "Make it a (differentiable) argument, or use closure_convert"
                )
        return result


def _plain_arity(signature: inspect.Signature | None) -> int | None:
    """The number of arguments, if all must be given and can be by position; else None."""
    if signature is None:
        return None
    parameters = signature.parameters.values()
    plain = all(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in parameters
    )
    return len(parameters) if plain else None


class custom_jvp(Custom):
    """A function with its own forward rule: `f.defjvp(rule)`.

    rule(*nondiff, primals, tangents) -> (result, tangent of the result). Reverse mode follows by
    transposing the rule. `f.defjvps(*rules)` gives one rule(tangent, result, *primals) each.
    With symbolic_zeros the rule is given, and may return, a SymbolicZero for tangents that are.
    nondiff_argnums and nondiff_argnames name the arguments that are not differentiated: functions,
    strings, sizes.

    >>> @fxad.custom_jvp
    ... def log1pexp(x):
    ...     return jnp.log(1 + jnp.exp(x))
    >>> @log1pexp.defjvp
    ... def _(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return log1pexp(x), dx / (1 + jnp.exp(-x))
    >>> fxad.grad(log1pexp)(100.0)  # without the rule: inf / inf
    Array(1., dtype=float32)
    """

    kind = "custom_jvp"
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
        if self.rule is None:
            raise self.missing("defjvp(rule)")
        static, given = self.split_args(args, kwargs)
        leaves, tree = flatten_args((given, {}), name_of(self.function))
        if staging():
            return self._staged(static, leaves, tree)
        level = forward_level(leaves)
        if level is None:
            return self.check_closed(self.function(*self.merged(static, given)), None)
        return self._eager(static, leaves, tree, level)

    def _eager(self, static: tuple, leaves: list[Any], tree: Any, level: Forward) -> Any:
        pairs = [level.lower(v) for v in leaves]
        tangents = [zeros(type_of(p)) if t is None and not self.symbolic else t for p, t in pairs]
        rule = partial(self.rule, *static)
        values = [*(p for p, _ in pairs), *tangents]
        results, out_tree = run_rule(rule, tree, values, name_of(self.function))
        results = self.check_closed(results if self.symbolic else instantiated(results), level)
        half = len(results) // 2
        outs = [
            level.dual(o, t if differentiable(o) else None)
            for o, t in zip(results[:half], results[half:], strict=True)
        ]
        return out_tree.unflatten(outs)

    def _staged(self, static: tuple, leaves: list[Any], tree: Any) -> Any:
        name = name_of(self.function)
        traced, fixed = _traced(static)
        flat = FlatFunction(self.function, tree, what=name)

        def call(*values: Any) -> list[Any]:
            lifted, own = values[: len(traced)], values[len(traced) :]
            flat.function = self.primal(fixed(lifted))
            return flat(*own)

        operands = [*traced, *leaves]
        program, captured = stage(call, [type_of(v) for v in operands], name)
        closed, out_tree = program.closed(), flat.tree
        start, skip = len(captured), len(captured) + len(traced)
        count = len(captured) + len(operands)

        def rule(*values: Any) -> list[Any]:
            lifted, own = values[start:skip], values[skip:count]
            bound = partial(self.rule, *fixed(lifted))
            expected = (out_tree, closed.out_types)
            given = [*own, *values[count + skip :]]
            results, _ = run_rule(bound, tree, given, name, expected)
            return results if self.symbolic else instantiated(results)

        symbol = Symbol(f"{name}_jvp", rule)
        more = {"symbolic": True} if self.symbolic else {}
        outs = OPS["custom_jvp"](*captured, *operands, program=closed, rule=symbol, **more)
        return out_tree.unflatten(outs)


def _traced(static: tuple) -> tuple[list[Tracer], Callable[[Sequence[Any]], tuple]]:
    """The tracers among static arguments (a vmap of them), and the arguments with others put in
    their place."""
    leaves, tree = pytree.flatten(static)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]
    found = [leaves[i] for i in places]
    for place in places:
        leaves[place] = None  # so that rules hold no tracer

    def fixed(values: Sequence[Any]) -> tuple:
        merged = list(leaves)
        for place, value in zip(places, values, strict=True):
            merged[place] = value
        return tree.unflatten(merged)

    return found, fixed if places else lambda _: static


def stop_gradient(x: Any) -> Any:
    """The same values, treated as constants by differentiation.

    >>> fxad.grad(lambda x: x * fxad.lax.stop_gradient(x))(3.0)  # x, and not 2 x
    Array(3., dtype=float32)
    """
    leaves, structure = flatten_args(x, "stop_gradient")
    return structure.unflatten([bind(OPS["stop_gradient"], v) for v in leaves])
