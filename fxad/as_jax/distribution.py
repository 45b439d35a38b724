"""`importlib.metadata.version("jax")`: JAX as an installed package, with a version and no files."""

from __future__ import annotations

from importlib import metadata
from typing import Any, NoReturn

from fxad.as_jax.toplevel import __version__


class Distribution(metadata.Distribution):
    """The metadata of `jax` or `jaxlib`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        text = f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {__version__}\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> NoReturn:
        """Raises FileNotFoundError."""
        raise FileNotFoundError(path)
