"""Lowered programs to Plans: order, lifetimes, the arena, donated storage."""

from fxad.plan.planner import plan, plan_block

__all__ = ["plan", "plan_block"]
