"""The names that emitted source may use, per target.

    exec(source, dict(library("cpu")))

python: the functions as they are. cpu, cuda: the same functions compiled by numba, calling that
target's elementary functions. Under CUDA's simulator (NUMBA_ENABLE_CUDASIM=1) kernels are Python,
so the "python" functions serve.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from fxad.backend.numba import elementary, narrow, scalar
from fxad.backend.numba.prims import CALLS, COMPLEX_CALLS
from fxad.core import dtypes

_VIEWS: tuple[Any, ...] = (elementary.bits32, elementary.float32) + (
    elementary.bits64,
    elementary.float64,
)


def simulated() -> bool:
    """Whether numba's CUDA is its simulator."""
    from numba.core import config

    return bool(getattr(config, "ENABLE_CUDASIM", False))


@cache
def library(target: str, variant: object = None) -> dict[str, Any]:
    """Globals for source emitted for "python", "cpu" or "cuda"; do not modify.

    A `variant` has its own compiled functions (PTX for one compute capability).
    """
    names: dict[str, Any] = {
        dtypes.short_name(d): d.type for d in dtypes.all_dtypes if d.type.__module__ == "numpy"
    }
    names.update(bool=bool, np=np, inf=math.inf, nan=math.nan)
    if target == "python":
        return _python(names)
    if target == "cpu":
        return _cpu(names)
    if target == "cuda":
        return _cuda(names)
    raise ValueError(f"unknown numba target {target!r}; try 'python', 'cpu' or 'cuda'")


def _python(names: dict[str, Any]) -> dict[str, Any]:
    for module in (elementary, scalar, narrow):
        names.update((k, v) for k, v in vars(module).items() if callable(v))
    return names


def _compiled(names: dict[str, Any], jit: Callable[..., Any]) -> dict[str, Any]:
    """Add the target's own math and our functions, compiled, calling each other by `names`."""
    names.update((name, getattr(math, name)) for name in (*CALLS, "atan2", "copysign"))
    names.update((f"c{name}", getattr(cmath, name)) for name in COMPLEX_CALLS)
    names["power"] = math.pow
    for function in (*_VIEWS, *_functions(scalar), *_functions(narrow)):
        bound = FunctionType(function.__code__, names, function.__name__)
        names[function.__name__] = jit(bound)
    return names


def _functions(module: ModuleType) -> list[FunctionType]:
    """The functions that a module defines itself."""
    found = (v for v in vars(module).values() if isinstance(v, FunctionType))
    return [f for f in found if f.__module__ == module.__name__]


def _cpu(names: dict[str, Any]) -> dict[str, Any]:
    import numba
    from numba.extending import intrinsic

    @intrinsic
    def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return a(a, a, a), generate

    def product(a: Any, b: Any) -> Any:
        return a * b

    jit = numba.njit(error_model="numpy")
    names.update(fma=fma, product32=jit(product), fmod=np.fmod)
    names["product64"] = names["product32"]
    return _compiled(names, jit)


def _cuda(names: dict[str, Any]) -> dict[str, Any]:
    from numba import cuda

    names["cuda"] = cuda
    if simulated():
        return _python(names)
    from numba.cuda import libdevice

    def fma(a: Any, b: Any, c: Any) -> Any:
        return cuda.fma(a, b, c)  # type: ignore[call-arg]  # known to numba as an attribute

    jit = cuda.jit(device=True)
    names.update(fma=jit(fma), fmod=math.fmod)
    # NVVM contracts a * b + c by itself; products with a stated rounding stay whole.
    names.update(product32=libdevice.fmul_rn, product64=libdevice.dmul_rn)
    return _compiled(names, jit)
