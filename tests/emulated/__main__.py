"""The native half of the tests on processors that this machine is not, by emulation with QEMU.

    python tests/emulated                          # all machines, a representative part
    python tests/emulated aarch64 --all            # all tests of generated code
    python tests/emulated haswell -- -k attend -x  # what follows -- goes to pytest

aarch64: NEON. haswell: AVX2 without AVX-512. nehalem: 128-bit vectors without FMA. An instruction
that the processor lacks ends the test by a signal. Needs apt (Debian or Ubuntu) and the network the
first time; everything goes to one directory (--into, 1.2 GB), the system stays as it is. How long
it takes and what emulation cannot show is in docs/processors.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from userland import MACHINES, ROOT, Machine, emulator_version, install

HERE = Path(__file__).resolve().parent
# Every kind of kernel and the runtime below them; part.py takes a part of their cases.
PART = """
backend/llvm/test_attention_kernels.py backend/llvm/test_attention_segments.py
backend/llvm/test_compiling.py backend/llvm/test_complexes.py
backend/llvm/test_contract.py backend/llvm/test_contract_prefetch.py
backend/llvm/test_contract_epilogue.py backend/llvm/test_contract_packing.py
backend/llvm/test_contract_streaming.py backend/llvm/test_contract_gemv.py
backend/llvm/test_emit.py backend/llvm/test_emit_loops.py backend/llvm/test_emit_random.py
backend/llvm/test_epilogue.py backend/llvm/test_extremes.py backend/llvm/test_factors.py
backend/llvm/test_fused_map.py backend/llvm/test_integers.py backend/llvm/test_math.py
backend/llvm/test_orthogonal.py backend/llvm/test_pipeline.py
backend/llvm/test_runtime.py backend/llvm/test_sequence.py backend/llvm/test_sort.py
backend/llvm/test_systems.py backend/llvm/test_tapes.py backend/llvm/test_threads.py
backend/llvm/test_tiles.py backend/llvm/test_traffic.py backend/llvm/test_interleave.py
lower fuzz ops/test_backends.py
""".split()
ALL = """
backend/llvm lower fuzz ops plan rematerialization runtime api/test_jit.py api/test_autodiff.py
""".split()
# Left out, and why. A name without "::" is a whole file.
UNFIT = {
    "backend/llvm/test_leftovers.py::test_llvms_code_leaves_and_comes_back": (
        "QEMU does not say how much of a mapping is in memory"
    ),
    "backend/llvm/test_tapes.py::test_a_tape_that_cannot_grow_is_a_memory_error": (
        "QEMU does not pass a limit of memory on"
    ),
}


def main() -> int:
    """0 if every machine passed its tests."""
    given = _arguments()
    results = [_run(MACHINES[name], given) for name in given.machines or MACHINES]
    print(f"\n{datetime.date.today()}")
    for line, _ in results:
        print(line)
    return int(any(code for _, code in results))


def _arguments() -> argparse.Namespace:
    words, more = sys.argv[1:], []
    if "--" in words:
        words, more = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser("tests/emulated", description=__doc__.split("\n")[0])
    parser.add_argument("machines", nargs="*", metavar="machine", help=", ".join(MACHINES))
    parser.add_argument("--all", action="store_true", help="all tests of generated code")
    parser.add_argument("--tests", nargs="+", help="these files, relative to the repository")
    parser.add_argument("--jobs", default=str(os.cpu_count()), help="processes (all cores)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--into", type=Path, default=cache / "fxad-emulated", metavar="DIRECTORY")
    given = parser.parse_args(words)
    for name in given.machines:
        if name not in MACHINES:
            parser.error(f"no machine {name!r}; there are {', '.join(MACHINES)}")
    given.into, given.more = given.into.resolve(), more
    return given


def _run(machine: Machine, given: argparse.Namespace) -> tuple[str, int]:
    """One machine's result in a line, and pytest's exit code."""
    print(f"--- {machine.name} ({machine.model.partition(',')[0]})", flush=True)
    python = install(machine, given.into)
    chosen = given.tests or [f"tests/{name}" for name in (ALL if given.all else PART)]
    unfit = [f"--deselect=tests/{name}" for name in UNFIT]
    part = () if given.tests or given.all else ("part",)
    plugins = [word for name in ("patient", *machine.plugins, *part) for word in ("-p", name)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))),
        "PYTHONPYCACHEPREFIX": str(given.into / "bytecode"),
        "OPENBLAS_NUM_THREADS": "1",  # its other threads wait awake
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = [*plugins, "-p", "no:cacheprovider", "-n", given.jobs, "--junitxml", str(report)]
        command = [str(python), "-m", "pytest", *options, *unfit, *chosen, *given.more]
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode
        counts = _counts(report)
    qemu = emulator_version(machine, given.into)
    model = machine.model.partition(",")[0]
    return f"{machine.name}: {model} by QEMU {qemu}: {counts}", code


def _counts(report: Path) -> str:
    """What pytest's report counts; a process that dies may leave none."""
    if not report.exists():
        return "ended without a report"
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    tests, *others = (int(suite.get(n, 0)) for n in ("tests", "failures", "errors", "skipped"))
    minutes = float(suite.get("time", 0)) / 60
    failed = others[0] + others[1]
    passed = tests - sum(others)
    return f"{passed} passed, {failed} failed, {others[2]} skipped in {minutes:.0f} minutes"


if __name__ == "__main__":
    sys.exit(main())
