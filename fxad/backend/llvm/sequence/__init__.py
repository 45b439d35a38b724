"""Loops with small bodies as one native function each."""
