"""The kinds of processors that code is recorded for. None has to be this machine's.

    target("zen5").tuning.name == "Zen 5"

This is the only place that knows how a Target is made: as `native.engine.host_target` makes it on
such a processor, where nothing was measured beyond the table of kinds.
"""

from __future__ import annotations

import functools

from fxad.backend.llvm.base.kinds import Kind, capabilities, known, safe
from fxad.backend.llvm.base.schedule import Target

_L1, _L2 = 48 << 10, 2 << 20
_XEON = Kind("intel", "avx512", ("bf16", "amx"), _L1, _L2)

_KINDS = {
    "avx512": Kind("other", "avx512"),
    "avx512-bf16": Kind("other", "avx512", ("bf16",)),
    "zen4": Kind("amd", "avx512", ("bf16",), 32 << 10, 1 << 20),
    "zen5": Kind("amd", "avx512", ("bf16", "vp2intersect"), _L1, 1 << 20),
    "amx": _XEON,
    "amx-float32": _XEON,  # with FXAD_ISA=amx
    "avx2": Kind("other", "avx2"),
    "neon": Kind("other", "neon"),
    "generic": Kind("other", "generic"),
}
_ASKED = {"amx-float32": frozenset({"amx_float32"})}
NAMES = tuple(_KINDS)


@functools.cache
def target(name: str) -> Target:
    """The Target of this name."""
    kind = _KINDS[name]
    features = capabilities(kind, tiles=True) | _ASKED.get(name, frozenset())
    return Target(kind.isa, features, tuning=known(kind) or safe(kind))
