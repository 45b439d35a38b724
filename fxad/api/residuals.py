"""What reverse mode keeps of a function's run, value by value.

>>> print_saved_residuals(lambda x, y: jnp.sin(x) * y, 1.0, 2.0)
f32[] from the argument y
f32[] output of cos from <stdin>:1
f32[] output of sin from <stdin>:1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.autodiff import vjp
from fxad.api.derived import make_ir
from fxad.api.naming import wraps
from fxad.ir.program import Eqn, Program, Var

__all__ = ["print_saved_residuals"]


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """A line for each array that `vjp(f, *args, **kwargs)` keeps for its function: its type, and
    which argument it is, or its name (`checkpoint_name`), or what made it and where. Nothing runs.
    Each array is listed once, arguments first."""

    @wraps(f)  # whose names of arguments are then those of the program's inputs
    def pullback(*args: Any, **kwargs: Any) -> Any:
        return vjp(lambda *a: f(*a, **kwargs), *args)[1]

    program: Program = make_ir(pullback)(*args, **kwargs).program
    kept = dict.fromkeys(v for v in program.outputs if isinstance(v, Var))
    arguments = [v for v in program.inputs if v in kept]
    made = [v for v in kept if v not in program.inputs]
    makers = _Makers(program)
    return [f"{v.type} {_origin(v, makers)}" for v in (*arguments, *made)]


class _Makers:
    """The equations of a program that make values, and those that name them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.made: dict[Any, Eqn] = {v: eqn for eqn in program.eqns for v in eqn.outputs}
        names = [eqn for eqn in program.eqns if eqn.op.name == "name"]
        self.named = {v: eqn for eqn in names for v in (*eqn.inputs, *eqn.outputs)}


def _origin(var: Var, makers: _Makers) -> str:
    program, eqn = makers.program, makers.made.get(var)
    if (named := makers.named.get(var)) is not None:
        return f"named {named.params['name']!r} from {named.where}"
    if eqn is None:
        if var in program.inputs:
            return f"from the argument {var.label or program.inputs.index(var)}"
        return "from a constant"
    if eqn.op.name == "checkpoint":
        inside = eqn.params["program"]
        result = inside.outputs[eqn.outputs.index(var)]
        if isinstance(result, Var) and result not in inside.inputs:
            return _origin(result, _Makers(inside))
    return f"output of {eqn.op.name} from {eqn.where}"


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print a line for each array that reverse mode of f keeps: its type, and which argument it
    is, or what made it and where.

    >>> fxad.debug.print_saved_residuals(jnp.sin, 1.0)
    f32[] output of cos from ...
    """
    for line in saved_residuals(f, *args, **kwargs):
        print(line)
