"""An array's bits read as another dtype (`Array.view`).

jnp.ones(2).view(jnp.uint8)            # uint8[8]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.lazy import later
from fxad.numpy import elementwise as e
from fxad.numpy.core import stack_values
from fxad.numpy.manipulation import flip, reshape
from fxad.trace.array import Array

if TYPE_CHECKING:
    from fxad.lax import operators
else:
    operators = later("fxad.lax.operators")


def view(self: Array, dtype: Any = None) -> Array:
    """The same bits read as another dtype. Where elements take another number of bytes, the last
    axis has as many more or fewer of them; raises ShapeError where it does not divide, and for an
    array without axes."""
    if dtype is None:
        return self
    wanted, own = dt.canonicalize(dtype, explicit=True), self.type.dtype
    if wanted == own:
        return self
    old, new = own.itemsize, wanted.itemsize
    if not self.shape:
        if old != new:
            raise ShapeError(
                f"view: an array without axes keeps its {old} bytes, {wanted} has {new}"
            )
        return reshape(view(reshape(self, (1,)), wanted), ())
    size = self.shape[-1] * old
    if size % new:
        raise ShapeError(
            f"view: the last axis of {self.type} has {size} bytes, which are no multiple of the "
            f"{new} of {wanted}"
        )
    shape = (*self.shape[:-1], size // new)
    if dt.is_complex(own):
        return view(_parts(self), wanted)
    if dt.is_complex(wanted):
        parts = reshape(view(self, dt.real_of(wanted)), (*shape, 2))
        return e.OPS["complex"](parts[..., 0], parts[..., 1])
    if own == dt.bool_:
        return view(self.astype(dt.uint8), wanted)
    if wanted == dt.bool_:
        return view(self, dt.uint8) != 0
    if new > old:
        return operators.bitcast_convert_type(reshape(self, (*shape, new // old)), wanted)
    return reshape(operators.bitcast_convert_type(self, wanted), shape)


def byteswap(self: Array) -> Array:
    """Elements with their bytes in reverse order, those of a complex number part by part."""
    own = self.type.dtype
    real = dt.real_of(own) if dt.is_complex(own) else own
    if real.itemsize == 1:
        return self
    if not self.shape:
        return reshape(byteswap(reshape(self, (1,))), ())
    parts = view(self, dt.uint8)
    count = parts.shape[-1] // real.itemsize
    grouped = reshape(parts, (*parts.shape[:-1], count, real.itemsize))
    return view(reshape(flip(grouped, -1), parts.shape), own)


def _parts(value: Array) -> Array:
    """Real and imaginary parts in turn, along the last axis."""
    parts = stack_values([e.real(value), e.imag(value)], -1)
    return reshape(parts, (*value.shape[:-1], 2 * value.shape[-1]))
