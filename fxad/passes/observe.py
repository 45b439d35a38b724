"""What FXAD_CHECK and FXAD_SHOW ask of a pass that has run."""

from __future__ import annotations

import sys

from fxad.core.config import config
from fxad.ir.check import check
from fxad.ir.program import Program
from fxad.ir.text import show


def observe(stage: str, program: Program) -> None:
    """Check and print a program as the settings ask."""
    if config.check:
        check(program, stage)
    if stage in config.show:
        print(f"--- {stage}\n{show(program)}", file=sys.stderr)
