"""What is loaded when it is first asked for: names of a namespace, and whole modules.

    if not TYPE_CHECKING:
        __getattr__, __dir__ = lazy(globals(), {"hvp": "fxad.api.curvature"}, modules=("scipy",))

At the end of a module this makes `module.hvp` load `fxad.api.curvature` and `module.scipy` load
`module.scipy`, once. `dir(module)` lists both. Type checkers want the same imports once more, under
`if TYPE_CHECKING:`, and are not to see a `__getattr__`, which has every name;
`tests/test_layers.py` compares the two, and those of a module that few runs need:

    if TYPE_CHECKING:
        from fxad.ir.inspection import diff
    else:
        diff = later("fxad.ir.inspection.diff")

Here `diff.size(program)` loads the module. No function imports a module of ours in its body, but
for those of the compiler's page.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any


def lazy(
    namespace: dict[str, Any],
    homes: Mapping[str, str] = MappingProxyType({}),
    *,
    modules: Sequence[str] = (),
    missing: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of the module whose `globals()` are `namespace`.

    `homes` says which module a name is in: "module", or "module:other" where it is called
    otherwise there. `modules` are submodules. A name that is in neither: AttributeError, which says
    for those of `missing` what to do instead.
    """
    own = namespace["__name__"]

    def getattr_(name: str) -> Any:
        if name in modules:
            found: Any = importlib.import_module(f"{own}.{name}")
        elif name in homes:
            home, _, other = homes[name].partition(":")
            found = getattr(importlib.import_module(home), other or name)
        else:
            known = [n for n in listed() if not n.startswith("_")]
            instead = f": {missing[name]}" if name in missing else _close(name, known)
            raise AttributeError(f"module {own!r} has no attribute {name!r}{instead}")
        namespace[name] = found
        return found

    def listed() -> list[str]:
        """What is public, and Python's own names of a module."""
        public = namespace.get("__all__", [n for n in namespace if not n.startswith("_")])
        own_names = [n for n in namespace if n.startswith("__")]
        return sorted({*public, *own_names, *homes, *modules})

    return getattr_, listed


def _close(name: str, known: list[str]) -> str:
    """A hint at names that look like one."""
    if name.startswith("_"):
        return ""
    difflib = importlib.import_module("difflib")  # only errors pay for it
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {match[0]}?" if match else ""


class _Later:
    """Stands for a module until a name of it is asked for, and then again: what tests put in the
    module's place is seen."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return later, (self._name,)

    def __repr__(self) -> str:
        return f"<module {self._name!r}, loaded when needed>"


def later(name: str) -> Any:
    """The module of this name; it is loaded when one of its names is first asked for."""
    return _Later(name)
