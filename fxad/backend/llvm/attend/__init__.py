"""Attention: tiles of queries and keys, forward and backward, vectors or bf16 parts."""
