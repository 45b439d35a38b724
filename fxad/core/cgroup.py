"""Limits that Linux control groups put on this process.

>>> all(value > 0 for value in memory_limits())
True
"""

from __future__ import annotations

import math
from pathlib import Path

_ROOT = Path("/")


def memory_limits(root: Path = _ROOT) -> list[int]:
    """Bytes that the groups around this process may use, of those that limit them."""
    texts = [text(g / name) for g in _groups("memory", root) for name in _MEMORY]
    return [int(t) for t in texts if t.isdigit()]


_MEMORY = ("memory.max", "memory.limit_in_bytes")


def core_quotas(root: Path = _ROOT) -> list[int]:
    """Whole cores, rounded up, whose time the groups around this process may use."""
    return [quota for group in _groups("cpu", root) if (quota := _quota(group)) is not None]


def _quota(group: Path) -> int | None:
    quota, _, period = text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if not (quota.isdigit() and period.isdigit() and int(period)):  # "max", -1: unlimited
        return None
    return max(1, math.ceil(int(quota) / int(period)))


def _groups(controller: str, root: Path) -> list[Path]:
    """Folders of the groups that hold this process, the own one first (v2, or v1's controller)."""
    folders = []
    mounted = root / "sys/fs/cgroup"
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            top = mounted / (controller if controllers else "")
            own = top / path.lstrip("/")
            folders += [own, *(p for p in own.parents if p.is_relative_to(top))]
    # In a container the path may be the host's, while the own group is what is mounted.
    return [*folders, mounted, mounted / controller]


def text(path: Path) -> str:
    """What a file of the kernel says; nothing if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
