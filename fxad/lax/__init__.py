"""`fxad.lax`: control flow and the functions of `jax.lax` that ported code uses.

total, ys = fxad.lax.scan(step, 0.0, xs)
"""

from fxad.lax.branches import cond, switch
from fxad.lax.loops import associative_scan, fori_loop, map, scan, while_loop

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]
