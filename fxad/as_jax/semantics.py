"""JAX's behaviour where fxad's differs: switched on once, for a process in which fxad is JAX.

What differs otherwise is listed in docs/from-jax.md, where this list stands too:

- a 64-bit dtype that is asked for narrows unless x64 is on, with a warning; inputs narrow without;
- arrays filled with a Python number are weakly typed;
- a known index out of range is clamped, or dropped by updates;
- the slope of `abs` at 0 is 1;
- `vmap` of `pure_callback` needs its `vmap_method`, and refuses an ordered `io_callback`;
- `repr` of weakly typed arrays says so, and a number formats as Python's does;
- `random.key` makes typed keys.
"""

from __future__ import annotations

from fxad.core.semantics import semantics


def follow_jax() -> None:
    """Switch all of it on."""
    semantics.explicit_dtypes_win = False
    semantics.filled_arrays_are_strong = False
    semantics.known_indices_are_checked = False
    semantics.abs_is_flat_at_zero = False
    semantics.repr_shows_weak_types = True
    semantics.numbers_format_as_arrays = False
    semantics.callbacks_need_vmap_method = True
    semantics.keys_are_words = False
