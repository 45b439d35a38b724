"""Loops over elements: stages of every kind but products and attention, row sweeps, sorting,
interiors without conditions."""
