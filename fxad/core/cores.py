"""How many threads compute: those that were asked for, or one for each core that the process may
use, less what adds no arithmetic.

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

import contextvars
import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fxad.core import cgroup, system
from fxad.core.config import config
from fxad.core.system import allowed_cpus

_ROOT = Path("/")
Result = TypeVar("Result")
_threads: int | None = None


def get_num_threads() -> int:
    """Threads that compiled code runs on (default: FXAD_NUM_THREADS, or one per core)."""
    return _threads or config.num_threads or _known_default()


@functools.cache
def _known_default() -> int:
    return default_threads()


def set_num_threads(count: int) -> None:
    """Run compiled code on `count` threads from now on. Results do not depend on it.

    Raises ValueError unless 1 <= count <= 1024, TypeError unless it is an int.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"set_num_threads expects an int, got {type(count).__name__}")
    if not 1 <= count <= 1024:
        raise ValueError(f"set_num_threads expects 1 <= count <= 1024, got {count}")
    global _threads
    _threads = count


system.at_fork(child=_known_default.cache_clear)


def at_once(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """What jobs return that let go of Python's lock: the first runs here, the others in a thread
    each. Raises what one of them raised, when all have ended; Ctrl-C does not wait for them."""
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    contexts = [contextvars.copy_context() for _ in jobs]  # NumPy keeps its modes of errors there

    def run(number: int) -> None:
        try:
            results[number] = contexts[number].run(jobs[number])
        except BaseException as error:
            errors.append(error)

    started = []
    for number in range(1, len(jobs)):
        thread = threading.Thread(target=run, args=(number,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            run(number)
        else:
            started.append(thread)
    run(0)
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(jobs))]


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
