"""The site: these pages as HTML, by Sphinx with MyST and furo. Works offline.

sphinx-build -W -b html docs build/site

The code on the pages is run by tests/test_docs.py, so nothing is executed here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import api_reference
import notebooks

DOCS = Path(__file__).parent

project = "fxad"
author = "The fxad developers"
copyright = "The fxad developers"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["*.py"]

# `#heading` in a link is the anchor that GitHub makes, so one source serves both.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = "fxad"
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Write the API reference and the notebooks before sources are read."""
    api_reference.write(DOCS / "api")
    notebooks.write(DOCS / "downloads")
    app.connect("source-read", offer_notebook)


def offer_notebook(app: Sphinx, name: str, source: list[str]) -> None:
    """Put a link to the page's notebook below its heading."""
    if name in notebooks.PAGES:
        heading, rest = source[0].split("\n", 1)
        link = f"{{download}}`Download this page as a notebook <downloads/{name}.ipynb>`"
        source[0] = f"{heading}\n\n{link}\n{rest}"
