"""Pages of the API reference from signatures and docstrings, one for each public module.

Docstrings are plain text, written for `help()`; they are shown as they are, not parsed as markup.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef

WIDTH = 90  # of a signature on one line
MODULES = (
    "fxad",
    "fxad.numpy",
    "fxad.numpy.linalg",
    "fxad.numpy.fft",
    "fxad.lax",
    "fxad.nn",
    "fxad.random",
    "fxad.tree",
    "fxad.debug",
    "fxad.profiler",
    "fxad.image",
    "fxad.scipy.special",
    "fxad.scipy.linalg",
    "fxad.scipy.fft",
    "fxad.scipy.optimize",
    "fxad.scipy.signal",
    "fxad.scipy.stats",
    "fxad_nn",
    "fxad_nn.optim",
)


def write(folder: Path) -> None:
    """A page for each module, and `index.md` that lists them. Pages that would be the same are
    left alone, so that Sphinx need not read them again."""
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": _page(importlib.import_module(name)) for name in MODULES}
    listed = "\n".join(MODULES)
    pages["index.md"] = (
        "# API reference\n\nEvery public name with its signature and docstring, as `help` shows "
        f"them.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def public_names(module: ModuleType) -> list[str]:
    """Names that users import, without submodules: `__all__`, or what has no underscore."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    return [n for n in sorted(names) if not inspect.ismodule(getattr(module, n))]


def _page(module: ModuleType) -> str:
    summary = inspect.getdoc(module) or ""
    parts = [f"# {module.__name__}\n"]
    if summary:
        parts.append(_literal(summary))
    for name in public_names(module):
        value = getattr(module, name)
        if not callable(value):
            continue
        doc = inspect.getdoc(value) or ""
        parts.append(f"## {name}\n\n{_literal(_signature(name, value), 'python')}")
        if doc:
            parts.append(_literal(doc))
    return "\n".join(parts)


class _Annotation:
    """Printed as it is written in the source, without quotes."""

    def __init__(self, annotation: Any) -> None:
        self.text = annotation if isinstance(annotation, str) else annotation.__forward_arg__

    def __repr__(self) -> str:
        return self.text


def _bare(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str | ForwardRef) else annotation


def _signature(name: str, value: Callable[..., Any]) -> str:
    """A call with all parameters, one on each line where they do not fit on one. Types and
    functions among the defaults are shown by their names alone."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some classes of NumPy have none
        return f"{name}(...)"
    parameters = [p.replace(annotation=_bare(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(
        parameters=parameters, return_annotation=_bare(signature.return_annotation)
    )
    text = f"{name}{signature}"
    if len(text) > WIDTH:
        lines = "".join(f"    {line},\n" for line in _lines(parameters))
        text = f"{name}(\n{lines}){text.rpartition(')')[2]}"
    return re.sub(r"<(?:class '|function |[\w.]+ object )([\w.]*)[^>]*>", r"\1", text)


def _lines(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters with the marks `/` and `*` between them."""
    kinds = [p.kind for p in parameters] + [None]
    starred = inspect.Parameter.VAR_POSITIONAL in kinds
    for parameter, kind, following in zip(parameters, kinds, kinds[1:], strict=False):
        if kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield str(parameter)
        if kind is inspect.Parameter.POSITIONAL_ONLY and following is not kind:
            yield "/"


def _literal(text: str, language: str = "text") -> str:
    """A fenced block; its fence is longer than any in the text."""
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}\n"
