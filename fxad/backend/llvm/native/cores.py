"""Which cores there are for threads: what the process may use, less what adds no arithmetic.

>>> default_threads() <= logical_cores()
True

- The affinity mask (`taskset`, `numactl --cpunodebind`, batch systems) says which CPUs.
- A quota of the process's cgroup, or of one around it, says how much time on them.
- CPUs that share a core (SMT) share its multiply-add units: one thread for each core is as fast
  in what computes, and two of them would halve each other's caches.

All NUMA nodes count, and large blocks of memory lie on all of them in turn (`nodes.py`). Threads
are not pinned: whoever is free claims the next piece, and another program may need a core. Where
nodes are far apart, one process per node (`numactl --cpunodebind=0 --membind=0`) serves better.
"""

from __future__ import annotations

from pathlib import Path

from fxad.core import cgroup
from fxad.core.system import allowed_cpus

_ROOT = Path("/")


def logical_cores(root: Path = _ROOT) -> int:
    """CPUs this process may run on at once: affinity and quota, at least 1."""
    return max(1, min([len(allowed_cpus()), *cgroup.core_quotas(root)]))


def default_threads(root: Path = _ROOT) -> int:
    """Threads to compute with: physical cores among the allowed CPUs, within the quota."""
    allowed = allowed_cpus()
    cores = {_siblings(cpu, root) & allowed for cpu in allowed}
    return max(1, min([len(cores), *cgroup.core_quotas(root)]))


def _siblings(cpu: int, root: Path) -> frozenset[int]:
    """The CPUs of a CPU's core; itself alone where the system does not say."""
    folder = root / "sys/devices/system/cpu" / f"cpu{cpu}" / "topology"
    return numbers(cgroup.text(folder / "thread_siblings_list")) | {cpu}


def numbers(text: str) -> frozenset[int]:
    """What a list in the kernel's spelling names: "0,4-7"."""
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdigit():
            found.update(range(int(low), int(high if high.isdigit() else low) + 1))
    return frozenset(found)
