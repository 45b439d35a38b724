"""Windows by name, as SciPy's `get_window` has them: periodic, of float64 numbers.

window("hann", 4)                   # [0, 0.5, 1, 0.5]
window(("kaiser", 8.0), 256)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core.errors import BadArgument

# The terms of sums of cosines; signs alternate. Heinzel, Rüdiger, Schilling, "Spectrum and spectral
# density estimation by the discrete Fourier transform", 2002; Nuttall, "Some windows with very good
# sidelobe behavior", 1981.
_COSINES = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}


def window(named: str | tuple[Any, ...], size: int) -> np.ndarray:
    """The window [size] of a name, or of a name and its parameter. Raises BadArgument."""
    name, *parameters = (named,) if isinstance(named, str) else named
    if size == 1:
        return np.ones(1)
    at = np.arange(size)
    match name, parameters:
        case str(), [] if name in _COSINES:
            terms = enumerate(_COSINES[name])
            waves = [(-1) ** k * a * np.cos(2 * math.pi * k * at / size) for k, a in terms]
            return np.sum(waves, 0)
        case "bartlett", []:
            return np.bartlett(size + 1)[:-1]
        case "cosine", []:
            return np.sin(math.pi * (at + 0.5) / (size + 1))
        case "gaussian", [deviation]:
            return np.exp(-0.5 * ((at - size / 2) / deviation) ** 2)
        case "kaiser", [beta]:
            return np.kaiser(size + 1, beta)[:-1]
    raise BadArgument(
        f"window={named!r} is none of {', '.join(sorted([*_COSINES, 'bartlett', 'cosine']))}, "
        "('gaussian', deviation), ('kaiser', beta); give an array"
    )
