"""Large blocks of memory lie on all NUMA nodes that compute, page by page in turn.

    interleave(address, size)    # before any page is touched

Linux puts a page on the node of the thread that touches it first, while kernels are claimed piece
by piece by whichever thread is free: the next reader is often on another node, and what one thread
wrote (parameters, a batch) would be served by one node's memory alone. In turn over the nodes, all
of them serve all threads. Nothing is done where there is one node, or where the process was given
a memory policy of its own (`numactl`).
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from fxad.core import cgroup, cores, system

_ROOT = Path("/")
_MBIND, _GET_MEMPOLICY = {"x86_64": 237, "aarch64": 235}, {"x86_64": 239, "aarch64": 236}
_DEFAULT, _INTERLEAVE = 0, 3  # memory policies of linux/mempolicy.h
_MOST = 1024  # nodes that a Linux kernel can be built for


def memory_nodes(root: Path = _ROOT) -> frozenset[int]:
    """Nodes with CPUs and memory for this process: none where the system does not say."""
    folder = root / "sys/devices/system/node"
    allowed = system.allowed_cpus()
    near = {
        node
        for node in cores.numbers(cgroup.text(folder / "online"))
        if allowed & cores.numbers(cgroup.text(folder / f"node{node}" / "cpulist"))
    }
    status = cgroup.text(root / "proc/self/status").splitlines()
    memory = [line.partition(":")[2] for line in status if line.startswith("Mems_allowed_list:")]
    return frozenset(near & cores.numbers(memory[0].strip()) if memory else near)


def interleave(address: int, size: int) -> bool:
    """Put the pages that are touched from now on in turn on `memory_nodes()`; whether that was
    done. address: of a page."""
    nodes = _nodes()
    return bool(nodes) and _bind(address, size, nodes)


@functools.cache
def _nodes() -> frozenset[int]:
    """The nodes to lie on; none where pages had better stay where they are."""
    nodes = memory_nodes()
    return nodes if len(nodes) > 1 and _has_no_policy() else frozenset()


def _has_no_policy() -> bool:
    mode, none = ctypes.c_int(-1), ctypes.c_ulong(0)
    failed = system.linux_call(_GET_MEMPOLICY, ctypes.byref(mode), None, none, None, none)
    return failed == 0 and mode.value == _DEFAULT


def _bind(address: int, size: int, nodes: frozenset[int]) -> bool:
    """Containers may forbid it, which costs nothing but speed."""
    words = (ctypes.c_uint64 * (_MOST // 64))()
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    start, length, most = ctypes.c_void_p(address), ctypes.c_ulong(size), ctypes.c_ulong(_MOST)
    return system.linux_call(_MBIND, start, length, _INTERLEAVE, words, most, 0) == 0
