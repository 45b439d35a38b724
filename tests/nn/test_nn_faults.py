"""What may happen to a run from outside: signals, lost output, moved directories, cut files."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from short_run import At, options, same_as_unbroken

from fxad.errors import ShapeError
from fxad_nn import cli, store
from fxad_nn.directory import reserved
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.losses import LOSSES, read_losses
from fxad_nn.shards import HEADER_BYTES, write_shard
from fxad_nn.train import Listener, train


@pytest.fixture(autouse=True)
def shared_cache(tmp_path_factory, monkeypatch):
    """Processes of these tests find what earlier ones compiled."""
    path = tmp_path_factory.getbasetemp() / "compiled"
    monkeypatch.setenv("FXAD_CACHE", "1")
    monkeypatch.setenv("FXAD_CACHE_DIR", str(path))


@contextlib.contextmanager
def started(directory, *arguments, stdout=subprocess.PIPE, **environment):
    """The command line as a process of its own; a long training unless it says otherwise."""
    command = [sys.executable, "-m", "fxad_nn", *map(str, arguments)]
    if "train" in arguments:
        command += ["--steps", "1000000", "--peak", "100", "--log-every", "1"]
    environment = {**os.environ, **environment}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=stdout, stderr=pipe, text=True, cwd=directory, env=environment
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for(path, child):
    """Until a file appears that `child` is to write."""
    while not path.exists():
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.02)


# Signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_run_with_a_checkpoint_and_its_status(tmp_path, text, capsys, name):
    """In a process of its own: what is not handled would end this one."""
    out, number = tmp_path / "run", getattr(signal, name)
    with started(tmp_path, "train", "--preset", "tiny", "--data", text, "--out", out) as child:
        wait_for(out / LOSSES, child)
        child.send_signal(number)
        if name != "SIGINT":
            child.send_signal(number)  # as a closing terminal does
        shown, errors = child.communicate(timeout=60)
    assert child.returncode == 128 + number, errors
    assert errors == ""
    found = store.load(out)
    assert f"stopped after step {found.step} of 1000000 by {name}, saved in {found.path}" in shown


def test_a_second_interrupt_ends_at_once_and_costs_no_checkpoint(tmp_path, text):
    def interrupted_twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        train(options(tmp_path, text, save_every=2), At(4, interrupted_twice))
    newest = store.latest(tmp_path / "run")
    assert newest.name == "step-00000002"
    assert caught.value.__notes__ == [f"the newest checkpoint is {newest}"]


def test_under_nohup_a_run_goes_on(tmp_path, text):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = train(options(tmp_path, text), At(4, lambda: signal.raise_signal(signal.SIGHUP)))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not result.interrupted
    assert result.run.step == 8


# Standard output


@pytest.mark.parametrize("kind", ["pipe", "full"])
def test_a_run_nobody_reads_stops_with_a_checkpoint(tmp_path, text, kind):
    out = tmp_path / "run"
    arguments = ("train", "--preset", "tiny", "--data", text, "--out", out, "--eval-every", 1)
    with open("/dev/full", "w") as full:
        stdout = full if kind == "full" else subprocess.PIPE
        with started(tmp_path, *arguments, stdout=stdout) as child:
            if kind == "pipe":
                child.stdout.readline()
                child.stdout.close()
            errors = child.stderr.read()
    reason, status = {"pipe": ("Broken pipe", 141), "full": ("No space left on device", 1)}[kind]
    assert child.returncode == status, errors
    found = store.load(out)
    assert errors == (
        f"fxad_nn: standard output failed: {reason}; stopped after step {found.step} of 1000000, "
        f"saved in {found.path}\ncontinue with: python -m fxad_nn train --resume {out}\n"
    )


def test_a_sample_nobody_reads_ends_quietly(tmp_path, text):
    train(options(tmp_path, text, steps=1))
    with started(tmp_path, "sample", tmp_path / "run", "--tokens", 1_000_000) as child:
        child.stdout.read(1)
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(60) == 141


def test_what_the_output_cannot_encode_is_escaped(tmp_path, text):
    # As many characters as the text has: the program is that of the sample above.
    text.write_text(text.read_text("utf-8").translate({ord("z"): "ö", ord("y"): "ß"}), "utf-8")
    train(options(tmp_path, text, steps=1))
    command = ("sample", tmp_path / "run", "--prompt", "größer", "--tokens", 50)
    with started(tmp_path, *command, PYTHONIOENCODING="ascii") as child:
        shown, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert shown.startswith(r"gr\xf6\xdfer")


# The run directory


@pytest.mark.parametrize("save_every", [0, 2])
def test_a_removed_directory_is_made_again(tmp_path, text, save_every):
    listener = At(4, lambda: shutil.rmtree(tmp_path / "run"))
    result = train(options(tmp_path, text, save_every=save_every), listener)
    [told] = listener.warnings
    assert "run is gone, removed or moved to another disk; the run goes on in" in told
    assert store.load(tmp_path / "run").path == result.checkpoint
    assert read_losses(tmp_path / "run" / LOSSES) == result.run.history
    same_as_unbroken(tmp_path, text, result)


def test_a_directory_removed_after_its_checkpoint_is_not_claimed_to_hold_it(tmp_path, text):
    class Rude(Listener):
        def saved(self, path):
            if path.name == "step-00000002":
                shutil.rmtree(tmp_path / "run")
                signal.raise_signal(signal.SIGINT)

    result = train(options(tmp_path, text, save_every=2, log_every=100), Rude())
    assert result.interrupted
    assert store.load(result.checkpoint).step == result.run.step


def test_a_moved_directory_is_followed(tmp_path, text):
    listener = At(4, lambda: (tmp_path / "run").rename(tmp_path / "moved"))
    result = train(options(tmp_path, text, save_every=2), listener)
    [told] = listener.warnings
    assert f"run was moved to {tmp_path / 'moved'}; the run goes on there" in told
    assert result.checkpoint == tmp_path / "moved" / "step-00000008"
    assert [path.name for path in store.checkpoints(tmp_path / "moved")] == ["step-00000008"]
    assert not (tmp_path / "run").exists()
    assert read_losses(tmp_path / "moved" / LOSSES) == result.run.history


def test_a_directory_moved_while_it_is_saved_to_is_followed(tmp_path, text, monkeypatch):
    real, moved = store.write_manifest, []

    def moving(*arguments):
        real(*arguments)
        if not moved:
            moved.append((tmp_path / "run").rename(tmp_path / "moved"))

    monkeypatch.setattr(store, "write_manifest", moving)
    result = train(options(tmp_path, text))
    assert store.load(tmp_path / "moved").path == result.checkpoint
    assert not (tmp_path / "run").exists()


def test_a_directory_that_another_run_has_taken_is_left_alone(tmp_path, text):
    def replaced():
        shutil.rmtree(tmp_path / "run")
        train(options(tmp_path, text, steps=1))

    result = train(options(tmp_path, text), At(4, replaced))
    assert store.load(tmp_path / "run").step == 1
    assert result.checkpoint == tmp_path / "run.1" / "step-00000008"


def test_a_directory_that_cannot_be_made_again_is_an_error(tmp_path, text, capsys, monkeypatch):
    def gone():
        shutil.rmtree(tmp_path / "runs")
        (tmp_path / "runs").write_text("a file")

    monkeypatch.setattr(cli.Screen, "progressed", lambda *_: gone())
    monkeypatch.setattr(cli.Screen, "should_stop", lambda *_: (tmp_path / "runs").is_file())
    arguments = ["train", "--preset", "tiny", "--data", text, "--out", tmp_path / "runs" / "one"]
    assert cli.main([str(a) for a in [*arguments, "--log-every", 1, "--peak", 100]]) == 2
    errors = capsys.readouterr().err
    assert "step 1 could not be saved" in errors
    assert "Traceback" not in errors


def test_a_place_knows_where_it_is(tmp_path):
    with reserved(tmp_path / "a") as place:
        assert place.settle() is None
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
        assert "moved" in place.settle()
        assert place.path == tmp_path / "b"
        with pytest.raises(ConfigError, match="another process"), reserved(tmp_path / "b"):
            pass
        place.path.rmdir()
        assert "is gone" in place.settle()
        assert place.path == tmp_path / "b"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]  # what stayed empty is removed


# Files of tokens, and ids


CUT = """
import os, sys
from pathlib import Path
from fxad_nn import cli

