"""How many threads to compute with: affinity, quotas of cgroups, CPUs that share a core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fxad.core import cgroup, cores


def _system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def _siblings(lists: dict[int, str]) -> dict[str, str]:
    top = "sys/devices/system/cpu/cpu"
    return {f"{top}{cpu}/topology/thread_siblings_list": text for cpu, text in lists.items()}


@pytest.fixture
def eight(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def test_two_cpus_of_a_core_are_one_thread(tmp_path, eight, monkeypatch) -> None:
    pairs = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    root = _system(tmp_path, _siblings(pairs))
    assert (cores.logical_cores(root), cores.default_threads(root)) == (8, 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4}, raising=False)
    assert (cores.logical_cores(root), cores.default_threads(root)) == (3, 2)


def test_ranges_of_siblings(tmp_path, eight) -> None:
    root = _system(tmp_path, _siblings({cpu: "0-3" if cpu < 4 else "4-7" for cpu in range(8)}))
    assert cores.default_threads(root) == 2


def test_a_system_that_says_nothing(tmp_path, eight) -> None:
    assert (cores.logical_cores(tmp_path), cores.default_threads(tmp_path)) == (8, 8)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 3),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "200000 100000"}, 2),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "50000 100000",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/m\n4:cpu,cpuacct:/job",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        ({"sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "garbage"}, 8),
    ],
)
def test_quotas(tmp_path, eight, files: dict[str, str], wanted: int) -> None:
    root = _system(tmp_path, files)
    assert (cores.logical_cores(root), cores.default_threads(root)) == (wanted, wanted)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, []),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, []),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/memory.max": "1000",
                "sys/fs/cgroup/a/memory.max": "2000",
            },
            [1000, 2000],
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/job",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000",
            },
            [3000],
        ),
        ({"sys/fs/cgroup/memory.max": "4000"}, [4000]),
    ],
)
def test_limits_of_memory(tmp_path, files: dict[str, str], wanted: list[int]) -> None:
    assert cgroup.memory_limits(_system(tmp_path, files)) == wanted


def test_this_machine() -> None:
    assert 1 <= cores.default_threads() <= cores.logical_cores()
    assert cores._known_default() == cores.default_threads()
