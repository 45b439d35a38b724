"""Counting elements that are not zero is NumPy's, however it is reached."""

import numpy as np
import pytest

from fxad.core.counting import count_nonzero

NAN = float("nan")


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, -0.0, NAN, 1.0, np.inf], np.float32),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.zeros((0, 3)),
        np.array(True),
        np.float64(2.0) == np.float64(2.0),
        np.float32(0.0),
    ],
)
def test_counts_as_numpy_does(values):
    assert count_nonzero(values) == np.count_nonzero(values)
