"""The site: these pages as HTML, by Sphinx with MyST and furo. Works offline.

sphinx-build -W -b html docs build/site

The code on the pages is run by tests/test_docs.py, so nothing is executed here.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import api_reference

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


def setup(app: object) -> None:
    """Write the pages of the API reference before sources are read."""
    api_reference.write(Path(__file__).parent / "api")
