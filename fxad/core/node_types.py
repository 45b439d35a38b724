"""Registering classes as pytree nodes.

>>> from fxad.core.treedef import flatten
>>> @register_dataclass
... @dataclasses.dataclass
... class Linear:
...     weight: float
...     name: str = dataclasses.field(metadata={"static": True})
>>> flatten(Linear(2.0, "out"))
([2.0], PyTreeDef(CustomNode(Linear[('out',)], [*])))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fxad.core.containers import Flatten, NodeType, index_keys, show_custom
from fxad.core.errors import TreeError
from fxad.core.keypath import GetAttrKey
from fxad.core.treedef import add_node_type

__all__ = [
    "Partial",
    "register_dataclass",
    "register_node",
    "register_node_class",
    "register_node_with_keys",
    "register_node_with_keys_class",
    "register_static",
]

T = TypeVar("T", bound=type)


def register_node(
    nodetype: T,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Sequence[Any]], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> T:
    """Make instances of exactly `nodetype` (not of its subclasses) pytree nodes. Returns it.

    `flatten(x) -> (children, data)`; `unflatten_func(data, children) -> x`, which must accept any
    objects as children; `flatten_with_keys_func(x) -> (((key, child), ...), data)`. `data` must be
    comparable by == and should be hashable. Raises ValueError if the class already is a node.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> node = fxad.tree.register_node(Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c))
    >>> fxad.tree.leaves({"p": Pair(1, 2)})
    [1, 2]
    """
    if not isinstance(nodetype, type):
        raise TypeError(f"register_node needs a class, got {nodetype!r}")
    add_node_type(
        NodeType(
            nodetype,
            _checked(flatten_func),
            lambda data, children: unflatten_func(data, tuple(children)),
            index_keys,
            functools.partial(show_custom, nodetype.__name__),
            flatten_with_keys_func,
        )
    )
    return nodetype


def _checked(flatten: Flatten) -> Flatten:
    """`flatten`, whose result must be (children, data)."""

    def take(x: Any) -> tuple[Iterable[Any], Any]:
        out = flatten(x)
        if type(out) is tuple and len(out) == 2 and hasattr(out[0], "__iter__"):
            return out
        want = "should return a (children, aux_data) tuple"
        if type(out) is tuple and len(out) == 2:
            want += " where 'children' is iterable"
        raise TreeError(f"The to_iterable function for a custom PyTree node {want}, got {out!r}")

    return take


def register_node_class(cls: Any) -> Any:
    """Decorator for a class with `tree_flatten(self)` and classmethod `tree_unflatten`.

    >>> @fxad.tree.register_node_class
    ... class Box:
    ...     def __init__(self, inside):
    ...         self.inside = inside
    ...     def tree_flatten(self):
    ...         return [self.inside], None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children):
    ...         return cls(*children)
    >>> fxad.tree.map(lambda x: x + 1, Box(1)).inside
    2
    """
    return register_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)


def register_node_with_keys(
    nodetype: T,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Sequence[Any]], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> T:
    """`register_node` in the order keyed first; `flatten_func` follows from the keyed one.

    >>> class Named:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> flatten = lambda n: (((fxad.tree.GetAttrKey("x"), n.x),), None)
    >>> node = fxad.tree.register_node_with_keys(Named, flatten, lambda _, c: Named(*c))
    >>> fxad.tree.leaves_with_path(Named(5))
    [((GetAttrKey(name='x'),), 5)]
    """

    def drop_keys(x: Any) -> tuple[Iterable[Any], Any]:
        pairs, data = flatten_with_keys(x)
        return [child for _, child in pairs], data

    return register_node(nodetype, flatten_func or drop_keys, unflatten_func, flatten_with_keys)


def register_node_with_keys_class(cls: Any) -> Any:
    """Decorator for a class with `tree_flatten_with_keys(self)` and `tree_unflatten`.

    >>> @fxad.tree.register_node_with_keys_class
    ... class Crate:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return [(fxad.tree.GetAttrKey("x"), self.x)], None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children):
    ...         return cls(*children)
    >>> fxad.tree.leaves_with_path(Crate(5))
    [((GetAttrKey(name='x'),), 5)]
    """
    plain = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    return register_node_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, plain
    )


def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a pytree node; usable bare, with arguments, or as a function.

    `data_fields` are children, `meta_fields` static. Given one of them, the other holds the rest;
    given neither, fields with `metadata={"static": True}` are static. Instances are rebuilt by
    calling the class, so `__post_init__` runs and must accept any objects; fields with
    `init=False` and `drop_fields` are neither kept nor copied. A class that is no dataclass needs
    both lists. Raises TypeError if they are missing, ValueError if field names do not add up.

    >>> import dataclasses
    >>> @fxad.tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Line:
    ...     slope: fxad.Array
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> fxad.tree.map(lambda x: 2 * x, Line(3.0, "first"))
    Line(slope=6.0, name='first')
    """
    if nodetype is None:
        return functools.partial(
            register_dataclass,
            data_fields=data_fields,
            meta_fields=meta_fields,
            drop_fields=drop_fields,
        )
    import dataclasses

    if not (isinstance(nodetype, type) and dataclasses.is_dataclass(nodetype)):
        _check_plain(nodetype, data_fields, meta_fields)
        add_node_type(_dataclass_type(nodetype, tuple(data_fields or ()), tuple(meta_fields or ())))
        return nodetype
    data, meta = _split_fields(nodetype, data_fields, meta_fields, drop_fields)
    add_node_type(_dataclass_type(nodetype, data, meta))
    return nodetype


