"""How many threads compiled code uses. Results do not depend on it, bit for bit."""

from __future__ import annotations

from fxad.compiler import native


def set_num_threads(count: int) -> None:
    """Use `count` threads in compiled functions of this process (at least 1)."""
    native().set_threads(count)


def get_num_threads() -> int:
    """Threads that compiled functions use: by default the cores this process may run on."""
    return native().threads
