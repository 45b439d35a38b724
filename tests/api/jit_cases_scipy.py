"""Calls of every function of fxad.image and of fxad.scipy's modules but `special` (see
jit_cases.py)."""

from __future__ import annotations

import numpy as np
from jit_cases import CUBE, X, Y, image, optimize, scipy_fft, signal

from fxad.scipy.optimize import minimize

scipy_fft.call("dct dctn idct idctn", X)

SIGNAL = np.cos(np.arange(24) ** 1.3).astype(np.float32)
SPECTRUM = (CUBE + 1j * CUBE[::-1]).astype(np.complex64)
signal.call("convolve correlate convolve2d correlate2d fftconvolve", X, Y)
signal.call("detrend", SIGNAL)
signal.call("stft welch", SIGNAL, nperseg=8)
signal.call("csd", SIGNAL, SIGNAL**2, nperseg=8)
signal.call("istft", SPECTRUM)

optimize.use(
    "minimize",
    lambda target: minimize(lambda x: ((x - target) ** 2).sum(), 0 * target, method="BFGS").x,
    X[0],
)

for method in "nearest linear lanczos3 cubic-pytorch area".split():
    image.call("resize", X, (5, 3), method)
image.call("resize", X, (5, 3), "cubic-pytorch", antialias=False)
MOVES = np.float32([0.7, 1.3]), np.float32([0.21, -0.43])
image.call("scale_and_translate", CUBE, (2, 4, 3), (1, 2), *MOVES, "cubic")
