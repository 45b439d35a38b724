"""What the bits of a result depend on besides the program, on this machine.

    bits_depend_on(target_of(config.isa))["bf16 products"]      # "pairs"

The orders and units of `ir/orders.py` for the target, and the libraries that compute something
themselves. Keys of the compile cache, checkpoints and `python -m fxad doctor` all ask here.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.core import system
from fxad.ir import orders


def bits_depend_on(target: Target) -> dict[str, str]:
    """By name; equal ones mean equal bits, with the same version of this library."""
    return orders.identity(target.isa, target.features, _libraries())


@functools.cache
def _libraries() -> dict[str, str]:
    return {
        "C library": system.c_library(),
        "LAPACK": f"{_lapack()} of NumPy {np.__version__}",
        "bf16 conversions": f"ml_dtypes {ml_dtypes.__version__}",
    }


def _lapack() -> str:
    """The library that NumPy's linear algebra calls."""
    found = np.show_config(mode="dicts")
    told = found.get("Build Dependencies", {}).get("lapack", {}) if found else {}
    return f"{told.get('name', 'unknown')} {told.get('version', '')}".strip()