def register_static(cls: T) -> T:
    """Make instances of a class nodes without children: constants of the tree's structure, which
    must be comparable by == and should be hashable. Returns `cls`.

    >>> import dataclasses
    >>> @fxad.tree.register_static
    ... @dataclasses.dataclass(frozen=True)
    ... class Options:
    ...     depth: int
    >>> fxad.tree.leaves([Options(3), 1.0])
    [1.0]
    """
    return register_node(cls, lambda x: ((), x), lambda data, children: data)


def _check_plain(cls: Any, data: Sequence[str] | None, meta: Sequence[str] | None) -> None:
    """Raise TypeError unless `cls` is a class whose fields are both listed."""
    if data is None and meta is None:
        raise TypeError(
            "register_dataclass: data_fields and meta_fields are required when nodetype is not a "
            f"dataclass. Got nodetype={cls!r}. Is @dataclasses.dataclass missing below it?"
        )
    if data is None or meta is None:
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is "
            f"specified. Got data_fields={data} meta_fields={meta}."
        )
    if not isinstance(cls, type):
        raise TypeError(f"register_dataclass needs a class, got {cls!r}")


def _split_fields(
    cls: Any,
    data_fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    drop_fields: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import dataclasses

    fields = [f for f in dataclasses.fields(cls) if f.init and f.name not in drop_fields]
    names = [f.name for f in fields]
    if meta_fields is None:
        if data_fields is None:
            meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
        else:
            meta_fields = [name for name in names if name not in data_fields]
    if data_fields is None:
        data_fields = [name for name in names if name not in meta_fields]
    given = [*data_fields, *meta_fields]
    wrong = {
        "Missing fields": [name for name in names if name not in given],
        "Unexpected fields": [name for name in given if name not in names],
        "Fields listed twice": sorted({name for name in given if given.count(name) > 1}),
    }
    problems = [f"{what}: {{{', '.join(map(repr, n))}}}" for what, n in wrong.items() if n]
    if problems:
        raise ValueError(
            f"register_dataclass({cls.__name__}): data_fields and meta_fields must include all "
            f"dataclass fields with init=True once ({', '.join(names)}). {'. '.join(problems)}"
        )
    return tuple(data_fields), tuple(meta_fields)


def _dataclass_type(cls: Any, data: tuple[str, ...], meta: tuple[str, ...]) -> NodeType:
    def take(x: Any) -> tuple[Iterable[Any], Any]:
        return [getattr(x, name) for name in data], tuple([getattr(x, name) for name in meta])

    def build(static: tuple[Any, ...], children: Sequence[Any]) -> Any:
        return cls(**dict(zip(data, children, strict=True)), **dict(zip(meta, static, strict=True)))

    show = functools.partial(show_custom, cls.__name__)
    return NodeType(cls, take, build, lambda _, count: [GetAttrKey(name) for name in data], show)


class _Whole:
    """A partial as a plain function, equal to what it holds, so that `functools.partial` does not
    merge its arguments into those of a Partial around it."""

    __slots__ = ("held",)

    def __init__(self, held: Callable[..., Any]) -> None:
        self.held = held

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.held(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self.held == (other.held if isinstance(other, _Whole) else other))

    def __hash__(self) -> int:
        return hash(self.held)

    def __repr__(self) -> str:
        return repr(self.held)


class Partial(functools.partial[Any]):
    """`functools.partial` as a pytree: the bound arguments are children, the function is static.

    Arguments bound by a partial that is given as the function stay with it: they are static.

    >>> add = fxad.tree.Partial(jnp.add, jnp.array([1.0, 2.0]))
    >>> fxad.jit(lambda f, x: f(x))(add, 10.0)
    Array([11., 12.], dtype=float32)
    """

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **keywords: Any) -> Partial:
        whole = _Whole(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, whole, *args, **keywords)


register_node(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
    lambda p: (((GetAttrKey("args"), p.args), (GetAttrKey("keywords"), p.keywords)), p.func),
)
