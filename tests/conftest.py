"""Every test runs with the checker on."""

from __future__ import annotations

import pytest

from fxad.core.config import config


@pytest.fixture(autouse=True)
def _checker_on():
    with config.override(check=True):
        yield
