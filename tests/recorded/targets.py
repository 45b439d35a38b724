"""The instruction sets that code is recorded for. None has to be this machine's.

    target("zen4") == Target("avx512", frozenset({"avx512_bf16", "bf16_pairs", "streams"}))

This is the only place that knows how a Target is made.
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import Target

_BF16 = frozenset({"avx512_bf16"})
_ZEN4 = _BF16 | {"bf16_pairs", "streams"}

# name -> (instruction set, features), see `fxad.backend.llvm.native.engine._extras`
_TARGETS: dict[str, tuple[str, frozenset[str]]] = {
    "avx512": ("avx512", frozenset()),
    "avx512-bf16": ("avx512", _BF16),
    "zen4": ("avx512", _ZEN4),
    "zen5": ("avx512", _ZEN4 | {"reads_ahead"}),
    "amx": ("avx512", _BF16 | {"amx_bf16"}),
    "amx-float32": ("avx512", _BF16 | {"amx_bf16", "amx_float32"}),  # FXAD_ISA=amx
    "avx2": ("avx2", frozenset()),
    "neon": ("neon", frozenset()),
    "generic": ("generic", frozenset()),
}
NAMES = tuple(_TARGETS)


def target(name: str) -> Target:
    """The Target of this name, with nothing measured."""
    isa, features = _TARGETS[name]
    return Target(isa, features)
