"""Solutions of equations, differentiated by the implicit function theorem.

x = custom_linear_solve(lambda v: a @ v, b, solve=lambda matvec, b: conjugate_gradient(matvec, b))
x = custom_root(lambda x: x**2 - y, guess, newton, lambda g, y: y / g(1.0))

Derivatives never go through the steps of a solver: they cost one more (linear) solve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.autodiff import jvp, linear_transpose, linearize
from fxad.api.closures import closure_convert
from fxad.api.custom import custom_jvp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import pytree
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.pytree import TreeDef
from fxad.ir.program import OPS, Program, Var
from fxad.lax.carry import described
from fxad.numpy.creation import zeros_like
from fxad.numpy.elementwise import negative
from fxad.trace.array import Array
from fxad.trace.tracer import stage, type_of


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """x with f(x) = 0, differentiable with respect to what f captures.

    initial_guess, f's argument and result: pytrees of one structure. solve(f, guess) gives x, or
    (x, aux) with has_aux; its steps are not differentiated. tangent_solve(g, y) gives the x with
    g(x) = y for a linear g, and must be differentiable itself for reverse mode (as
    custom_linear_solve is).

    Raises TreeError or ShapeError if f's result or the solution is not like the guess.

    >>> def newton(f, x):
    ...     return fxad.lax.fori_loop(0, 20, lambda i, x: x - f(x) / fxad.grad(f)(x), x)
    >>> def sqrt(a):
    ...     return fxad.lax.custom_root(lambda x: x * x - a, a, newton, lambda g, y: y / g(1.0))
    >>> print(f"{sqrt(4.0):.4f} {fxad.grad(sqrt)(4.0):.4f}")  # by the implicit function theorem
    2.0000 0.2500
    """
    leaves, tree = flatten_args(initial_guess, "custom_root: initial_guess")
    example = tree.unflatten(leaves)
    converted, held = closure_convert(f, example)

    def residual(x: Any, held: Sequence[Any]) -> Any:
        return _like(example, converted(x, *held), f"custom_root: result of {described(f)}")

    def solution(held: list[Any], guess: Any) -> tuple[Any, Any]:
        result = solve(lambda x: residual(x, held), guess)
        x, aux = _solution(result, has_aux, "custom_root", solve)
        return _like(example, x, f"custom_root: solution of {described(solve)}"), aux

    def tangent(held: list[Any], x: Any, change: Any) -> Any:
        slope = linearize(lambda v: residual(v, held), x)[1]
        dx = tangent_solve(slope, pytree.map(negative, change))
        return _like(example, dx, f"custom_root: solution of {described(tangent_solve)}")

    # What the solvers captured must not carry tangents into a rule that ignores them.
    find, of_find = closure_convert(solution, held, example)
    move, of_move = closure_convert(tangent, held, example, example)

    @custom_jvp
    def root(held: list[Any], guess: Any, of_find: list[Any], of_move: list[Any]) -> Any:
        return find(held, guess, *of_find)

    @root.defjvp
    def rule(primals: tuple, tangents: tuple) -> Any:
        held, _, _, of_move = primals
        x, aux = root(*primals)
        change = jvp(lambda h: residual(x, h), (held,), (tangents[0],))[1]
        return (x, aux), (move(held, x, change, *of_move), pytree.map(zeros_like, aux))

    x, aux = root(held, example, of_find, of_move)
    return (x, aux) if has_aux else x


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """x with matvec(x) = b, differentiable with respect to b and to what matvec captures.

    b, matvec's argument and its result: pytrees of one structure, shapes and dtypes. solve(matvec,
    b) gives x, or (x, aux) with has_aux; its steps are not differentiated. Reverse mode needs
    transpose_solve(vecmat, b) for the transposed system, or symmetric=True.

    Raises TreeError or ShapeError if matvec or a solver gives something unlike b.

    >>> def solve(matvec, b):  # any solver; its steps are not differentiated
    ...     return fxad.lax.fori_loop(0, 20, lambda i, x: x + 0.5 * (b - matvec(x)), b)
    >>> x = lambda a: fxad.lax.custom_linear_solve(lambda v: a * v, 3.0, solve, symmetric=True)
    >>> print(f"{x(1.5):.4f} {fxad.grad(x)(1.5):.4f}")  # 3 / a, -3 / a^2
    2.0000 -1.3333
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = flatten_args(b, "custom_linear_solve: b")
    example = tree.unflatten(leaves)
    aux_trees: list[TreeDef] = []

    def product(x: Any) -> Any:
        return _like(example, matvec(x), f"custom_linear_solve: result of {described(matvec)}")

    def adjoint(x: Any) -> Any:
        return linear_transpose(product, example)(x)[0]

    transposed = product if symmetric else adjoint

    def solver(use: Callable[..., Any], linear: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(rhs: Any) -> Any:
            what = f"custom_linear_solve: solution of {described(use)}"
            x, aux = _solution(use(linear, rhs), has_aux, "custom_linear_solve", use)
            aux_leaves, aux_tree = flatten_args(aux, f"{what}: aux")
            aux_trees.append(aux_tree)
            return [*pytree.leaves(_like(example, x, what)), *aux_leaves]

        run.__name__ = name_of(use)
        return run

    functions = [product, solver(solve, product)]
    if transpose_solve is not None:
        functions += [transposed, solver(transpose_solve, transposed)]
    programs, captured = _staged_together(functions, leaves, tree)
    outs = OPS["linear_solve"](
        *captured,
        *leaves,
        count=len(captured),
        matvec=programs[0],
        solve=programs[1],
        vecmat=tuple(programs[2:3]),
        transposed=tuple(programs[3:4]),
    )
    x = tree.unflatten(outs[: len(leaves)])
    return (x, aux_trees[0].unflatten(outs[len(leaves) :])) if has_aux else x


def _solution(result: Any, has_aux: bool, what: str, solve: Callable[..., Any]) -> tuple[Any, Any]:
    if not has_aux:
        return result, ()
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeMismatch(f"{what}: with has_aux=True {described(solve)} must return (x, aux)")
    return result


def _like(example: Any, result: Any, what: str) -> Any:
    """The result as arrays; raises unless it has the example's structure, shapes and dtypes."""
    wanted, tree = pytree.flatten(example)
    leaves, found = flatten_args(result, what)
    pytree.same_structure_or_raise(tree, found, f"{what}, compared with what it should be like")
    for leaf, like in zip(leaves, wanted, strict=True):
        if type_of(leaf) != type_of(like):
            raise ShapeError(f"{what} has a leaf {type_of(leaf)} where it needs {type_of(like)}")
    return found.unflatten(leaves)


def _staged_together(
    functions: Sequence[Callable[[Any], Any]], leaves: Sequence[Array], tree: TreeDef
) -> tuple[list[Program], list[Any]]:
    """Programs of functions of one tree, all of which take all captured values first."""
    types = [type_of(v) for v in leaves]
    call = pytree.structure(((tree.unflatten(leaves),), {}))
    staged = [stage(FlatFunction(f, call), types, name_of(f)) for f in functions]
    shared = {id(value): value for _, captured in staged for value in captured}
    programs = []
    for program, captured in staged:
        own = {id(v): var for v, var in zip(captured, program.consts, strict=True)}
        heads = [own.get(key) or Var(type_of(value)) for key, value in shared.items()]
        inputs = [*heads, *program.inputs]
        programs.append(Program(inputs, program.eqns, program.outputs, program.name))
    return programs, list(shared.values())
