"""Every test runs with the checker on, and none uses the user's cache of compiled programs."""

from __future__ import annotations

import os

os.environ["FXAD_CACHE"] = "0"

import pytest

from fxad.core.config import config


@pytest.fixture(autouse=True)
def _checker_on():
    with config.override(check=True):
        yield
