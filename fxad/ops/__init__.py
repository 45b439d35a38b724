"""Operations: one record per op, holding everything the system knows about it.

base        `define`: how an op is made
elements    ops on each element: arithmetic, powers, elementary and special functions, comparisons,
            conversions
arrays      ops that move, choose, order and combine elements, random bits, sums over vmap's lanes
matrices    the matrix product, factorisations, eigenvalues, Fourier transforms
programs    ops that hold Programs: branches, loops, custom derivatives, checkpoints, tapes
fused       attention and the loss of a linear head as one op each
"""

from fxad.core.lazy import lazy as _lazy
from fxad.ir.program import OPS
from fxad.ops import arrays, elements, fused, matrices, programs

__all__ = ["OWN", "arrays", "elements", "fused", "matrices", "programs"]

OWN = frozenset(OPS)  # names of the ops this package defines

_SEGMENTS = ("segment_max", "segment_min", "segment_prod", "segment_sum")  # of jax.ops
_HERE = {name: f"it is fxad.lax.{name}" for name in _SEGMENTS}
__getattr__, __dir__ = _lazy(globals(), missing=_HERE)
