"""Pages of the API reference from signatures and docstrings, one for each public module.

Docstrings are plain text, written for `help()`; they are shown as they are, not parsed as markup.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef

WIDTH = 90  # of a signature on one line
LONGEST = 160  # of a line that says what a name is for
FEW = 3  # names that make a subject
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
    "fxad.checkify",
    "fxad.profiler",
    "fxad.image",
    "fxad.scipy.special",
    "fxad.scipy.linalg",
    "fxad.scipy.fft",
    "fxad.scipy.optimize",
    "fxad.scipy.signal",
    "fxad.scipy.stats",
    "fxad.scipy.ndimage",
    "fxad.scipy.interpolate",
    "fxad.scipy.cluster.vq",
    "fxad.scipy.spatial.transform",
    "fxad_nn",
    "fxad_nn.optim",
)


def write(folder: Path) -> None:
    """A page for each module, and `index.md` that lists them. Pages that would be the same are
    left alone, so that Sphinx need not read them again."""
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": _page(importlib.import_module(name)) for name in MODULES}
    listed = "\n".join(MODULES)
    about = "".join(f"| [{n}]({n}.md) | {_first(importlib.import_module(n))} |\n" for n in MODULES)
    pages["index.md"] = (
        "# API reference\n\nHere you find every public name: a page for each module, which lists "
        "its names by subject, a line on each, and then has each with its signature and docstring, "
        f"as `help` shows them.\n\n| module | |\n|---|---|\n{about}\n"
        f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n"
    )
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def public_names(module: ModuleType) -> list[str]:
    """Names that users import, without submodules: `__all__`, or what is defined there and has no
    underscore."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = (n for n, value in vars(module).items() if _defined_in(value) == module.__name__)
        listed = [n for n in own if not n.startswith("_")]
    return [n for n in sorted(listed) if not inspect.ismodule(getattr(module, n))]


def _defined_in(value: Any) -> str:
    """The name of the module that defines a function or a class, "" of other values."""
    return getattr(value, "__module__", None) or ""


def _page(module: ModuleType) -> str:
    summary = inspect.getdoc(module) or ""
    parts = [f"# {module.__name__}\n"]
    if summary:
        parts.append(_literal(summary))
    names = [name for name in public_names(module) if callable(getattr(module, name))]
    parts += _contents(module, names)
    for name in names:
        value = getattr(module, name)
        doc = inspect.getdoc(value) or ""
        signature = _literal(_signature(name, value), "python")
        parts.append(f"({_target(module, name)})=\n## {name}\n\n{signature}")
        if doc:
            parts.append(_literal(doc))
    return "\n".join(parts)


def _contents(module: ModuleType, names: list[str]) -> list[str]:
    """The names by subject, each with a line: a subject is a module of the source that defines
    FEW names or more; what is left stands last. The largest come first."""
    by_subject: dict[str, list[str]] = {}
    for name in names:
        source = sys.modules.get(_defined_in(getattr(module, name)))
        own = source is not None and source.__name__.partition(".")[0] in ("fxad", "fxad_nn")
        subject = _first(source) if own and source is not module else ""
        by_subject.setdefault(subject, []).append(name)
    large = {s: found for s, found in by_subject.items() if s and len(found) >= FEW}
    rest = [n for n in names if not any(n in found for found in large.values())]
    tables, ported = [], _first(sys.modules["fxad.api.ported"])
    for subject, found in sorted(
        large.items(), key=lambda item: (item[0] == ported, -len(item[1]))
    ):
        tables.append(f"**{subject}**\n\n{_table(module, found)}")
    if rest:
        heading = "**Others**\n\n" if tables else ""
        tables.append(heading + _table(module, rest))
    return tables


def _table(module: ModuleType, names: list[str]) -> str:
    rows = (f"| [{n}](#{_target(module, n)}) | {_first(getattr(module, n))} |\n" for n in names)
    return f"| | |\n|---|---|\n{''.join(rows)}"


def _target(module: ModuleType, name: str) -> str:
    """What links to a name lead to. Targets do not tell apart letters by case."""
    kind = "" if name == name.lower() else "-capital"
    return f"{module.__name__}-{name}{kind}".replace(".", "-").replace("_", "-").lower()


def _first(value: Any) -> str:
    """The first sentence of a docstring, or of its first line what fits, as text of a table."""
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    sentence = re.split(r"(?<=[.?!]) (?=[A-Z])", " ".join(paragraph.split()))[0]
    if len(sentence) > LONGEST:
        sentence = f"{sentence[:LONGEST].rpartition(' ')[0]} ..."
    plain = re.split(r"(`[^`]*`)", sentence.replace("|", "\\|"))  # every second part is code
    plain[::2] = [re.sub(r"([\[\]<>*_])", r"\\\1", part) for part in plain[::2]]
    return "".join(plain)


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
