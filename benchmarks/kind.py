"""The kind of processor: what speed may depend on, without names, which lie.

>>> kind()
'amd-avx512-bf16-l1-32k-l2-1m'
"""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
_AVX512 = {"avx512f", "avx512vl", "avx512bw", "avx512dq"}


def kind(cpuinfo: Path = CPUINFO, caches: Path = CACHES) -> str:
    """Vendor, vector instructions, and sizes of first- and second-level data caches, as a slug.

    What a system does not tell is left out. Third-level sizes are not asked for: virtual machines
    show those of the host.
    """
    facts = _facts(cpuinfo)
    vendor = _VENDORS.get(facts.get("vendor_id", ""), platform.machine().lower())
    flags = set(f"{facts.get('flags', '')} {facts.get('Features', '')}".split())
    sizes = [f"l{level}-{size}" for level, size in sorted(_sizes(caches).items())]
    return "-".join([vendor, *_features(flags), *sizes])


def _facts(cpuinfo: Path) -> dict[str, str]:
    """The lines `name : value` of the first processor."""
    if not cpuinfo.exists():
        return {}
    first = cpuinfo.read_text().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _features(flags: set[str]) -> list[str]:
    if flags >= _AVX512:
        extras = {"bf16": "avx512_bf16", "amx": "amx_bf16"}
        return ["avx512", *(name for name, flag in extras.items() if flag in flags)]
    if flags >= {"avx2", "fma"}:
        return ["avx2"]
    return ["neon"] if "asimd" in flags else []


def _sizes(caches: Path) -> dict[int, str]:
    """Level -> size of the data or unified cache, such as "32k" or "1m"."""
    found = {}
    for folder in caches.glob("index*"):
        level, kind, size = ((folder / name).read_text().strip() for name in _FILES)
        if kind != "Instruction" and int(level) <= 2:
            kilobytes = int(size.removesuffix("K"))
            whole = kilobytes % 1024 == 0
            found[int(level)] = f"{kilobytes // 1024}m" if whole else f"{kilobytes}k"
    return found


_FILES = ("level", "type", "size")
