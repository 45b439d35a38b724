"""Native code through llvmlite: text IR, schedules, emitters, thread pool and engine.

What writes or measures code is loaded when it is first asked for here: a program read from disk
needs none of it.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy import lazy as _lazy

if TYPE_CHECKING:
    from fxad.backend.llvm.ceilings import peak, unit_for
    from fxad.backend.llvm.contract.amx_blocking import rounds_factors
    from fxad.backend.llvm.contract.kernel import unpacks_factors
    from fxad.backend.llvm.doctor import diagnosis
    from fxad.backend.llvm.peaks import unit_of
    from fxad.backend.llvm.profiler import Profiler
    from fxad.backend.llvm.search import products, tune

__all__ = ["Profiler", "diagnosis", "peak", "products", "rounds_factors", "tune", "unit_of"]
__all__ += ["unit_for", "unpacks_factors"]

_HOMES = {
    "Profiler": "fxad.backend.llvm.profiler",
    "diagnosis": "fxad.backend.llvm.doctor",
    "peak": "fxad.backend.llvm.ceilings",
    "products": "fxad.backend.llvm.search",
    "rounds_factors": "fxad.backend.llvm.contract.amx_blocking",
    "tune": "fxad.backend.llvm.search",
    "unit_for": "fxad.backend.llvm.ceilings",
    "unit_of": "fxad.backend.llvm.peaks",
    "unpacks_factors": "fxad.backend.llvm.contract.kernel",
}
__getattr__, __dir__ = _lazy(globals(), _HOMES)
