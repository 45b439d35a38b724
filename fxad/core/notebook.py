"""The IPython shell around this process, of a notebook or a terminal, if there is one.

IPython is never imported here: a program that runs in a shell has it loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def shell() -> Any:
    """IPython's `InteractiveShell`, or None."""
    module = sys.modules.get("IPython")
    get = getattr(module, "get_ipython", None)
    return None if get is None else get()


def cell(file: str) -> str:
    """How IPython calls the cell that it compiled under this file name, such as `In[12]`; empty for
    other files. The number is that of the last run."""
    compiler = getattr(shell(), "compile", None)
    named = getattr(compiler, "format_code_name", None)
    found = None if named is None else named(file)
    return "" if found is None else str(found[1])


def before_each_cell(call: Callable[..., None]) -> None:
    """Have IPython call this before it runs a cell; nothing where there is no shell now."""
    events = getattr(shell(), "events", None)
    if events is not None:
        events.register("pre_run_cell", call)
