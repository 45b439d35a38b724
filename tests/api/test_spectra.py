"""fxad.scipy.signal's spectra and trends beside sums in NumPy, and SciPy and JAX (peers)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import signal
from fxad.scipy.signal.windows import window

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 100, 2))
Y = RANDOM.standard_normal((3, 90, 2))
WINDOWS = (
    "boxcar hann hamming blackman nuttall blackmanharris flattop bartlett cosine".split()
) + [("gaussian", 3.0), ("kaiser", 4.0)]
SPECTRA = [
    {
        "nperseg": 16,
        "scaling": scaling,
        "average": average,
        "return_onesided": half,
        "detrend": kind,
    }
    for scaling in ("density", "spectrum")
    for average in ("mean", "median")
    for half in (True, False)
    for kind in (False, "constant", "linear")
] + [{"nperseg": 16, "nfft": 21, "noverlap": 3, "fs": 3.0}]
TRANSFORMS = [
    {"nperseg": 16},
    {"nperseg": 17, "noverlap": 5, "nfft": 20},
    {"nperseg": 16, "boundary": None, "padded": False},
    {"nperseg": 16, "boundary": "odd", "fs": 8.0},
    {"nperseg": 16, "boundary": "even", "return_onesided": False},
    {"nperseg": 16, "boundary": "constant", "detrend": "linear"},
]


def close(ours, theirs, atol):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=atol, atol=atol)


def test_spectra_of_segments_are_sums():
    x, fs = X[0, :20, 0], 4.0
    weights = np.sin(np.pi * np.arange(8) / 8) ** 2
    waves = np.exp(-2j * np.pi * np.outer(np.arange(5), np.arange(8)) / 8)
    padded = np.concatenate([np.zeros(4), x, np.zeros(4)])
    segments = [padded[i : i + 8] * weights for i in range(0, 21, 4)]
    with fxad.enable_x64():
        frequencies, times, found = signal.stft(x, fs, nperseg=8)
        np.testing.assert_allclose(
            found, waves @ np.transpose(segments) / weights.sum(), atol=1e-12
        )
        np.testing.assert_allclose(frequencies, [0, 0.5, 1, 1.5, 2])
        np.testing.assert_allclose(times, np.arange(6) * 4 / fs)


def test_power_is_that_of_the_signal():
    tone = 3 * np.sin(2 * np.pi * 5 * np.arange(256) / 64)
    with fxad.enable_x64():
        frequencies, density = signal.welch(tone, 64.0, nperseg=64)
        assert frequencies[np.argmax(density)] == 5
        assert density.sum() * (frequencies[1] - frequencies[0]) == pytest.approx(4.5)
        _, power = signal.welch(tone, 64.0, nperseg=64, scaling="spectrum")
        assert power[5] == pytest.approx(4.5)
        _, both = signal.welch(tone, 64.0, nperseg=64, scaling="spectrum", return_onesided=False)
        assert both[5] == both[-5] == pytest.approx(2.25)


def test_welch_is_csd_with_itself():
    with fxad.enable_x64():
        one, two = signal.welch(X, nperseg=16, axis=1)[1], signal.csd(X, X, nperseg=16, axis=1)[1]
        assert one.shape == (3, 9, 2) and one.dtype == np.float64 and two.dtype == np.complex128
        np.testing.assert_allclose(two, one, atol=1e-14)
        assert signal.csd(X, None, nperseg=16, axis=1)[1].tolist() == one.tolist()


@pytest.mark.parametrize("call", [{}, {"noverlap": 9}, {"noverlap": 4, "nfft": 20}])
def test_a_signal_comes_back(call):
    with fxad.enable_x64():
        for x in (X, X + 1j * X[::-1]):
            half = {"input_onesided": False} if np.iscomplexobj(x) else {}
            two = {"return_onesided": False} if half else {}
            spectra = signal.stft(x, 2.0, nperseg=12, axis=1, **call, **two)[2]
            times, again = signal.istft(spectra, 2.0, nperseg=12, freq_axis=1, **call, **half)
            again = np.moveaxis(again, -1, 1)[:, : x.shape[1]]
            np.testing.assert_allclose(again, x, atol=1e-12)
            np.testing.assert_allclose(times[:3], [0, 0.5, 1])
            moved = np.moveaxis(spectra, -1, 0)
            back = signal.istft(moved, nperseg=12, freq_axis=2, time_axis=0, **call, **half)[1]
            np.testing.assert_allclose(np.moveaxis(back, 0, 1)[:, : x.shape[1]], x, atol=1e-12)


def test_derivatives():
    with fxad.enable_x64():
        x = X[0, :40, 0]
        fxad.check_grads(lambda x: signal.welch(x, nperseg=8, average="median")[1], (x,), order=1)
        fxad.check_grads(lambda x: signal.csd(x, x**2, nperseg=8)[1].real, (x,), order=2)
        spectra = signal.stft(x, nperseg=8)[2]
        fxad.check_grads(lambda r: signal.istft(r * spectra, nperseg=8)[1], (x[:11],), order=2)
        fxad.check_grads(lambda x: signal.detrend(x, bp=[10]), (x,), order=2)
        # The window is an argument like others, and so is the sampling rate.
        power = lambda w, fs: signal.welch(x, fs, w)[1]  # noqa: E731
        fxad.check_grads(power, (np.hanning(10), 2.0), order=1)


def test_trends_are_those_of_polyfit():
    x, at = X[0, :30, 0], np.arange(30)
    lines = [x[s] - np.polyval(np.polyfit(at[s], x[s], 1), at[s]) for s in np.split(at, [4, 17])]
    with fxad.enable_x64():
        np.testing.assert_allclose(signal.detrend(x, bp=[17, 4]), np.concatenate(lines), atol=1e-12)
        np.testing.assert_allclose(signal.detrend(3 * at + 1.0), np.zeros(30), atol=1e-12)
        means = X - X.mean(1, keepdims=True)
        np.testing.assert_allclose(signal.detrend(X, 1, "constant"), means, atol=1e-12)
        assert signal.detrend(np.array([5.0])).tolist() == [0]
    assert signal.detrend(np.arange(4)).dtype == np.float32


def test_windows_are_numpys():
    for name, wanted in [("hann", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman)]:
        np.testing.assert_allclose(window(name, 9), wanted(10)[:-1], atol=1e-15)
    assert window("boxcar", 3).tolist() == [1, 1, 1]
    assert all(window(name, 1).tolist() == [1] for name in WINDOWS)
    with pytest.raises(BadArgument, match="'kaiser' is none of bartlett, blackman"):
        window("kaiser", 8)


def test_functions_are_given_segments():
    shapes = []

    def halved(segments):
        shapes.append(segments.shape)
        return segments / 2

    plain = signal.welch(X, nperseg=20, axis=1, detrend=False)[1]
    quarter = signal.welch(X, nperseg=20, axis=1, detrend=halved)[1]
    assert shapes == [(3, 2, 9, 20)]
    np.testing.assert_allclose(4 * quarter, plain, rtol=1e-5)


def test_what_is_refused():
    x = X[0, :, 0]
    with pytest.raises(BadArgument, match="noverlap=8 must be less"):
        signal.stft(x, nperseg=8, noverlap=8)
    with pytest.raises(BadArgument, match="nfft=7 must not be less"):
        signal.welch(x, nperseg=8, nfft=7)
    with pytest.raises(BadArgument, match="boundary must be"):
        signal.stft(x, nperseg=8, boundary="wrap")
    with pytest.raises(BadArgument, match="scaling must be"):
        signal.csd(x, x, scaling="power")
    with pytest.raises(BadArgument, match="average must be"):
        signal.welch(x, nperseg=8, average="max")
    with pytest.raises(BadArgument, match="detrend must be"):
        signal.welch(x, detrend=2)
    with pytest.raises(BadArgument, match="type must be"):
        signal.detrend(x, type="cubic")
    with pytest.raises(BadArgument, match="different axes"):
        signal.istft(X, freq_axis=2)
    with pytest.raises(ShapeError, match="bp=101 leaves the axis"):
        signal.detrend(x, bp=101)
    with pytest.raises(ShapeError, match="vector of 8"):
        signal.welch(x, window=np.ones(9), nperseg=8)
    with pytest.raises(ShapeError, match="longer than the signal"):
        signal.welch(x[:5], window=np.ones(9))
    with pytest.warns(UserWarning, match="nperseg=256 is more than"):
        assert signal.stft(x)[0].shape == (51,)
    with pytest.warns(UserWarning, match="two-sided"):
        assert signal.welch(x + 1j)[0].shape == (100,)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:Input data is complex", "ignore:.*two-sided spectra")
def test_spectra_are_scipys():
    theirs = pytest.importorskip("scipy.signal")
    with fxad.enable_x64():
        for name in WINDOWS:
            np.testing.assert_allclose(window(name, 9), theirs.get_window(name, 9), atol=1e-14)
            np.testing.assert_allclose(window(name, 8), theirs.get_window(name, 8), atol=1e-14)
        for call in TRANSFORMS:
            close(signal.stft(X, axis=1, **call), theirs.stft(X, axis=1, **call), 1e-12)
        for call in SPECTRA:
            close(signal.csd(X, Y, axis=1, **call), theirs.csd(X, Y, axis=1, **call), 1e-12)
            for x in (X, X + 1j * X[::-1]):
                close(signal.welch(x, axis=1, **call), theirs.welch(x, axis=1, **call), 1e-12)
        for kind, bp in itertools.product(("linear", "constant"), (0, [10, 50], [1])):
            wanted = theirs.detrend(X, 1, kind, bp)
            np.testing.assert_allclose(signal.detrend(X, 1, kind, bp), wanted, atol=1e-12)
        z = theirs.stft(X, axis=1, nperseg=16, noverlap=11)[2]
        ours, wanted = (m.istft(z, freq_axis=1, noverlap=11)[1] for m in (signal, theirs))
        np.testing.assert_allclose(ours, wanted, atol=1e-12)


@pytest.mark.peers
def test_spectra_are_jaxs():
    theirs = pytest.importorskip("jax.scipy.signal")
    x, y = X.astype(np.float32), Y.astype(np.float32)
    for call in TRANSFORMS:
        close(signal.stft(x, axis=1, **call), theirs.stft(x, axis=1, **call), 2e-5)
    for call in SPECTRA:
        close(signal.csd(x, y, axis=1, **call), theirs.csd(x, y, axis=1, **call), 2e-5)
        close(signal.welch(x, axis=1, **call), theirs.welch(x, axis=1, **call), 2e-5)
    close(signal.welch(x, axis=1), theirs.welch(x, axis=1), 2e-5)  # one segment
    z = signal.stft(x[0, :, 0], nperseg=16)[2]
    close(signal.istft(z, 2.0), theirs.istft(np.asarray(z), 2.0), 2e-5)
