"""Every test runs with the checker on, and none uses the user's cache of compiled programs."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter

import pytest

from fxad.core.config import config

os.environ["FXAD_CACHE"] = os.environ["FXAD_CALIBRATE"] = "0"  # of processes that tests start
config.cache = config.calibrate = False  # pytest has imported us for the warnings it filters


def pytest_configure() -> None:
    """Ctrl-C is what tests send, here and in processes they start; a shell's background jobs
    ignore it, which would let such a test wait for ever. So do hangups under nohup."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A run of the whole suite leaves out the slow tests; `.ci/run` does them too.

    With `-n`, one process does all tests of a file, which share what they compile; files in the
    order of `pytest_collection_modifyitems`."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and not (config.option.markexpr or config.option.keyword):
        config.option.markexpr = "not slow"
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with few tests first: theirs are the long ones, and no process should begin one when
    the others have nothing left to do."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (sizes[item.path], item.path))


@pytest.fixture(autouse=True, scope="module")
def small_heap():
    """Collections go through what a file's tests make, not through what a thousand tests before
    left in memory: 240 of 1,900 seconds of the suite were such collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _checker_on():
    with config.override(check=True):
        yield
