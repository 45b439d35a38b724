"""What a run leaves on the disk: its losses, and as many checkpoints as were asked for."""

import signal
import sys
from functools import partial

import numpy as np
import pytest
from short_run import At, options, same_as_unbroken

import fxad
from fxad_nn import cli, run, store
from fxad_nn.errors import ConfigError, TrainingError
from fxad_nn.evaluate import Evaluator
from fxad_nn.losses import LOSSES, append, begun, point, read_losses
from fxad_nn.optim import averaged
from fxad_nn.run import resumed_options
from fxad_nn.spec import named_leaves
from fxad_nn.train import train

# Losses


def test_losses_survive_a_kill(tmp_path):
    path = tmp_path / LOSSES
    append(path, [begun(0), point("train", 1, 3.5), point("val", 2, 3.0), point("train", 2, 3.25)])
    with open(path, "ab") as file:
        file.write(b'{"step": 3, "tra')  # killed here
    assert read_losses(path) == {"train": [[1, 3.5], [2, 3.25]], "val": [[2, 3.0]], "norm": []}
    append(path, [begun(1), point("train", 2, 3.25)])
    append(path, [point("train", 3, 3.0)])
    assert read_losses(path) == {"train": [[1, 3.5], [2, 3.25], [3, 3.0]], "val": [], "norm": []}


@pytest.mark.parametrize(
    "line",
    [b"[" * 200, b"\xff\xfe", b'{"step": -1, "train": 1}', b'{"step": 4, "train": NaN}', b"x" * 999]
    + [b'{"step": 4, "train": 1, "val": 2}', b'{"step": 4, "loss": 1}', b'{"from": "x"}', b"7"]
    + [b'{"step": true, "train": 1}', b'{"step": 4, "train": 1e999}'],
)
def test_lines_that_are_no_losses_are_passed_over(tmp_path, line):
    path = tmp_path / LOSSES
    append(path, [point("train", 1, 3.5)])
    with open(path, "ab") as file:
        file.write(line + b"\n")
    append(path, [point("train", 5, 2.5)])
    assert read_losses(path) == {"train": [[1, 3.5], [5, 2.5]], "val": [], "norm": []}


@pytest.mark.slow
def test_a_resumed_run_has_each_loss_once(tmp_path, text):
    class Killed(BaseException):
        pass

    def kill():
        raise Killed

    with pytest.raises(Killed):
        train(options(tmp_path, text, save_every=2, log_every=1), At(5, kill))
    assert [step for step, _ in read_losses(tmp_path / "run" / LOSSES)["train"]] == [1, 2, 3, 4, 5]
    result = train(resumed_options(tmp_path / "run"))
    assert result.run.history == read_losses(tmp_path / "run" / LOSSES)
    assert [step for step, _ in result.run.history["train"]] == list(range(1, 9))
    same_as_unbroken(tmp_path, text, result, log_every=1)


def test_losses_that_cannot_be_written_are_written_later(tmp_path, text, monkeypatch):
    calls = []

    def full(path, lines):
        calls.append(path)
        if len(calls) < 3:
            raise OSError(28, "No space left on device")
        append(path, lines)

    monkeypatch.setattr("fxad_nn.keep.append", full)
    listener = At(0, None)
    result = train(options(tmp_path, text), listener)
    [told] = listener.warnings
    assert "the losses cannot be written to the disk" in told
    assert read_losses(tmp_path / "run" / LOSSES) == result.run.history


def test_the_losses_of_a_killed_run_are_drawn(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    append(tmp_path / LOSSES, [begun(0), point("train", 1, 3.5), point("train", 2, 3.25)])
    assert cli.main(["plot", str(tmp_path)]) == 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["plot", str(tmp_path / "nowhere")]) == 2
    assert "there is no file" in capsys.readouterr().err


# Checkpoints


