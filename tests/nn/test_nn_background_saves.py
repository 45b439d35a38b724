"""Checkpoints that a thread writes while the run goes on: what they hold, what waits for them."""

import contextlib
import shutil
import signal
import threading

import numpy as np
import pytest
from short_run import At, options, same_as_unbroken

from fxad_nn import cli, store
from fxad_nn.errors import CheckpointError, TrainingError
from fxad_nn.run import BEST, begin, resumed_options, snapshot, write
from fxad_nn.spec import named_leaves
from fxad_nn.train import Listener, train


class Steps(Listener):
    """Remembers what was saved, and lets writing go on once a step was done."""

    def __init__(self, step=None):
        self.step, self.done, self.saved_paths, self.warnings = step, threading.Event(), [], []

    def progressed(self, progress):
        if self.step is not None and progress.step >= self.step:
            self.done.set()

    def saved(self, path):
        self.saved_paths.append(path.name)

    def warned(self, message):
        self.warnings.append(message)


def background(tmp_path, text, **more):
    return options(tmp_path, text, **{"background_saves": True, "save_every": 2} | more)


def in_the_thread(monkeypatch, action):
    """Before the writer's thread writes a tree, do something with its path."""
    real = store.write_tree

    def written(path, tree):
        if threading.current_thread() is not threading.main_thread():
            action(path)
        return real(path, tree)

    monkeypatch.setattr(store, "write_tree", written)


def equal(left, right):
    for (name, one), (_, other) in zip(named_leaves(left), named_leaves(right), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.slow
def test_the_run_goes_on_while_a_checkpoint_is_written(tmp_path, text, monkeypatch):
    """What is written at step 2 waits for step 4, and holds step 2 all the same."""
    plain = train(options(tmp_path, text, out=tmp_path / "plain", save_every=2, keep=4))
    heard, waited = Steps(4), []

    def gate(path):
        if "step-00000002" in str(path):
            waited.append(heard.done.wait(60))

    in_the_thread(monkeypatch, gate)
    result = train(background(tmp_path, text, keep=4), heard)
    assert waited == [True, True]  # its parameters, and its optimizer's state
    assert result.val_loss == plain.val_loss
    names = [f"step-{step:08d}" for step in (2, 4, 6, 8)]
    assert heard.saved_paths == names
    for name in names:
        ours, theirs = (store.load(tmp_path / home / name) for home in ("run", "plain"))
        assert ours.state["history"] == theirs.state["history"]
        equal((ours.params, ours.optimizer), (theirs.params, theirs.optimizer))


def test_the_newest_stay_and_the_best_is_among_them(tmp_path, text):
    more = {"save_every": 1, "eval_every": 2, "keep": 2, "best": True, "average": 0.5}
    plain = train(options(tmp_path, text, out=tmp_path / "plain", **more))
    heard = Steps()
    train(background(tmp_path, text, **more), heard)
    for home in ("", BEST):
        names = [path.name for path in store.checkpoints(tmp_path / "run" / home)]
        assert names == [path.name for path in store.checkpoints(tmp_path / "plain" / home)]
        assert len(names) == (1 if home else 2)
    assert heard.saved_paths.count("step-00000008") == 2  # the newest and the best
    equal(store.load(tmp_path / "run", None).params, plain.run.params)


def test_a_snapshot_is_memory_of_its_own(tmp_path, text):
    run = begin(options(tmp_path, text))
    run.history["train"].append([0, 1.0])
    copy = snapshot(run)
    run.history["train"][0][1] = 2.0
    assert copy.history["train"] == [[0, 1.0]]
    for tree, other in ((run.params, copy.params), (run.state, copy.state)):
        equal(tree, other)
        for (_, ours), (_, theirs) in zip(named_leaves(tree), named_leaves(other), strict=True):
            assert not np.shares_memory(np.asarray(ours), theirs)
    assert store.load(write(copy, tmp_path / "run", 1)).step == 0


def test_a_failed_write_is_one_error_at_a_step_that_follows(tmp_path, text, capsys, monkeypatch):
    def full(path):
        if "step-00000004" in str(path):
            raise OSError(28, "No space left on device")

    in_the_thread(monkeypatch, full)
    arguments = ("train", "--preset", "tiny", "--data", text, "--out", tmp_path / "run")
    numbers = ("--steps", 40, "--save-every", 2, "--peak", 100, "--background-saves")
    assert cli.main([str(argument) for argument in (*arguments, *numbers)]) == 2
    [message] = capsys.readouterr().err.splitlines()
    whole = store.load(tmp_path / "run")
    assert "could not save the checkpoint" in message and "No space left" in message
    assert f"{whole.path} is still whole" in message and whole.step == 2


def test_numbers_that_are_not_finite_are_found_in_the_copy(tmp_path, text, monkeypatch):
    class Spoiling(Listener):
        def progressed(self, progress):
            if progress.step == 4:
                leaf = self.run.params["blocks"][0]["mlp"]["up"]["weight"]
                self.run.params["blocks"][0]["mlp"]["up"]["weight"] = leaf * np.float32(np.nan)

        def started(self, run, parameters, peak):
            self.run = run

    with pytest.raises(TrainingError, match="after step 4 .* holds numbers that are not finite"):
        train(background(tmp_path, text, log_every=1, eval_every=0), Spoiling())
    assert store.load(tmp_path / "run").step == 2


@pytest.mark.parametrize("times", [1, 2])
def test_the_end_waits_for_what_is_being_written(tmp_path, text, monkeypatch, times):
    """Also after a second Ctrl-C, which saves nothing more."""
    slow = threading.Event()
    in_the_thread(monkeypatch, lambda path: slow.wait(0.3))

    def interrupt():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)

    chosen = background(tmp_path, text, log_every=1)
    if times == 2:
        with pytest.raises(KeyboardInterrupt) as caught:
            train(chosen, At(3, interrupt))
        newest = store.load(tmp_path / "run").path
        assert newest.name == "step-00000002"
        assert caught.value.__notes__ == [f"the newest checkpoint is {newest}"]
    else:
        result = train(chosen, At(3, interrupt))
        assert result.interrupted
        assert store.load(tmp_path / "run").path == result.checkpoint
        assert result.checkpoint.name == "step-00000003"
    assert not list((tmp_path / "run").glob(".*"))
    monkeypatch.undo()
    monkeypatch.setenv("FXAD_CACHE_DIR", str(tmp_path / "cache"))
    ended = train(resumed_options(tmp_path / "run"))
    same_as_unbroken(tmp_path, text, ended, log_every=1)


