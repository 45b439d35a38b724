"""The directory of compiled code: who may have written what is read, and what may be deleted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fxad.backend.llvm.native import entries, folder
from fxad.backend.llvm.native.folder import NotPrivate, private
from fxad.core.config import config
from fxad.core.errors import CacheWarning
from fxad_nn.files import cache_directory

NAME, BODY = "a" * 64, b"machine code"
ANOTHER = 54321  # a user

posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes of POSIX")


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "_warned", set())
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def entry(cached):
    """The file of an entry that can be read."""
    entries.write(NAME, BODY)
    assert entries.read(NAME) == BODY
    return cached / f"{NAME}.fxad"


@pytest.fixture
def given_away(monkeypatch):
    """Give a file or directory to another user; to everybody else's eyes, where only root may."""
    given = set()
    real = {name: getattr(os, name) for name in ("stat", "lstat", "fstat")}

    def give(path: Path) -> None:
        found = real["lstat"](path)
        if os.geteuid() == 0:
            os.chown(path, ANOTHER, -1, follow_symlinks=False)
        else:
            given.add((found.st_dev, found.st_ino))

    def seen(name):
        def stat(*args, **kwargs):
            found = real[name](*args, **kwargs)
            if (found.st_dev, found.st_ino) not in given:
                return found
            return os.stat_result([*found[:4], ANOTHER, *found[5:]])

        return stat

    for name in real:
        monkeypatch.setattr(os, name, seen(name))
    return give


def refused(saying: str) -> None:
    """An entry is there and is not read, with a warning; nothing is written either."""
    entries._warned.clear()
    with pytest.warns(CacheWarning, match=saying):
        assert entries.read(NAME) is None


# ---------------------------------------------------------------- who may have written


@posix
def test_an_entry_of_another_user_is_refused(entry, given_away):
    given_away(entry)
    refused(r"a\.fxad belongs to another user")
    entries.write(NAME, BODY)  # replaces it
    assert entries.read(NAME) == BODY
    assert entry.stat().st_uid == os.geteuid()


@posix
def test_an_entry_that_others_may_write_is_refused(entry):
    entry.chmod(0o660)
    refused(r"others may write to .*a\.fxad")


@posix
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_is_refused(entry, tmp_path, kind):
    real = entry.rename(tmp_path / "real")
    make = {"link": lambda: entry.symlink_to(real), "pipe": lambda: os.mkfifo(entry, 0o600)}
    make.get(kind, entry.mkdir)()
    refused("is a link" if kind == "link" else "is not a file")


@posix
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_directories_on_the_way_are_private(tmp_path, given_away, levels):
    where = tmp_path / "a" / "b" / "c"
    with config.override(cache_dir=where):
        entries.write(NAME, BODY)
        at = [where, *where.parents][levels]
        at.chmod(0o770)
        refused(f"others may write to {at}\\.")
        at.chmod(0o1777)  # as /tmp; but what is in the cache may not be added to by others
        if levels:
            assert entries.read(NAME) == BODY
        else:
            refused("others may write")
        at.chmod(0o755)
        assert entries.read(NAME) == BODY
        given_away(at)
        refused(f"{at} belongs to another user")
        with pytest.raises(NotPrivate), private(where, make=True):
            pass


@posix
def test_what_is_made_is_for_this_user_alone(tmp_path):
    before = os.umask(0o002)
    try:
        with private(tmp_path / "a" / "b", make=True) as made:
            made.write("name", b"")
    finally:
        os.umask(before)
    for part in ("a", "a/b"):
        assert (tmp_path / part).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/b/name").stat().st_mode & 0o777 == 0o600


@posix
def test_fxad_nn_may_make_the_directory(cached, monkeypatch):
    """As under Ubuntu's umask, where groups may write what a program makes."""
    monkeypatch.setenv("FXAD_CACHE_DIR", str(cached))
    before = os.umask(0o002)
    try:
        cache_directory().mkdir(parents=True)
    finally:
        os.umask(before)
    entries.write(NAME, BODY)
    assert entries.read(NAME) == BODY
    assert (cached / entries.TAG).exists()


@posix
def test_links_on_the_way_are_followed_where_others_cannot_turn_them(
    entry, cached, tmp_path, given_away
):
    for target in (cached, Path("cache"), Path("..") / tmp_path.name / "cache"):
        link = tmp_path / "link"
        link.symlink_to(target)
        with config.override(cache_dir=link):
            assert entries.read(NAME) == BODY
        with config.override(cache_dir=link / ".." / "cache"):
            assert entries.read(NAME) == BODY
        link.unlink()
    link.symlink_to("link")
    with config.override(cache_dir=link):
        assert entries.read(NAME) is None  # round and round
    link.unlink()
    link.symlink_to(cached)
    given_away(link)  # in a sticky directory its owner may turn it
    with config.override(cache_dir=link):
        refused("link belongs to another user")


@posix
@pytest.mark.parametrize("after", ["stat", "open"])
def test_a_directory_that_is_swapped_gives_nothing(entry, cached, tmp_path, monkeypatch, after):
    """Whatever is renamed between two steps: what is read was judged."""
    evil = tmp_path / "evil"
    cached.rename(evil)
    evil.chmod(0o777)
    cached.mkdir(0o700)
    if after == "stat":  # what is read first is not what is judged then
        cached.rmdir()
        evil.rename(cached)
        evil.mkdir(0o700)
    real, turned = getattr(os, after), []

    def swapping(path, *args, **kwargs):
        result = real(path, *args, **kwargs) if after == "open" else None
        if not turned and os.fspath(path).endswith("cache"):
            turned.append(cached.rename(tmp_path / "away"))
            evil.rename(cached)
        return real(path, *args, **kwargs) if result is None else result

    for name in {after, "l" + after} & {"stat", "lstat", "open"}:
        monkeypatch.setattr(os, name, swapping)
    assert entries.read(NAME) is None
    assert turned


