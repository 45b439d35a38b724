"""Whether this machine has what a target needs.

check_available("cuda")     # DeviceError: no NVIDIA GPU was found ...
"""

from __future__ import annotations

import importlib

from fxad.backend.numba.library import simulated
from fxad.core.errors import DeviceError


def check_available(target: str) -> None:
    """Raise DeviceError, which says what to install, unless kernels can run on a target."""
    if target == "python":
        return
    try:
        if target == "cpu":
            importlib.import_module("numba")
            return
        cuda = importlib.import_module("numba.cuda")
    except Exception as error:
        # Not ImportError alone: numba-cuda 0.30 reads names that NumPy 2.5 has no more.
        package = "numba" if target == "cpu" else "'fxad[cuda]'"
        raise DeviceError(
            f"kernels on {target!r} are compiled by numba, which cannot be imported "
            f"({type(error).__name__}: {error}); "
            f"try: pip install {package}"
        ) from error
    if not simulated() and not cuda.is_available():
        raise DeviceError(
            "no NVIDIA GPU was found that numba can use: on a machine with one install its driver "
            "and `pip install 'fxad[cuda]'`; without one NUMBA_ENABLE_CUDASIM=1 simulates it "
            "(slowly), and plain jit runs on the CPU"
        )
