"""Notebooks of the pages that are read in order: Markdown becomes text cells, Python blocks become
code cells, and the output shown below a block is the cell's output.

    python docs/notebooks.py folder     # or download them from the pages of the site

The pages are the only source. `tests/test_docs.py` runs the notebooks. Where an output names a file
it is the page; Jupyter has names of its own for cells.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGES = ("quick-start", "differentiation", "jit", "control-flow", "random", "pytrees")
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")  # to other pages, which are not there


def notebook(page: str) -> dict[str, Any]:
    """A page's text as a notebook, format 4.5 (https://nbformat.readthedocs.io)."""
    cells: list[dict[str, Any]] = []
    end = 0
    for block in BLOCK.finditer(page):
        cells += _text(page[end : block.start()])
        cells.append(_code(*block.groups()))
        end = block.end()
    cells += _text(page[end:])
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _text(markdown: str) -> list[dict[str, Any]]:
    """One cell, or none for blank lines."""
    source = LINK.sub(r"\1", markdown.strip())
    return [{"cell_type": "markdown", "metadata": {}, "source": source}] if source else []


def _code(source: str, shown: str | None) -> dict[str, Any]:
    printed = {"output_type": "stream", "name": "stdout", "text": shown}
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "source": source.rstrip(),
        "outputs": [printed] if shown else [],
    }


def write(folder: Path) -> None:
    """A notebook for each of the pages. Files that would be the same are left alone."""
    folder.mkdir(exist_ok=True)
    for name in PAGES:
        text = json.dumps(notebook((Path(__file__).parent / f"{name}.md").read_text()), indent=1)
        path = folder / f"{name}.ipynb"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
