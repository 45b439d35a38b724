"""Differentiation and batching: jvp, split, transpose, batch, and what they compose to."""