@posix
def test_a_swapped_directory_is_not_written_to(entry, cached, tmp_path, monkeypatch):
    real, turned = os.open, []

    def swapping(path, *args, **kwargs):
        if not turned and "fxad-" in os.fspath(path):
            turned.append(cached.rename(tmp_path / "away"))
            cached.mkdir()
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swapping)
    entries.write("b" * 64, BODY)
    assert turned and not list(cached.iterdir())
    assert (tmp_path / "away" / f"{'b' * 64}.fxad").exists()


def test_an_unknown_user_has_a_directory(monkeypatch, tmp_path):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with config.override(cache_dir=None):
        assert entries.directory().name == f"fxad-{os.geteuid()}"


# ---------------------------------------------------------------- other platforms


@posix
def test_without_flags_of_linux_alone(entry, monkeypatch):
    """macOS opens a directory on the way as for reading."""
    monkeypatch.setattr(folder, "_PASS", os.O_RDONLY)
    assert entries.read(NAME) == BODY
    entry.parent.chmod(0o777)
    refused("others may write")


@pytest.fixture
def windows(monkeypatch):
    """No owners, no modes, no descriptors of directories."""
    monkeypatch.setattr(folder, "DESCRIPTORS", False)
    monkeypatch.setitem(sys.modules, "fcntl", None)


def test_files_by_path(windows, cached):
    entries.write(NAME, BODY)
    entries.write(NAME, BODY + b"2")
    assert entries.read(NAME) == BODY + b"2"
    assert entries.read("b" * 64) is None
    with entries.locked("table"):
        assert (cached / "table.lock").exists()
    stale = left_behind(cached)
    entries.write("b" * 64, BODY)
    assert not stale.exists()
    assert not list(cached.glob("*.tmp"))


# ---------------------------------------------------------------- what is deleted


def left_behind(where: Path) -> Path:
    """What a process that was killed while it wrote left, hours ago."""
    return old(where / f".fxad-{'0' * 16}.tmp")


def old(path: Path) -> Path:
    path.write_bytes(b"123")
    os.utime(path, (time.time() - 7200,) * 2)
    return path


def test_files_of_the_user_are_never_deleted(cached, monkeypatch):
    """A directory with other files, and one of ours that others came to."""
    monkeypatch.setattr(entries, "BOUND", 0)
    cached.mkdir()
    names = ["draft.tmp", "c" * 64, "0" * 64, "notes", "tiles.json.lock"]
    files = [old(cached / name) for name in names]
    with pytest.warns(CacheWarning, match="holds other files: set FXAD_CACHE_DIR"):
        entries.write(NAME, BODY)
    assert all(path.read_bytes() == b"123" for path in files)
    assert entries.read(NAME) == BODY
    assert not (cached / entries.TAG).exists()  # or backups would pass over the user's files
    with config.override(cache_dir=cached / "ours"):
        entries.write(NAME, BODY)
        files = [old(cached / "ours" / name) for name in names]
        stale = left_behind(cached / "ours")
        entries.write("b" * 64, BODY)
        assert all(path.read_bytes() == b"123" for path in files)
        assert not stale.exists()
        assert entries.read(NAME) is None


def test_the_tag_of_another_program_is_not_ours(cached, monkeypatch):
    monkeypatch.setattr(entries, "BOUND", 0)
    cached.mkdir()
    other = b"Signature: 8a477f597d28d172789f06886806bc55\n# This file was made by another.\n"
    (cached / entries.TAG).write_bytes(other)
    stale = left_behind(cached)
    with pytest.warns(CacheWarning, match="holds other files"):
        entries.write(NAME, BODY)
    assert stale.exists()
    assert entries.read(NAME) == BODY
    assert (cached / entries.TAG).read_bytes() == other


def test_directories_with_our_names_are_left_alone(cached):
    entries.write(NAME, BODY)
    (cached / f"{'c' * 64}.fxad").mkdir()
    with config.override(cache_dir=cached):
        entries.write("b" * 64, BODY)
    assert (cached / f"{'c' * 64}.fxad").is_dir()


@pytest.mark.parametrize("step", ["open", "replace"])
def test_a_full_disk_leaves_nothing_behind(entry, cached, monkeypatch, step):
    real = getattr(os, step)

    def full(path, *args, **kwargs):
        if "fxad-" in os.fspath(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *args, **kwargs)

    before = set(cached.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.warns(CacheWarning, match="cannot write .* No space left"):
            entries.write(NAME, b"newer")
    assert set(cached.iterdir()) == before
    assert entries.read(NAME) == BODY


KILLED = """
import os, signal
from fxad.backend.llvm.native import entries
os.replace = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
entries.write("a" * 64, b"machine code")
"""


@posix
def test_a_killed_writer_leaves_no_entry(cached):
    cached.mkdir()
    (cached / entries.TAG).write_bytes(entries.TAG_TEXT)
    environment = {**os.environ, "FXAD_CACHE": "1", "FXAD_CACHE_DIR": str(cached)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, timeout=60)
    assert done.returncode == -9
    (left,) = set(cached.iterdir()) - {cached / entries.TAG}
    assert folder.TEMPORARY.fullmatch(left.name)
    assert entries.read(NAME) is None
    os.utime(left, (time.time() - 7200,) * 2)
    entries.write(NAME, BODY)
    assert not left.exists() and entries.read(NAME) == BODY