def test_the_newest_checkpoints_are_kept(tmp_path, text):
    train(options(tmp_path, text, save_every=2, keep=3))
    names = [path.name for path in store.checkpoints(tmp_path / "run")]
    assert names == ["step-00000004", "step-00000006", "step-00000008"]
    assert all(store.load(path) for path in store.checkpoints(tmp_path / "run"))
    train(resumed_options(tmp_path / "run", steps=9, keep=1))
    assert [path.name for path in store.checkpoints(tmp_path / "run")] == ["step-00000009"]
    with pytest.raises(ConfigError, match="`keep` must be at least 1"):
        options(tmp_path, text, keep=0)


def test_going_back_must_not_cost_a_newer_checkpoint(tmp_path, text):
    train(options(tmp_path, text, save_every=4, keep=2))
    older, newer = store.checkpoints(tmp_path / "run")
    with pytest.raises(ConfigError, match="is not the newest of its run.*give `out=DIR`"):
        train(resumed_options(older))
    branch = train(resumed_options(older, out=tmp_path / "branch"))
    assert branch.checkpoint.parent == tmp_path / "branch"
    with pytest.raises(ConfigError, match="branch already holds a checkpoint"):
        train(resumed_options(newer, out=tmp_path / "branch", steps=9))
    assert store.checkpoints(tmp_path / "run") == [older, newer]
    (newer / store.MODEL).write_bytes(b"damaged")
    assert train(resumed_options(older)).checkpoint.name.startswith("step-00000008")


def test_numbers_that_are_not_finite_replace_no_good_checkpoint(tmp_path, text, monkeypatch):
    train(options(tmp_path, text, steps=2))
    wild = {"learning_rate": 1e30, "clip": 1e30, "save_every": 1, "log_every": 100}
    with pytest.raises(TrainingError, match="not finite"):
        train(resumed_options(tmp_path / "run", steps=50, **wild))
    found = store.load(tmp_path / "run")
    assert all(np.isfinite(np.asarray(leaf)).all() for _, leaf in named_leaves(found.params))


def test_what_bits_depend_on_is_compared_on_resuming(tmp_path, text, monkeypatch):
    train(options(tmp_path, text, steps=2))
    listener = At(0, None)
    train(resumed_options(tmp_path / "run", steps=3), listener)
    assert listener.warnings == []
    facts = store.load(tmp_path / "run").facts
    assert facts.items() >= fxad.bits_depend_on().items() and np.__version__ in facts["LAPACK"]
    monkeypatch.setattr(run, "_bits", lambda: {**facts, "bf16 products": "by hand"})
    train(resumed_options(tmp_path / "run", steps=4), listener)
    [told] = listener.warnings
    assert f"bf16 products {facts['bf16 products']!r} became 'by hand'" in told
    assert "LAPACK" not in told


def test_a_run_that_read_a_mark_before_its_text_goes_on(tmp_path, text, monkeypatch):
    """As runs did that were saved without a digest of the text, however often they go on."""
    text.write_text("\ufeff" + text.read_text())
    with monkeypatch.context() as patched:
        patched.setattr(run, "_open", partial(run._open, marked=True))
        train(options(tmp_path, text, steps=1))
    assert "\ufeff" in store.load(tmp_path / "run").tokenizer.alphabet
    for steps in (2, 3):
        assert train(resumed_options(tmp_path / "run", steps=steps)).run.step == steps
    train(options(tmp_path, text, steps=1, out=tmp_path / "new"))
    assert "\ufeff" not in store.load(tmp_path / "new").tokenizer.alphabet
    assert train(resumed_options(tmp_path / "new", steps=2)).run.step == 2


def test_a_listener_can_stop_a_run(tmp_path, text):
    listener = At(0, None)
    listener.should_stop = lambda: True
    result = train(options(tmp_path, text), listener)
    assert result.interrupted and result.stop.signal is None
    assert store.load(tmp_path / "run").path == result.checkpoint


def test_an_error_of_a_listener_costs_no_step(tmp_path, text):
    with pytest.raises(ZeroDivisionError) as caught:
        train(options(tmp_path, text), At(4, lambda: 1 / 0))
    saved = tmp_path / "run" / "step-00000004"
    assert caught.value.__notes__ == [f"step 4 is saved in {saved}"]
    same_as_unbroken(tmp_path, text, train(resumed_options(tmp_path / "run")))