def test_an_error_of_a_listener_waits_too_and_says_what_is_saved(tmp_path, text, monkeypatch):
    in_the_thread(monkeypatch, lambda path: threading.Event().wait(0.2))

    def fail():
        raise RuntimeError("a listener's own")

    with pytest.raises(RuntimeError) as caught:
        train(background(tmp_path, text, log_every=3), At(3, fail))
    found = store.load(tmp_path / "run")
    assert found.step == 3
    assert caught.value.__notes__ == [f"step 3 is saved in {found.path}"]


def test_a_directory_that_is_moved_meanwhile_is_followed(tmp_path, text, monkeypatch):
    moved = []

    def move(path):
        if not moved:
            moved.append((tmp_path / "run").rename(tmp_path / "moved"))

    in_the_thread(monkeypatch, move)
    heard = Steps()
    result = train(background(tmp_path, text, keep=4), heard)
    assert not (tmp_path / "run").exists()
    assert result.checkpoint == tmp_path / "moved" / "step-00000008"
    assert store.load(tmp_path / "moved").path == result.checkpoint
    names = [path.name for path in store.checkpoints(tmp_path / "moved")]
    assert names == [f"step-{step:08d}" for step in (2, 4, 6, 8)]
    assert len(heard.warnings) == 1 and "was moved to" in heard.warnings[0]


def test_a_directory_that_is_removed_meanwhile_is_made_again(tmp_path, text, monkeypatch):
    removed = []

    def remove(path):
        while not removed:  # the run may write a line between the last file and the directory
            with contextlib.suppress(OSError):
                removed.append(shutil.rmtree(tmp_path / "run"))

    in_the_thread(monkeypatch, remove)
    result = train(background(tmp_path, text))
    assert store.load(result.checkpoint).step == 8
    same_as_unbroken(tmp_path, text, result)


def test_what_cannot_be_written_in_the_end_is_an_error(tmp_path, text, monkeypatch):
    def full(path):
        if BEST in str(path):
            raise OSError(28, "No space left on device")

    in_the_thread(monkeypatch, full)
    with pytest.raises(CheckpointError, match="No space left"):
        train(background(tmp_path, text, best=True, eval_every=0))
    assert store.load(tmp_path / "run").step == 8
