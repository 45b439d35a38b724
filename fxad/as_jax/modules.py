"""Modules of JAX made of fxad's: what `import jax.numpy` finds.

A module holds the public names of JAX's module of that name (`public_names.txt`, read from an
installed JAX), each looked up in `names` when it is first asked for. What fxad does not have is an
AttributeError at that moment, or an ImportError where it is imported by name.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.resources import files
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fxad.as_jax.names import ELSEWHERE, MODULES, UNWRITTEN, why
from fxad.as_jax.one_device import on_one_device
from fxad.core.lazy import later

if TYPE_CHECKING:
    from fxad.as_jax import distribution
else:
    distribution = later("fxad.as_jax.distribution")

PAGE = "docs/jax-names.md"


@functools.cache
def public_names() -> dict[str, dict[str, tuple[str, ...]]]:
    """JAX's public names by module ("jax", "jax.numpy", ...), each with its keywords that say where
    arrays lie."""
    lines = files(__package__).joinpath("public_names.txt").read_text().splitlines()
    pairs = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    return {module: dict(map(_with_keywords, names.split())) for module, names in pairs}


def _with_keywords(name: str) -> tuple[str, tuple[str, ...]]:
    name, _, keywords = name.removesuffix(")").partition("(")
    return name, tuple(keywords.split(",")) if keywords else ()


def found_at(home: str) -> Any:
    """The module "module", or what is called "module:name"."""
    where, _, name = home.partition(":")
    found = importlib.import_module(where)
    return getattr(found, name) if name else found


class Absent(AttributeError):
    """A name of JAX that fxad does not have, or that JAX does not have either."""


def lookup(module: str, name: str) -> Any:
    """What a name of a JAX module is here. Raises Absent."""
    home = home_of(module, name)
    if home is None:
        raise Absent(why_absent(module, name), name=name)
    full = f"{module}.{name}"
    found = found_at(home) if full in ELSEWHERE else getattr(found_at(home), name)
    keywords = public_names().get(module, {}).get(name, ())
    return on_one_device(found, keywords) if keywords and callable(found) else found


def home_of(module: str, name: str) -> str | None:
    """Where a name of a JAX module is looked up, or None. Loads modules of fxad."""
    full = f"{module}.{name}"
    if full in ELSEWHERE:
        return ELSEWHERE[full]
    if name not in public_names().get(module, ()) and not private(module):
        return None
    return next((home for home in MODULES[module] if hasattr(found_at(home), name)), None)


def private(module: str) -> bool:
    """Whether a module is none of the public ones that the table lists: it has all the names of its
    home."""
    return module not in public_names()


def why_absent(module: str, name: str) -> str:
    """One sentence: that the name is not here, why, the nearest that is, and where to read on."""
    full = f"{module}.{name}"
    known = public_names()
    listed = name in known.get(module, {}) or any(m.startswith(full) for m in known)
    if listed or (private(module) and why(full) != UNWRITTEN):
        said = f"{full} is not in fxad: {why(full)}"
    else:
        said = f"{full} is not in fxad, nor a public name of JAX that it knows"
    candidates = [n for n in known.get(module, ()) if home_of(module, n)]
    near = importlib.import_module("difflib").get_close_matches(name, candidates, n=1)
    return said + (f"; the nearest name is {module}.{near[0]}" if near else "") + f" ({PAGE})"


class Module(ModuleType):
    """A module of JAX's name. Its names are looked up when they are first asked for."""

    __path__: Any

    def __init__(self, name: str) -> None:
        super().__init__(name, f"`{name}` as fxad has it: see {PAGE}.")
        self.__path__ = []  # so that `from module import name` asks the finder for the reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and f"{self.__name__}.{name}" not in ELSEWHERE:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if f"{self.__name__}.{name}" in MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        found = lookup(self.__name__, name)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        names = [n for n in public_names().get(self.__name__, ()) if home_of(self.__name__, n)]
        children = [m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == self.__name__]
        return sorted({*names, *children, *vars(self)})

    @property
    def __all__(self) -> list[str]:
        return [name for name in dir(self) if not name.startswith("_")]


class Finder:
    """Finds `jax` and its modules, before Python looks for them on disk."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        if name in MODULES:
            loader: Any = Finder
            return ModuleSpec(name, loader, origin="fxad", is_package=True)
        parent, _, own = name.rpartition(".")
        if parent in MODULES and hasattr(sys.modules.get(parent), own):
            return None  # `import jax.numpy.sin` is an error of Python's
        # Not by its name, which `from module import name` would take for "no such module".
        raise ModuleNotFoundError(why_absent(parent, own))

    @staticmethod
    def find_distributions(context: Any) -> Iterator[Any]:
        """What `importlib.metadata.version("jax")` asks."""
        name = (context.name or "").lower()
        if name in ("jax", "jaxlib"):
            yield distribution.Distribution(name)

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return Module(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing: names come when they are asked for."""
