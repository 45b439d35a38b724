"""Every test of fxad_nn gets its own cache directory."""

import pytest


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FXAD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nn"
