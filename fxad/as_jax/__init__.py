"""`import jax` means fxad, in a process that asks for it: JAX code and packages run unchanged.

    python -m fxad.as_jax script.py --epochs 3      # or: -m package
    python -m pytest -p fxad.as_jax
    fxad.as_jax.install()                           # before the first `import jax`

Importing this module changes nothing. What each name of JAX means is in the table of
docs/jax-names.md, which is made from `fxad.as_jax.names`.
"""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from fxad.as_jax import semantics
from fxad.as_jax.modules import Finder
from fxad.core.errors import FxadError
from fxad.core.lazy import later

if TYPE_CHECKING:
    from fxad.as_jax import config
else:
    config = later("fxad.as_jax.config")

__all__ = ["AliasError", "AliasWarning", "install", "installed"]


class AliasError(FxadError, ImportError):
    """A real JAX was imported before the alias was asked for."""


class AliasWarning(UserWarning):
    """A real JAX is installed, and `import jax` will not mean it."""


def installed() -> bool:
    """Whether `import jax` means fxad in this process."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def install() -> None:
    """From now on `import jax`, and every public module of it, means fxad in this process.

    Numbers, types and errors become JAX's where docs/from-jax.md says that fxad's differ (those
    that stay are listed there too). Functions that were jitted and called before keep the programs
    they were traced to. A second call does nothing. Raises AliasError if a real JAX is imported
    already; warns (AliasWarning) if one is installed.
    """
    if installed():
        return
    if "jax" in sys.modules:
        raise AliasError(
            "fxad.as_jax: JAX itself is imported in this process already "
            f"({getattr(sys.modules['jax'], '__file__', None)}); call install() before the first "
            "`import jax`, or start with `python -m fxad.as_jax script.py`"
        )
    if (real := PathFinder.find_spec("jax")) is not None:
        warnings.warn(
            f"fxad.as_jax: `import jax` means fxad in this process, not {real.origin}",
            AliasWarning,
            stacklevel=2,
        )
    sys.meta_path.insert(0, Finder())
    semantics.follow_jax()
    config.config.read_environment()


def pytest_addoption(parser: Any) -> None:
    """pytest calls this as soon as `-p fxad.as_jax` is read: before any test, conftest or plugin
    of a package can import JAX."""
    install()
