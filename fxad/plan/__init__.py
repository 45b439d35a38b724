"""Lowered programs to Plans: order, lifetimes, the arena, donated storage."""

from fxad.plan.planner import plan, plan_block
from fxad.plan.text import plan_text

__all__ = ["plan", "plan_block", "plan_text"]
