"""Compile kernels and call them on flat arrays.

    compiled = compile_kernel(kernel, "cpu")
    compiled([x, y], [2.0])     # arrays as `stored(array)` gives them

Compiled code is cached by its source, so kernels of equal structure compile once.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from fxad.backend.numba import formats
from fxad.backend.numba.emit import Emitted, emit
from fxad.backend.numba.library import library, simulated
from fxad.core import dtypes
from fxad.core.source import defined
from fxad.ir.kernel import Kernel

_cache: dict[tuple[str, str], Callable[..., Any]] = {}
_lock = threading.Lock()


def stored(array: Any) -> np.ndarray:
    """A flat, contiguous, writable copy in the storage dtype."""
    flat = np.array(array, order="C", copy=True).reshape(-1)
    return flat.view(formats.storage(flat.dtype))


def restored(array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse of `stored`, without a copy."""
    return array.view(dtype).reshape(shape)


def scalar_argument(value: bool | int | float | complex, dtype: np.dtype) -> Any:
    """A kernel scalar as its carrier type, rounded to its dtype."""
    if dtypes.is_bool(dtype):
        return bool(value)
    return np.asarray(value).astype(dtype).astype(formats.carrier(dtype))[()]


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """A kernel for one target; call it with storage arrays and scalar values."""

    kernel: Kernel
    target: str
    emitted: Emitted
    function: Any

    def __call__(
        self, arrays: Sequence[Any], scalars: Sequence[bool | int | float | complex] = ()
    ) -> None:
        """Run on one array per buffer (device arrays for "cuda").

        Raises ValueError where their number differs from the kernel's.
        """
        kernel = self.kernel
        if len(arrays) != len(kernel.buffers) or len(scalars) != len(kernel.scalars):
            raise ValueError(
                f"kernel {kernel.name} takes {len(kernel.buffers)} arrays and "
                f"{len(kernel.scalars)} scalars, got {len(arrays)} and {len(scalars)}"
            )
        numbers = [
            scalar_argument(v, s.dtype) for v, s in zip(scalars, kernel.scalars, strict=True)
        ]
        if self.target == "cuda":
            self._launch([*arrays, *numbers])
            return
        scratch = [np.empty(size, dtype) for dtype, size in self.emitted.scratch]
        with np.errstate(all="ignore"):
            self.function(*arrays, *numbers, *scratch)

    def _launch(self, arguments: list[Any]) -> None:
        from numba import cuda

        scratch = [cuda.device_array(size, dtype) for dtype, size in self.emitted.scratch]
        self.function(*arguments, *scratch)


def python_function(source: str, target: str, variant: object = None) -> Callable[..., Any]:
    """The source's `kernel`, as Python sees it; tracebacks show its lines."""
    return defined(source, f"{target} kernel", library(target, variant))["kernel"]


def compile_kernel(kernel: Kernel, target: str) -> Compiled:
    """Compile for "python" (plain Python), "cpu" (numba) or "cuda" (numba-cuda)."""
    emitted = emit(kernel, target)
    key = (target, emitted.source)
    with _lock:
        if key not in _cache:
            _cache[key] = _decorate(python_function(emitted.source, target), emitted, target)
        return Compiled(kernel, target, emitted, _cache[key])


def _decorate(function: Callable[..., Any], emitted: Emitted, target: str) -> Callable[..., Any]:
    """The function compiled; for "cuda" with its launch, which the source decides, too."""
    if target == "python":
        return function
    if target == "cpu":
        import numba

        return numba.njit(error_model="numpy")(function)
    from numba import cuda

    kernel = cuda.jit(_quiet(function) if simulated() else function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a small launch: so is the user's array
        return kernel[emitted.blocks, emitted.threads]


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """For the simulator, whose threads do not inherit NumPy's error state.

    It looks for `cuda` in the kernel's globals, so the wrapper takes over those of the function.
    """

    def quiet(*arguments: Any) -> None:
        with np.errstate(all="ignore"):
            function(*arguments)

    return FunctionType(quiet.__code__, function.__globals__, "kernel", None, quiet.__closure__)
