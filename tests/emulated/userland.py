"""A Python for another processor, without root and without touching the system.

    python = install(MACHINES["aarch64"], Path("scratch"))    # scratch/aarch64/bin/python

Debian's packages of QEMU and of Python (with the C library under it) are unpacked, not installed;
PyPI's wheels go into a virtual environment beside them. Its `python` is a script that starts Python
under QEMU: so do the processes that a test starts with `sys.executable`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

# QEMU's least version: 7.2 computes complex quotients and some functions on AVX2 wrongly; by
# 10.0.2, on a processor with AVX-512, a vector selected from another one and all ones may be all
# ones (https://github.com/llvm/llvm-project/issues/159610).
QEMU = (10, 0, 13)
RELEASE = "trixie"  # Debian's that has it, in programs that need no library
ROOT = Path(__file__).resolve().parents[2]
GLIBC = range(17, 35)  # wheels for these minor versions of glibc 2 run on Debian 12
PACKAGES = ("python3", "libstdc++6", "libgcc-s1", "libgomp1")


@dataclass(frozen=True)
class Machine:
    """A processor: QEMU's name of its architecture and of the model, Debian's and PyPI's names.

    plugins: of pytest, for what the emulator does differently from the processor.
    """

    name: str
    qemu: str
    model: str
    debian: str
    wheels: str
    plugins: tuple[str, ...] = ()


# QEMU warns of what it has not: these parts of a Haswell are of no use to a process.
_HASWELL = "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid"
_X86 = ("x86_64", "amd64", "x86_64")
MACHINES = {
    machine.name: machine
    for machine in (
        # The first 64-bit ARM: whatever came later is an illegal instruction.
        Machine("aarch64", "aarch64", "cortex-a72", "arm64", "aarch64"),
        # AVX2 and FMA without AVX-512.
        Machine("haswell", _X86[0], _HASWELL, *_X86[1:], plugins=("readable_guards",)),
        # SSE4.2 without AVX: what NumPy's wheels need at least (x86-64-v2).
        Machine("nehalem", _X86[0], "Nehalem", *_X86[1:]),
    )
}


def install(machine: Machine, scratch: Path) -> Path:
    """The machine's `python`, installed in `scratch` unless it is there already."""
    python = scratch / machine.name / "bin" / "python"
    if not python.exists():
        scratch.mkdir(parents=True, exist_ok=True)
        emulator = _emulator(machine, scratch)
        root = _userland(machine, scratch)
        interpreter = _interpreter(root)
        _wheels(machine, scratch, interpreter.name.removeprefix("python"))
        _environment(machine, python, emulator, root, interpreter)
    return python


def emulator_version(machine: Machine, scratch: Path) -> str:
    """What QEMU calls itself, as "10.0.2"."""
    return _version(_emulator(machine, scratch))


def _emulator(machine: Machine, scratch: Path) -> Path:
    """QEMU's program for one architecture: the system's, or unpacked from Debian's package."""
    name = f"qemu-{machine.qemu}"
    on_path = [Path(found) for end in ("", "-static") if (found := shutil.which(name + end))]
    folder = scratch / "qemu"
    unpacked = folder / "usr" / "bin" / name
    if not unpacked.exists() and not any(_is_new(path) for path in on_path):
        folder.mkdir(parents=True, exist_ok=True)
        _download_emulators(scratch)
        _unpack(folder, folder)
    for path in (*on_path, unpacked):
        if path.exists() and _is_new(path):
            return path
    raise SystemExit(
        f"no {name} of version {'.'.join(map(str, QEMU))} or newer (older ones compute wrongly): "
        f"install qemu-user, as in Debian's {RELEASE}, and try again"
    )


def _is_new(emulator: Path) -> bool:
    return _numbers(_version(emulator)) >= QEMU


