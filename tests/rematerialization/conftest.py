"""Fixtures of the tests of plans."""

from __future__ import annotations

import pytest

from fxad.runtime import session


@pytest.fixture
def no_idle_session():
    """Memory is measured: none is held by an idle session, of this test or of one before."""
    session.trim()
    yield
    session.trim()