def test_a_disk_that_fills_up_ends_a_run_with_what_is_whole(tmp_path, text, capsys, monkeypatch):
    real = store.write_tree

    def filling(path, tree):
        if "step-00000004" in str(path):
            raise OSError(28, "No space left on device")
        return real(path, tree)

    monkeypatch.setattr(store, "write_tree", filling)
    arguments = ("train", "--preset", "tiny", "--data", text, "--out", tmp_path / "run")
    numbers = ("--steps", 8, "--save-every", 2, "--peak", 100)
    assert cli.main([str(argument) for argument in (*arguments, *numbers)]) == 2
    captured = capsys.readouterr()
    [message] = captured.err.splitlines()
    whole = store.load(tmp_path / "run").path
    assert "could not save the checkpoint" in message and "No space left" in message
    assert f"{whole} is still whole" in message and whole.name == "step-00000002"
    assert "step-00000004" not in captured.out
    best = ("--out", tmp_path / "other", "--best", "--eval-every", 4, "--warmup", 50)
    assert cli.main([str(argument) for argument in (*arguments, *numbers, *best)]) == 2
    warning, message, note = capsys.readouterr().err.splitlines()
    assert "over --warmup 50 steps, and the run ends after --steps 8" in warning
    assert "could not save the checkpoint" in message and "best/step-00000004" in message
    newest = store.latest(tmp_path / "other")
    assert note == f"the newest checkpoint, {newest}, is whole"
    (tmp_path / "left" / "best").mkdir(parents=True)
    newest.rename(tmp_path / "left" / "best" / newest.name)
    assert cli.main(["train", "--resume", str(tmp_path / "left")]) == 2
    assert "left holds no checkpoint but its best, " in capsys.readouterr().err


# Optimizers


@pytest.mark.parametrize(
    "chosen", [{"optimizer": "muon", "average": 0.9}, {"skip_outliers": 3.0, "average": 0.5}]
)
def test_a_run_resumes_with_the_state_of_its_optimizer(tmp_path, text, chosen):
    def interrupt():
        signal.raise_signal(signal.SIGINT)

    first = train(options(tmp_path, text, **chosen), At(4, interrupt))
    assert first.interrupted
    second = train(resumed_options(tmp_path / "run"))
    same_as_unbroken(tmp_path, text, second, **chosen)
    with pytest.raises(ConfigError, match="`average` cannot change when a run is resumed"):
        resumed_options(tmp_path / "run", average=0.1)


def test_averaged_weights_are_validated_and_sampled(tmp_path, text, capsys):
    result = train(options(tmp_path, text, average=0.9))
    last = result.run
    average = averaged(last.state, last.params)
    assert last.weights is not last.params
    evaluate = Evaluator(last.config)
    wanted = evaluate(average, last.task.data.val, last.context, last.options.eval_batch)
    assert result.val_loss == wanted
    out = tmp_path / "run"
    assert cli.main(["sample", str(out), "--averaged", "--tokens", "3"]) == 0
    plain = tmp_path / "plain"
    train(options(tmp_path, text, steps=1, out=plain))
    assert cli.main(["sample", str(plain), "--averaged"]) == 2
    assert "was not trained with --average" in capsys.readouterr().err


def test_a_run_that_is_done_says_that_nothing_is_trained(tmp_path, text):
    train(options(tmp_path, text))
    listener = At(-1, None)
    result = train(resumed_options(tmp_path / "run"), listener)
    assert result.run.step == result.run.options.steps
    assert listener.warnings == [
        f"the run has done {result.run.step} steps, which are all of `steps={result.run.step}`: "
        "nothing is trained"
    ]
    with pytest.warns(UserWarning, match="done 8 steps, more than `steps=3`: nothing") as warned:
        train(resumed_options(tmp_path / "run", steps=3))  # without a listener
    assert warned[0].filename == __file__


@pytest.mark.skipif(sys.platform == "win32", reason="a directory in use stays there")
def test_a_run_needs_no_working_directory(tmp_path, text, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = train(options(tmp_path, text, steps=1))
    assert store.load(result.checkpoint).step == 1