def _numbers(version: str) -> tuple[int, ...]:
    """(10, 0, 13) of "1:10.0.13+ds-0"."""
    found = re.match(r"(?:\d+:)?([\d.]+)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def _version(emulator: Path) -> str:
    return _run(str(emulator), "--version").split("version ")[1].split()[0]


def _download_emulators(scratch: Path) -> None:
    """QEMU's programs for all architectures as a package in `scratch/qemu`. Where the newest that
    the system's sources have is too old, it is RELEASE's, from wherever the system asks."""
    folder = scratch / "qemu"
    known = _run("apt-cache", "policy", "qemu-user").split("Candidate: ")[1].split()[0]
    apt = ["apt-get"]
    if _numbers(known) < QEMU:
        mirror = _run("apt-get", "download", "--print-uris", "qemu-user").split("/pool/")[0]
        state = _apt_state(scratch / "apt-qemu")
        state["Dir::Etc::sourcelist"] = str(scratch / "apt-qemu" / "sources.list")
        state["Dir::Etc::sourceparts"] = "-"
        Path(state["Dir::Etc::sourcelist"]).write_text(
            f"deb {mirror.strip(chr(39))} {RELEASE} main\n"
        )
        apt = _apt(state)
        _run(*apt, "update")
    _run(*apt, "download", "qemu-user", folder=folder)


def _apt_state(folder: Path) -> dict[str, str]:
    """Options for an apt of its own, which believes that nothing is installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    return {
        "Dir::State": str(folder),
        "Dir::State::lists": str(folder / "lists"),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder / "cache"),
    }


def _apt(options: dict[str, str]) -> list[str]:
    return ["apt-get", *(word for k, v in options.items() for word in ("-o", f"{k}={v}"))]


def _userland(machine: Machine, scratch: Path) -> Path:
    """Python and its libraries from Debian's packages for the architecture, unpacked."""
    root, state = scratch / f"debian-{machine.debian}", scratch / f"apt-{machine.debian}"
    if root.exists():
        return root
    options = _apt_state(state)
    options |= {f"APT::{name}": machine.debian for name in ("Architecture", "Architectures")}
    apt = _apt(options)
    _run(*apt, "update")
    _run(*apt, "install", "-y", "--download-only", "--no-install-recommends", *PACKAGES)
    fresh = root.with_name(f"{root.name}.new")
    _unpack(state / "cache" / "archives", fresh)
    if not (fresh / "lib").exists():  # Debian 13: all under /usr
        for name in ("lib", "lib64"):
            (fresh / name).symlink_to(f"usr/{name}")
    return fresh.rename(root)


def _interpreter(root: Path) -> Path:
    """Debian's python3.N."""
    found = [p for p in (root / "usr" / "bin").glob("python3.*") if p.name[8:].isdigit()]
    if not found:
        raise SystemExit(f"no python3.N in {root / 'usr/bin'}; remove {root} and try again")
    return found[0]


def _wheels(machine: Machine, scratch: Path, version: str) -> None:
    """What the tests need, of the kinds of wheels that this machine's Python takes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["nn"], *extras["test"]]
    wanted = [name for name in wanted if not name.startswith("fxad[")]
    kinds = [f"manylinux_2_{n}_{machine.wheels}" for n in GLIBC]
    kinds.append(f"manylinux2014_{machine.wheels}")
    folder = scratch / machine.name / "lib" / f"python{version}" / "site-packages"
    options = ["--quiet", "--no-compile", "--only-binary=:all:", "--upgrade", "--target", folder]
    chosen = [f"--platform={kind}" for kind in kinds] + [f"--python-version={version}"]
    _run(sys.executable, "-m", "pip", "install", *map(str, options), *chosen, *wanted)


def _environment(
    machine: Machine, python: Path, emulator: Path, root: Path, interpreter: Path
) -> None:
    """A virtual environment whose interpreter starts under QEMU."""
    python.parent.mkdir(parents=True, exist_ok=True)
    configuration = python.parent.parent / "pyvenv.cfg"
    configuration.write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
    # -0: the name by which Python finds the environment, and which becomes `sys.executable`.
    command = f"{emulator} -cpu {machine.model} -L {root} -0 {python} {interpreter}"
    python.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    python.chmod(0o755)


def _unpack(folder: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for package in sorted(folder.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(into))


def _run(*command: str, folder: Path | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout
