"""einsum: sums of products over named axes, contracted pair by pair.

einsum("ij,jk,kl->il", a, b, c)
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import cast, no_out, promoted, spread_to
from fxad.numpy.creation import diagonal
from fxad.numpy.manipulation import transpose
from fxad.numpy.products import product
from fxad.trace.array import Array
from fxad.trace.replay import replayed
from fxad.trace.tracer import type_of

__all__ = ["einsum", "einsum_path"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@replayed
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    optimize: Any = "optimal",
    precision: Any = None,
    preferred_element_type: Any = None,
    **hints: Any,
) -> Array:
    """Sum of products over named axes: einsum("bqhd,bkhd->bhqk", q, k).

    Takes "..." and the implicit output form. Pairs of operands are contracted in the order that
    keeps intermediates small (greedily), with `optimize=False` from left to right, or in the order
    of a path as `einsum_path` gives it; a path that takes more than two at once raises
    NotImplementedError.

    >>> a = jnp.array([[1, 2], [3, 4]])
    >>> jnp.einsum("ij,kj->ik", a, a)
    Array([[ 5, 11],
           [11, 25]], dtype=int32)
    >>> jnp.einsum("ii", a)
    Array(5, dtype=int32)
    """
    no_out("einsum", hints.get("out"))
    subscripts, operands = _text_and_operands(subscripts, operands)
    values = promoted("einsum", *operands, numbers=False, broadcast=False)
    if all(type_of(v).dtype == dt.bool_ for v in values):
        counts = einsum(subscripts, *(cast(v, dt.int32) for v in values), optimize=optimize)
        return OPS["ne"](counts, 0)  # any of the products, which are "and"
    terms, output = _parse(subscripts, values)
    parts = [
        _own_sums(v, t, terms, i, output)
        for i, (v, t) in enumerate(zip(values, terms, strict=True))
    ]
    order = _order(optimize, len(parts))
    how = {"wide": preferred_element_type, "precision": precision}
    while len(parts) > 1:
        i, j = next(order, None) or _cheapest(parts, output)
        others = [p for n, p in enumerate(parts) if n not in (i, j)]
        keep = set(output).union(*(set(t) for _, t in others))
        parts = [*others, _contract(parts[i], parts[j], keep, **how)]
    value, term = parts[0]
    summed = tuple(i for i, c in enumerate(term) if c not in output)
    if summed:
        value = OPS["sum"](value, axes=summed)
        term = "".join(c for c in term if c in output)
    out = transpose(value, [term.index(c) for c in output])
    if preferred_element_type is not None:
        out = cast(out, dt.canonicalize(preferred_element_type, explicit=True))
    return out


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: Any = "greedy"
) -> tuple[list[tuple[int, ...]], str]:
    """An order of contractions for `einsum(..., optimize=path)`, and a text that describes it.

    optimize: "greedy", "optimal" (tries all; True is the same), or False for left to right.

    >>> a = jnp.ones((2, 50))
    >>> jnp.einsum_path("ij,jk,kl->il", a, jnp.ones((50, 50)), jnp.ones((50, 3)))[0]
    [(0, 1), (0, 1)]
    """
    subscripts, operands = _text_and_operands(subscripts, operands)
    shapes = [np.broadcast_to(np.zeros(()), np.shape(x)) for x in operands]
    if optimize is False:
        path: list[tuple[int, ...]] = [(0, 1)] * (len(shapes) - 1) or [(0,)]
        return path, np.einsum_path(subscripts, *shapes, optimize=["einsum_path", *path])[1]
    names = {True: "optimal", "auto": "optimal", "eager": "greedy"}
    method = names.get(optimize, optimize)
    if method not in ("greedy", "optimal"):
        raise BadArgument(
            f"einsum_path: optimize is 'greedy', 'optimal' or False, not {optimize!r}"
        )
    found, text = np.einsum_path(subscripts, *shapes, optimize=(method, 1 << 62))
    return found[1:], text


def _text_and_operands(subscripts: Any, operands: tuple) -> tuple[str, tuple]:
    if not isinstance(subscripts, str) and operands:
        subscripts, spelled = _spelled(subscripts, operands)
        operands = tuple(spelled)
    if not isinstance(subscripts, str):
        raise TypeMismatch("einsum: the first argument must be a subscripts string")
    return subscripts, operands


def _order(optimize: Any, count: int) -> Iterator[tuple[int, int]]:
    """The pairs that `optimize` prescribes: none if the order is ours to choose."""
    if optimize is False:
        return iter([(0, 1)] * (count - 1))
    if isinstance(optimize, str) or optimize is True:
        return iter(())
    path = [tuple(step) for step in optimize if not isinstance(step, str)]
    if any(len(step) > 2 for step in path):
        raise NotImplementedError(
            f"einsum does not support simultaneous contraction of 3 or more operands: {path}"
        )
    return iter([(step[0], step[1]) for step in path if len(step) == 2])


def _spelled(first: Any, rest: tuple) -> tuple[str, list[Any]]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) in its string form."""
    given = [first, *rest]
    output = given.pop() if len(given) % 2 else None

    def letters(axes: Any) -> str:
        return "".join("..." if a is Ellipsis else chr(97 + a) for a in axes)

    text = ",".join(map(letters, given[1::2]))
    return text if output is None else f"{text}->{letters(output)}", given[::2]


