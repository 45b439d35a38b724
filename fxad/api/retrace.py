"""Why a jitted function is traced again: two signatures compared, leaf by leaf.

A signature is what `jit` looks its traces up by: (structure of the arguments, leaves' types, which
are weak, static arguments, their Python types, (whether x64 is on, the default
matmul precision, rules of `fxad.override`, whether `checkify` checks indices)).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fxad.api.flat import call_place
from fxad.core.errors import RetraceError
from fxad.core.pytree import TreeDef

Signature = tuple


class _State(threading.local):
    forbidden = False


_state = _State()


@contextmanager
def no_tracing() -> Iterator[None]:
    """Inside this block (of this thread) a jitted function that would have to be traced raises
    RetraceError: what runs now is what has run before.

    >>> f = fxad.jit(jnp.sin)
    >>> y = f(0.0)
    >>> with fxad.no_tracing():
    ...     y = f(1.0)  # the trace is there
    """
    before = _state.forbidden
    _state.forbidden = True
    try:
        yield
    finally:
        _state.forbidden = before


def check_allowed(what: str) -> None:
    """Raise RetraceError inside `no_tracing`."""
    if _state.forbidden:
        raise RetraceError(
            f"{what} has no trace for these arguments, and no_tracing() forbids a new one; call it "
            "with arguments of these types before"
        )


_SHOWN = 4


def differences(old: Signature, new: Signature) -> list[str]:
    """What a call of signature `new` has that a trace for `old` does not fit. Empty: it fits."""
    old_tree, old_types, old_weak, old_statics, old_kinds, old_settings = old
    tree, types, weak, statics, kinds, settings = new
    old_x64, old_terms, *old_promotion, old_mesh, old_rules, old_indices = old_settings
    x64, terms, *promotion, mesh, rules, indices = settings
    found = []
    if old_x64 != x64:
        found.append(f"x64 is {'on' if x64 else 'off'} now")
    if old_terms != terms:
        found.append("another fxad.default_matmul_precision is in force")
    if old_promotion != promotion:
        found.append("other rules of promotion are in force")
    if old_mesh != mesh:
        found.append("another mesh is set")
    if old_rules != rules:
        found.append("other rules of fxad.override are in force")
    if old_indices != indices:
        found.append(f"indices are {'' if indices else 'not '}checked for checkify now")
    found += _static_differences(old_statics, statics)
    if not found and old_kinds != kinds:
        found.append(f"static arguments have types {_types(kinds)}, not {_types(old_kinds)}")
    if old_tree != tree:
        return [*found, f"the arguments' structure is {tree}, not {old_tree}"]
    paths = leaf_paths(tree)
    for path, a, b, was_weak, is_weak in zip(paths, old_types, types, old_weak, weak, strict=True):
        if a != b:
            found.append(f"{path} is {b}, not {a}")
        elif was_weak != is_weak:
            new_kind = "a Python number" if is_weak else f"an array {b}"
            old_kind = "a Python number" if was_weak else f"an array {a}"
            found.append(f"{path} is {new_kind}, not {old_kind}")
    return found


def _static_differences(old: tuple, new: tuple) -> list[str]:
    before, after = dict(old), dict(new)
    found = []
    for key in [*before, *(k for k in after if k not in before)]:
        if key not in before or key not in after:
            found.append(f"static argument {key!r} is {'new' if key in after else 'missing'}")
        elif before[key] != after[key]:
            found.append(f"static argument {key!r} is {after[key]!r:.40}, not {before[key]!r:.40}")
    return found


def _types(kinds: tuple) -> str:
    return ", ".join(kind.__name__ for kind in kinds)


def leaf_paths(tree: TreeDef) -> list[str]:
    """How to reach each leaf of (args, kwargs): `args[0]['w']`."""
    return [call_place(path) for path in tree.paths()]


def explain(what: str, traces: Iterable[Any], new: Signature) -> str:
    """Why a call of this signature is (or is not) traced, against the nearest trace there is."""
    known: list[Signature] = list(traces)
    if not known:
        return f"{what} has not been traced yet"
    if new in known:
        return f"{what} has a trace for this call"
    nearest = min((differences(old, new) for old in reversed(known)), key=len)
    shown = nearest[:_SHOWN]
    more = [f"and {len(nearest) - _SHOWN} more"] if len(nearest) > _SHOWN else []
    return f"{what} is traced again: " + "; ".join([*shown, *more])
