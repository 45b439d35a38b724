"""NUMA nodes: which of them memory lies on, and that Linux is told."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

import pytest

from fxad.backend.llvm.native import memory, nodes

SIZE = 1 << 23


def _system(root: Path, cpus: dict[int, str], memory: str | None) -> Path:
    folder = root / "sys/devices/system/node"
    files = {folder / f"node{node}" / "cpulist": text for node, text in cpus.items()}
    files[folder / "online"] = ",".join(map(str, cpus))
    if memory is not None:
        files[root / "proc/self/status"] = f"Name:\tpython\nMems_allowed_list:\t{memory}\nX:\t1"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("cpus", "memory", "found"),
    [
        ({0: "0-3", 1: "4-7"}, "0-1", {0, 1}),
        ({0: "0-3", 1: "4-7"}, None, {0, 1}),
        ({0: "0-3", 1: "4-7"}, "1", {1}),  # a cpuset's memory
        ({0: "0-7", 1: "8-15"}, "0-1", {0}),  # CPUs of the other one are not ours
        ({0: "0-3,8-11", 2: "4-7,12-15", 3: ""}, "0-3", {0, 2}),  # node 3 is memory alone
        ({}, "0", set()),
    ],
)
def test_nodes_with_cpus_and_memory_of_ours(tmp_path, monkeypatch, cpus, memory, found) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert nodes.memory_nodes(_system(tmp_path, cpus, memory)) == found


def test_one_node_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(nodes, "memory_nodes", lambda: frozenset([0]))
    nodes._nodes.cache_clear()
    try:
        assert not nodes.interleave(0, SIZE)
    finally:
        nodes._nodes.cache_clear()


@pytest.mark.parametrize("free", [True, False])
def test_a_policy_that_the_process_was_given_stays(monkeypatch, free: bool) -> None:
    monkeypatch.setattr(nodes, "memory_nodes", lambda: frozenset([0, 1]))
    monkeypatch.setattr(nodes, "_has_no_policy", lambda: free)
    nodes._nodes.cache_clear()
    try:
        assert nodes._nodes() == (frozenset([0, 1]) if free else frozenset())
    finally:
        nodes._nodes.cache_clear()


def _policy(address: int) -> str:
    """What Linux says of the mapping at an address."""
    maps = Path("/proc/self/numa_maps")
    if not maps.exists():
        pytest.skip("this system does not show memory policies")
    lines = [line.split() for line in maps.read_text().splitlines()]
    return next((words[1] for words in lines if int(words[0], 16) == address), "")


@pytest.mark.skipif(sys.platform != "linux", reason="a system call of Linux")
def test_linux_is_told(monkeypatch) -> None:
    """Node 0 alone, which every machine has, by the same call."""
    monkeypatch.setattr(nodes, "_nodes", lambda: frozenset([0]))
    pages = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if not nodes.interleave(address, SIZE):
        pytest.skip("memory policies are forbidden here")
    pages[0] = 1
    assert _policy(address) == "interleave:0"


def test_a_call_that_fails_is_no_error(monkeypatch) -> None:
    monkeypatch.setattr(nodes, "_nodes", lambda: frozenset([1023]))
    assert not nodes.interleave(1 << 12, SIZE)


def test_large_blocks_are_interleaved_before_use(monkeypatch) -> None:
    told = []
    monkeypatch.setattr(memory.nodes, "interleave", lambda *of: told.append(of))
    small, large = memory.Block(1 << 20), memory.Block(SIZE)
    assert told == [(large.address, SIZE)]
    assert small.size == 1 << 20
