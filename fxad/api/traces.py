"""What is kept of the traces of a function: `Traces`, one for all of its jitted forms.

for batch in batches:
    state = fxad.jit(step)(state, batch)  # `step` is traced once
"""

from __future__ import annotations

import functools
import re
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from fxad.api.recent import Recent, Trace
from fxad.core import system
from fxad.core.config import config
from fxad.core.errors import CallError, TreeError
from fxad.core.pytree import TreeDef
from fxad.trace.array import Array

LIMIT = 256  # traces kept per function; the least recently used goes first


def _of_arrays(error: TypeError, statics: tuple[tuple[Any, Any], ...] = ()) -> str:
    """What to do about an array that was to be hashed; nothing where it was something else."""
    traced = any(isinstance(value, Array) for _, value in statics)
    if not traced and not re.search(r"'(Array|\w*Tracer)'", str(error)):
        return ""
    return (
        "; arrays compare element by element: pass it as an ordinary argument instead of a "
        "static one"
    )


class User(Protocol):
    def forget(self) -> None:
        """Remember no trace any more."""


class Traces:
    """The traces of a function by signature, and what is known of those that were met again."""

    def __init__(self) -> None:
        self.users: weakref.WeakSet[User] = weakref.WeakSet()  # who remembers one of them
        self._lock = system.free_in_children(threading.RLock())
        self._kept: OrderedDict[Hashable, Trace] = OrderedDict()
        self._met: dict[Trace, Recent] = {}  # not in the Trace: it would hold itself
        _all.add(self)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Any]:
        """The signatures, the least recently used first."""
        with self._lock:
            return iter(list(self._kept))

    def all(self) -> list[Trace]:
        """Those of all signatures, the least recently used first."""
        with self._lock:
            return list(self._kept.values())

    def find(self, key: tuple, what: str, statics: tuple) -> Trace | None:
        """The trace of a signature. Raises CallError where static arguments in it (`statics`) or
        static data of a pytree cannot be hashed or compared."""
        try:
            hash(statics)
        except TypeError as error:
            advice = _of_arrays(error, statics) or "; pass a tuple or a frozen dataclass"
            raise CallError(f"{what}: static arguments must be hashable: {error}{advice}") from None
        try:
            return self._kept.get(key)
        except TreeError:  # static data that cannot be compared, which the message says
            raise
        except TypeError as error:
            raise CallError(
                f"{what}: static data must be hashable: {error}{_of_arrays(error)}"
            ) from None
        except Exception as error:
            raise CallError(f"{what}: static arguments must be comparable by ==: {error!r}") from (
                error
            )

    def keep(self, key: tuple, made: Trace) -> Trace:
        """The trace of a signature from now on: `made`, unless another thread was faster."""
        with self._lock:
            found = self._kept.setdefault(key, made)
            self._kept.move_to_end(key)
            while len(self._kept) > LIMIT:
                _, forgotten = self._kept.popitem(last=False)
                self._met.pop(forgotten, None)
        return found

    def met(self, trace: Trace, tree: TreeDef, leaves: list[Array], statics: tuple) -> Recent:
        """What is known of a trace that was found for these arguments: worth code of its own."""
        with self._lock:
            if trace not in self._met:
                self._met[trace] = Recent(tree, leaves, statics, trace)
            return self._met[trace]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._met.clear()
            for user in list(self.users):
                user.forget()


_all: weakref.WeakSet[Traces] = weakref.WeakSet()
_OfFunction = dict[Hashable, tuple[object, Traces]]  # by options: the code that was traced, traces
_shared: weakref.WeakKeyDictionary[Any, _OfFunction] = weakref.WeakKeyDictionary()
_lock = system.free_in_children(threading.Lock())


def traces_of(function: Callable[..., Any], options: Hashable) -> Traces:
    """Those that every `jit` of this function with these options shares.

    Other callables than Python's functions and `functools.partial` have theirs alone: their traces
    may lead back to them, and then nothing here would ever be freed.
    """
    if not isinstance(function, types.FunctionType | functools.partial):
        return Traces()
    settings = (options, config.isa, config.offload_memory)  # a trace remembers its compiled code
    code = _code_of(function)
    with _lock:
        of_function = _shared.setdefault(function, {})
        found = of_function.get(settings)
        if found is None or found[0] is not code:  # a notebook has reloaded the function's module
            found = of_function[settings] = (code, Traces())
        return found[1]


def _code_of(function: Any) -> object:
    """The code that a function, or what `functools.partial` binds, has now. (That of functions that
    it calls is not looked at: as with globals, a trace has read them.)"""
    if isinstance(function, functools.partial):
        function = function.func
    return function.__code__ if isinstance(function, types.FunctionType) else None


def clear_caches() -> None:
    """Forget the traces of all jitted functions.

    >>> fxad.clear_caches()
    """
    for traces in list(_all):
        traces.clear()
