"""Where fxad and JAX decide differently, and which way this process goes.

if semantics.explicit_dtypes_win: ...

Everything is fxad's way unless `fxad.as_jax` is installed, which sets each to JAX's. This happens
before the first array is made, so no cache asks.
"""

from __future__ import annotations


class Semantics:
    """The choices of this process."""

    explicit_dtypes_win = True  # of 64 bits, while 64-bit is off; in JAX they narrow
    filled_arrays_are_strong = True  # full(3, 1.0); in JAX weak
    known_indices_are_checked = True  # x[9] of 3 elements; in JAX clamped, or dropped by updates
    abs_is_flat_at_zero = True  # the slope of |x| at 0; in JAX 1
    repr_shows_weak_types = False  # of arrays; in JAX it does
    numbers_format_as_arrays = True  # f"{x}" of a 0-d x: 0.1; in JAX as Python's number
    callbacks_need_vmap_method = False  # under vmap, and no order; in JAX they do
    keys_are_words = True  # random.key gives u32[2]; in JAX an element of its own dtype


semantics = Semantics()
