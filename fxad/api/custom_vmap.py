"""Lanes computed by a rule of the user's: custom_vmap, sequential_vmap.

@fxad.custom_batching.custom_vmap
def f(x): ...

@f.def_vmap
def rule(axis_size, in_batched, x):
    return f_of_many(x), in_batched[0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.custom import Custom
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import pytree
from fxad.core.errors import TreeError, TypeMismatch
from fxad.core.pytree import TreeDef
from fxad.ir.program import OPS, Symbol
from fxad.trace.tracer import stage, staging, type_of
from fxad.transform.jvp import forward_level


class custom_vmap(Custom):
    """A function with its own rule for many examples: `f.def_vmap(rule)`.

    rule(axis_size, in_batched, *args) -> (result, out_batched). in_batched is a list with a pytree
    of bools for each argument: whether it has an axis of examples, which then is its first;
    out_batched says the same of the result, as a pytree of bools or a prefix of one. Forward mode
    differentiates the function, and under `vmap` the rule. Reverse mode takes derivatives of the
    function alone.
    """

    kind = "custom_vmap"
    rule: Any = None

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; returns it, so it can be used as a decorator."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.rule is None:
            raise self.missing("def_vmap(rule)")
        _, given = self.split_args(args, kwargs)
        name = name_of(self.function)
        leaves, tree = flatten_args((given, {}), name)
        if not staging() and forward_level(leaves) is None:
            return self.function(*given)
        flat = FlatFunction(self.function, tree, what=name)
        weak = [v.weak for v in leaves]
        program, captured = stage(flat, [type_of(v) for v in leaves], name, weak)
        closed, skip = program.closed(), len(captured)

        def rule(size: int, batched: Sequence[bool], *values: Any) -> tuple[list, list]:
            if any(batched[:skip]):
                raise TypeMismatch(
                    f"{self.what} captures an array that is batched; make it an argument"
                )
            return self._lanes(size, batched[skip:], values[skip:], tree, flat.tree)

        symbol = Symbol(f"{name}_vmap", rule)
        outs = OPS["custom_vmap"](*captured, *leaves, program=closed, rule=symbol)
        return flat.tree.unflatten(outs)

    def _lanes(
        self,
        size: int,
        batched: Sequence[bool],
        values: Sequence[Any],
        tree: TreeDef,
        out_tree: TreeDef,
    ) -> tuple[list[Any], list[bool]]:
        """Flat results of the rule, and which of them have an axis of examples."""
        what = f"the rule {name_of(self.rule)} of {self.what}"
        in_batched = list(tree.unflatten(batched)[0])
        answer = self.rule(size, in_batched, *tree.unflatten(values)[0])
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise TypeMismatch(f"{what} must return (result, out_batched)")
        outs, found = flatten_args(answer[0], what)
        if found != out_tree:
            raise TreeError(f"{what} gives {found}, the function gives {out_tree}")
        try:
            flags = pytree.broadcast_prefix(answer[1], found)
        except TreeError:
            raise TreeError(
                f"{what}: its result has structure {found}, but out_batched has "
                f"{pytree.structure(answer[1])}"
            ) from None
        return outs, [bool(flag) for flag in flags]
