"""Names of a traced function's arguments and results, for the text of its Program.

def loss(params, x): ...          params.w, params.b, x
grad(loss)                        d_params.w, d_params.b
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fxad.core import pytree
from fxad.core.lazy import later
from fxad.core.pytree import KeyPath, TreeDef
from fxad.core.record import record
from fxad.ir.program import Program

if TYPE_CHECKING:
    from fxad.ir import labels
else:
    labels = later("fxad.ir.labels")

F = TypeVar("F", bound=Callable[..., Any])


@record
class Gradient:
    """What a function made by `grad` returns: derivatives of arguments of `function`, at `path` in
    its result."""

    function: Callable[..., Any]
    argnums: int | Sequence[int]
    path: tuple[int, ...]


_gradients: weakref.WeakKeyDictionary[Any, Gradient] = weakref.WeakKeyDictionary()


def note_gradient(
    made: Any, function: Callable[..., Any], argnums: int | Sequence[int], path: tuple[int, ...]
) -> None:
    """Remember that `made` returns derivatives (see `Gradient`)."""
    _gradients[made] = Gradient(function, argnums, path)


def called(function: Any) -> str:
    """What a function is called in a `repr`: `loss`, `grad(loss)`."""
    name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
    known = name.rpartition("<locals>.")[2] if isinstance(name, str) else ""
    return known or type(function).__name__


def wraps(function: Callable[..., Any], **how: Any) -> Callable[[F], F]:
    """`functools.wraps`, also of a callable object whose names are no strings, or that has every
    attribute it is asked for."""
    kinds = {
        "__name__": str,
        "__qualname__": str,
        "__annotations__": dict,
        "__type_params__": tuple,
    }

    def fits(name: str) -> bool:
        if name == "__annotate__":
            return callable(getattr(function, name, None))
        kind = kinds.get(name, object)
        return isinstance(getattr(function, name, kind()), kind)

    # No others: from Python 3.14 on, to ask for annotations is to evaluate them.
    kept = [name for name in functools.WRAPPER_ASSIGNMENTS if fits(name)]
    return functools.wraps(function, kept, **how)  # type: ignore[return-value]


def entitle(made: Any, how: str, function: Callable[..., Any], **options: Any) -> None:
    """Have the `repr` of a function say how it was made: `<function grad(loss, argnums=1) at ...>`.

    options: arguments of the transformation, with those that they mostly are: (given, usual).
    """
    said = [f"{name}={given!r}" for name, (given, usual) in options.items() if given != usual]
    made.__qualname__ = f"{how}({', '.join([called(function), *said])})"


def label_program(
    program: Program,
    function: Callable[..., Any],
    static: Collection[int],
    arguments: TreeDef,
    results: TreeDef,
    captured: int = 0,
) -> None:
    """Name the program's inputs by their places in (args, kwargs) and its outputs by theirs in the
    result. captured: the inputs before them. static: the arguments that are not inputs."""
    names = arguments_of(function, static, arguments)
    labels.labelled(program.inputs[captured:], names)
    used = {v.label for v in program.inputs}
    found = results.paths()
    texts = list(_results(function, found))
    fresh = [text if text not in used and texts.count(text) == 1 else "" for text in texts]
    labels.labelled(program.outputs, fresh)
    labels.label_captured(program)


def arguments_of(
    function: Callable[..., Any],
    static: Collection[int],
    arguments: TreeDef,
    chosen: Collection[int] | None = None,
) -> list[str]:
    """The names of leaves of (args, kwargs), all or those of these numbers. static: the arguments
    that are none of these."""
    roots = [name for i, name in enumerate(parameters(function)) if i not in static]
    return [
        _argument(p, roots)
        for i, p in enumerate(arguments.paths())
        if chosen is None or i in chosen
    ]


def label_arguments(
    inputs: Sequence[Any], function: Callable[..., Any], args: Sequence[TreeDef]
) -> None:
    """Name values by their places in a function's arguments, of these structures."""
    roots = parameters(function)
    places = pytree.treedef_tuple([pytree.treedef_tuple(args)]).paths()
    labels.labelled(inputs, [_argument(path, roots) for path in places])


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that are given by position; none for what has no signature."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.kind in kinds]


def _argument(path: KeyPath, roots: Sequence[str]) -> str:
    """The label of a leaf of (args, kwargs)."""
    where, first, *rest = path
    if where.idx == 0 and first.idx < len(roots):
        return labels.label(roots[first.idx], rest)
    return labels.label("args", (first, *rest)) if where.idx == 0 else labels.label(first.key, rest)


def _results(function: Callable[..., Any], paths: Sequence[KeyPath]) -> Iterator[str]:
    """The labels of results: derivatives after what they belong to, entries of dictionaries and
    fields after their keys. Others are named as values are."""
    gradient = _gradient_of(function)
    for path in paths:
        rest = tuple(path)
        if gradient is not None and _begins(rest, gradient.path):
            yield _derivative(gradient, rest[len(gradient.path) :])
            continue
        key = getattr(rest[0], "key", getattr(rest[0], "name", None)) if rest else None
        yield labels.label(key, rest[1:]) if isinstance(key, str) and key.isidentifier() else ""


def _gradient_of(function: Callable[..., Any]) -> Gradient | None:
    """What is known of a function or of the one that it compiles."""
    try:
        return _gradients.get(getattr(function, "_function", function))
    except TypeError:  # no weak reference to it, or no hash
        return None


def _begins(path: KeyPath, with_: tuple[int, ...]) -> bool:
    return tuple([getattr(key, "idx", None) for key in path[: len(with_)]]) == with_


def _derivative(gradient: Gradient, path: KeyPath) -> str:
    roots = parameters(gradient.function)
    number, rest = gradient.argnums, path
    if not isinstance(number, int):
        number, rest = number[path[0].idx], path[1:]
    named = -len(roots) <= number < len(roots)
    return labels.label(f"d_{roots[number]}" if named else "gradient", rest)
