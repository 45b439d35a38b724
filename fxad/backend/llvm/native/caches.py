"""Sizes of the data caches that belong to one core.

>>> own_caches()       # bytes of the first level and of the second, 0 where the system does not say
(32768, 1048576)

Third levels are left out: a virtual machine reports its host's, or many times that.
"""

from __future__ import annotations

from pathlib import Path

from fxad.core import cgroup

_ROOT = Path("/")
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def own_caches(root: Path = _ROOT) -> tuple[int, int]:
    """(first level, second level) of the first CPU, in bytes."""
    found = {1: 0, 2: 0}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = (cgroup.text(folder / name).strip() for name in ("level", "type"))
        if level in ("1", "2") and kind in ("Data", "Unified"):
            found[int(level)] = _size(cgroup.text(folder / "size").strip())
    return found[1], found[2]


def _size(text: str) -> int:
    """Bytes of the kernel's "48K"; 0 for anything else."""
    number, unit = text[:-1], text[-1:]
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0
