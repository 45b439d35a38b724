"""Fixtures of the tests of what users import."""

from __future__ import annotations

import pytest

from fxad.core.config import config
from fxad.runtime import session


@pytest.fixture
def small_offload_memory():
    """So little memory that most values really go to the file."""
    with config.override(offload_memory=400_000):
        yield
    session.trim()
