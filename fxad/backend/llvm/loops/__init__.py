"""Loops over elements: maps, reductions, pipelines of passes, tiles, sorting."""
