"""Lowered programs to Plans: order, lifetimes, the arena, donated storage.

The planner is loaded when the first program is planned: one read from disk needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxad.core.late import late

if TYPE_CHECKING:
    from fxad.plan.planner import plan, plan_block

__all__ = ["plan", "plan_block"]

__getattr__, __dir__ = late(globals(), dict.fromkeys(__all__, "fxad.plan.planner"))
