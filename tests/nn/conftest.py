"""Every test of fxad_nn gets its own cache directory, and a text where it asks for one."""

import pytest


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FXAD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nn"


@pytest.fixture
def text(tmp_path):
    """A file with a text that a tiny model learns quickly."""
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 60, "utf-8")
    return path