def _parse(subscripts: str, values: list[Any]) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise ShapeError(f"einsum: {subscripts!r} names {len(terms)} operands, got {len(values)}")
    spare = [c for c in _LETTERS if c not in text]
    widths = [
        type_of(v).ndim - len(t.replace("...", ""))
        for t, v in zip(terms, values, strict=True)
        if "..." in t
    ]
    dots = "".join(spare[: builtins.max(widths, default=0)])
    full = []
    for term, value in zip(terms, values, strict=True):
        if "..." in term:
            width = type_of(value).ndim - len(term.replace("...", ""))
            term = term.replace("...", dots[len(dots) - width :])
        if len(term) != type_of(value).ndim:
            raise ShapeError(
                f"einsum: {subscripts!r}: term {term!r} has {len(term)} axes, its operand is "
                f"{type_of(value)}"
            )
        full.append(term)
    if arrow:
        output = output.replace("...", dots)
    else:
        once = [c for c in sorted(set("".join(full)) - set(dots)) if "".join(full).count(c) == 1]
        output = dots + "".join(once)
    _check_terms(subscripts, full, output, values)
    return full, output


def _check_terms(subscripts: str, terms: list[str], output: str, values: list[Any]) -> None:
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for name, size in zip(term, type_of(value).shape, strict=True):
            if sizes.setdefault(name, size) not in (size, 1) and size != 1:
                raise ShapeError(
                    f"einsum: {subscripts!r}: axis {name!r} has lengths {sizes[name]} and {size}"
                )
            sizes[name] = builtins.max(sizes[name], size)
    for name in output:
        if name not in sizes or output.count(name) > 1:
            raise ShapeError(f"einsum: {subscripts!r}: bad output axis {name!r}")


def _own_sums(value: Any, term: str, terms: list[str], number: int, output: str) -> tuple[Any, str]:
    """Diagonals of repeated names, and sums over names nobody else has."""
    for name in sorted(set(term)):
        while term.count(name) > 1:
            first = term.index(name)
            second = term.index(name, first + 1)
            value = diagonal(value, 0, first, second)
            term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + name
    others = set(output).union(*(set(t) for i, t in enumerate(terms) if i != number))
    alone = tuple(i for i, c in enumerate(term) if c not in others)
    if alone:
        value = OPS["sum"](value, axes=alone)
        term = "".join(c for i, c in enumerate(term) if i not in alone)
    return value, term


def _cheapest(parts: list[tuple[Any, str]], output: str) -> tuple[int, int]:
    if len(parts) == 2:
        return 0, 1
    best, choice = None, (0, 1)
    for i in range(len(parts)):
        for j in range(i + 1, len(parts)):
            names: dict[str, int] = {}
            for value, term in (parts[i], parts[j]):
                names.update(zip(term, type_of(value).shape, strict=True))
            keep = set(output).union(*(set(t) for n, (_, t) in enumerate(parts) if n not in (i, j)))
            size = 1
            for name, length in names.items():
                size *= length if name in keep else 1
            if best is None or size < best:
                best, choice = size, (i, j)
    return choice


def _contract(
    left: tuple[Any, str], right: tuple[Any, str], keep: set[str], wide: Any, precision: Any
) -> tuple[Any, str]:
    (x, s), (y, t) = left, right
    shared = [c for c in s if c in t]
    batch = [c for c in shared if c in keep]
    summed = [c for c in shared if c not in keep]
    # Axes of length 1 in one operand broadcast against the other.
    sizes: dict[str, int] = {}
    for value, term in ((x, s), (y, t)):
        for name, size in zip(term, type_of(value).shape, strict=True):
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    x = spread_to(x, tuple(sizes[c] for c in s))
    y = spread_to(y, tuple(sizes[c] for c in t))
    contract = tuple(s.index(c) for c in summed), tuple(t.index(c) for c in summed)
    axes = tuple(s.index(c) for c in batch), tuple(t.index(c) for c in batch)
    out = product(x, y, contract, axes, wide, precision)
    free = [c for c in s if c not in shared] + [c for c in t if c not in shared]
    return out, "".join([*batch, *free])
