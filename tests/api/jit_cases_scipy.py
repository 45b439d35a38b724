"""Calls of every function of fxad.scipy's modules but `special` (see jit_cases.py)."""

from __future__ import annotations

import numpy as np
from jit_cases import CUBE, X, Y, optimize, scipy_fft, signal

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
