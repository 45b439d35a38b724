"""How float32 products are computed: `jax.lax`'s names, and this thread's default.

>>> terms_of(DotAlgorithmPreset.BF16_BF16_F32_X3)
3
>>> with default_matmul_precision("BF16_BF16_F32_X6"):
...     default_terms()
6

The answer is a number of terms: `ops.matrices.product_by_parts` says of what. None is float32
itself, as all other names mean here.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from fxad.core.dtypes import numerics
from fxad.core.errors import BadArgument


class Precision(enum.Enum):
    """Accepted for ported code: each means the full precision of the operands' dtype.

    >>> jnp.dot(jnp.ones(3), jnp.ones(3), precision=fxad.lax.Precision.HIGHEST)
    Array(3., dtype=float32)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        return cls[_ALIASES[value]] if isinstance(value, str | None) and value in _ALIASES else None


_ALIASES: dict[str | None, str] = {
    **dict.fromkeys((None, "default", "fastest", "bfloat16"), "DEFAULT"),
    **dict.fromkeys(("high", "bfloat16_3x", "tensorfloat32"), "HIGH"),
    **dict.fromkeys(("highest", "float32"), "HIGHEST"),
}


class DotAlgorithmPreset(enum.Enum):
    """Ways to compute a product. BF16_BF16_F32_X3, _X6 and _X9 multiply float32 numbers by their
    bfloat16 parts; each other one means the full precision of the operands' dtype.

    >>> x = jnp.full((1, 1), 1.01)
    >>> fxad.lax.dot(x, x, precision=fxad.lax.DotAlgorithmPreset.BF16_BF16_F32_X3)
    Array([[1.0200841]], dtype=float32)
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15


_TERMS = {
    DotAlgorithmPreset.BF16_BF16_F32_X3: 3,
    DotAlgorithmPreset.BF16_BF16_F32_X6: 6,
    DotAlgorithmPreset.BF16_BF16_F32_X9: 9,
}
_WORDS = (
    "default", "fastest", "bfloat16", "high", "bfloat16_3x", "tensorfloat32", "highest", "float32",
)  # fmt: skip


def terms_of(precision: Any) -> int | None:
    """What a `precision` asks for: products by so many terms of parts, or None for full precision.

    A Precision, a DotAlgorithmPreset, the name of either as JAX spells it, or a pair of Precisions
    or their names. Raises BadArgument for anything else.
    """
    if isinstance(precision, DotAlgorithmPreset):
        return _TERMS.get(precision)
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return _TERMS.get(DotAlgorithmPreset[precision])
    pair = precision if isinstance(precision, tuple | list) else (precision, precision)
    if len(pair) == 2 and all(isinstance(p, Precision) or p in _WORDS for p in pair):
        return None
    raise BadArgument(
        f"precision: {precision!r} is none of lax.Precision ({', '.join(Precision.__members__)}), "
        f"lax.DotAlgorithmPreset ({', '.join(DotAlgorithmPreset.__members__)}), and the words "
        f"{', '.join(_WORDS)}"
    )


def default_terms() -> int | None:
    """`terms_of` of this thread's default. Part of every compiled function's cache key."""
    return numerics.terms


def set_default(precision: Any) -> None:
    """From now on products of this thread that are given no precision have this one."""
    numerics.set(terms=None if precision is None else terms_of(precision))


@contextlib.contextmanager
def default_matmul_precision(new_val: Any) -> Iterator[None]:
    """Inside, float32 products that are given no `precision` have this one.

    new_val: what `lax.dot_general` takes, or None for float32. Of this thread only; functions
    jitted before are traced anew. A derivative has the precision that its function was traced
    with. Products of other dtypes, and ops that hold products inside, such as attention, stay as
    they are. Raises BadArgument for an unknown one.

    >>> with default_matmul_precision("BF16_BF16_F32_X3"):
    ...     default_terms()
    3
    """
    before = numerics.terms
    set_default(new_val)
    try:
        yield
    finally:
        numerics.set(terms=before)
