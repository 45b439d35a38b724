"""`fxad.scipy.signal`: convolutions and correlations, spectra of signals, trends.

convolve(image, kernel, mode="same")        # any number of axes
frequencies, density = welch(signal, fs=8000.0, nperseg=256)
"""

from fxad.scipy.signal.convolutions import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    fftconvolve,
)
from fxad.scipy.signal.spectra import csd, istft, stft, welch
from fxad.scipy.signal.trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]