def cut(screen, progress):
    if progress.step == 2:
        os.truncate(sys.argv[1], 4096)

cli.Screen.progressed = cut
arguments = ["train", "--preset", "tiny", "--data", sys.argv[1], "--out", sys.argv[2]]
sys.exit(cli.main([*arguments, "--log-every", "1", "--peak", "100", "--steps", "50"]))
"""


def test_a_shard_cut_while_it_is_read_is_an_error(tmp_path):
    shard, out = tmp_path / "s.bin", tmp_path / "run"
    write_shard(shard, np.arange(100_000) % 65)
    command = [sys.executable, "-c", CUT, str(shard), str(out)]
    child = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert child.returncode == 2, child.stderr
    first, second = child.stderr.splitlines()
    assert f"{shard} was cut while it was in use" in first
    found = store.load(out)
    assert second == f"step {found.step} is saved in {found.path}"


def test_ids_that_turn_up_in_mid_run_are_refused(tmp_path):
    shard = tmp_path / "s.bin"
    write_shard(shard, np.arange(2000) % 65)

    def damage():
        with open(shard, "r+b") as file:
            file.seek(HEADER_BYTES)
            file.write(b"\xff" * 4000)

    with pytest.raises(DataError) as caught:
        train(options(tmp_path, shard), At(4, damage))
    assert "holds id 65535 at position [0, 0], outside the vocabulary of" in str(caught.value)
    assert store.load(tmp_path / "run").step == 4


# The command line


@pytest.mark.parametrize(
    ("error", "status", "saying"),
    [
        (ShapeError("two shapes"), 2, "fxad_nn: two shapes"),
        (OSError(5, "Input/output error"), 2, "fxad_nn: [Errno 5] Input/output error"),
        (KeyboardInterrupt(), 130, "fxad_nn: interrupted"),
    ],
)
def test_errors_are_a_message_and_a_status(monkeypatch, capsys, error, status, saying):
    def failing(*_):
        raise error

    monkeypatch.setattr(cli, "_sample", failing)
    assert cli.main(["sample", "x"]) == status
    shown = capsys.readouterr().err
    assert shown.startswith(saying)
    assert "Traceback" not in shown
    if status == 2:
        assert cli.main(["sample", "x", "--debug"]) == status
        shown = capsys.readouterr().err
        assert "Traceback" in shown
        assert saying in shown


def test_a_bug_is_called_one(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_sample", lambda *_: [][1])
    assert cli.main(["sample", "x"]) == 1
    shown = capsys.readouterr().err
    assert "IndexError: list index out of range" in shown
    assert shown.splitlines()[-1].startswith("fxad_nn: this is a bug")


def test_a_wrong_setting_in_the_environment_is_a_message(tmp_path):
    with started(tmp_path, "--help", FXAD_ISA="vax") as child:
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "Traceback" not in errors
    assert "FXAD_ISA" in errors
