"""A plugin of pytest for slow processors: processes that tests start may take longer.

Emulators can also be stopped for a while, which leaves the other processors' time to others.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

LONGER = 20


def _patient(method: Callable[..., Any]) -> Callable[..., Any]:
    def patient(*args: Any, timeout: float | None = None, **others: Any) -> Any:
        return method(*args, timeout=timeout and LONGER * timeout, **others)

    return patient


for name in ("communicate", "wait"):
    setattr(subprocess.Popen, name, _patient(getattr(subprocess.Popen, name)))
