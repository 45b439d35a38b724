"""Lowered programs to Plans: order, lifetimes, the arena, donated storage."""
