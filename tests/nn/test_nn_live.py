"""What is seen of a run: the gradient's norm, the view on a terminal, the picture, a notebook."""

import io
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from short_run import options

import fxad
from fxad_nn import models, notebook, optim, spec
from fxad_nn.errors import UserError
from fxad_nn.listener import Listener, Progress
from fxad_nn.live import View, sparkline
from fxad_nn.losses import LOSSES, TABLE, empty_history, read_losses, write_table
from fxad_nn.plot import draw
from fxad_nn.run import resumed_options
from fxad_nn.samples import SAMPLES, Sample, latest
from fxad_nn.step import train_step
from fxad_nn.train import train

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 200)
    return path


def report(step=1, loss=2.0, **more):
    given = {"gradient_norm": 0.5, "resident": 3 << 30} | more
    return Progress(step, loss, 1e-3, 12345.0, 0.48, **given)


# The norm of the gradient


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_step_gives_the_norm_that_the_gradient_has_before_it_is_clipped(accumulate, clip):
    config = models.preset("tiny")
    params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    ids = np.random.default_rng(0).integers(0, config.vocab, (accumulate, 4, 17)).astype(np.int32)
    tokens, targets = ids[:, :, :-1].copy(), ids[:, :, 1:].copy()
    loss = models.family(config).loss
    grads = [
        fxad.grad(lambda p, b: loss(p, b, config))(params, batch)
        for batch in zip(tokens, targets, strict=True)
    ]
    squares = 0.0
    for leaves in zip(*map(fxad.tree.leaves, grads), strict=True):
        mean = sum(np.asarray(leaf, np.float64) for leaf in leaves) / accumulate
        squares += float((mean**2).sum())
    optimizer = optim.adamw(optim.constant(1e-3))
    given = (tokens[0], targets[0]) if accumulate == 1 else (tokens, targets)
    plain = train_step(config, optimizer, clip, accumulate)
    step = train_step(config, optimizer, clip, accumulate, with_norm=True)

    def fresh():
        copied = fxad.tree.map(lambda leaf: leaf.copy(), params)
        return copied, optimizer.init(copied)

    *_, alone = plain(*fresh(), *given)
    *_, (value, norm) = step(*fresh(), *given)
    assert float(norm) == pytest.approx(math.sqrt(squares), rel=1e-5)
    assert float(value) == float(alone)


def test_norms_are_kept_and_go_on_with_a_resumed_run(tmp_path, text):
    whole = train(options(tmp_path, text, out=tmp_path / "whole")).run.history
    train(options(tmp_path, text, steps=4))
    history = train(resumed_options(tmp_path / "run", steps=8)).run.history
    assert [step for step, _ in history["norm"]] == [2, 4, 6, 8]
    assert all(norm > 0 for _, norm in history["norm"])
    assert read_losses(tmp_path / "run" / LOSSES) == history
    assert [step for step, _ in whole["norm"]] == [2, 4, 6, 8]
    write_table(history, tmp_path / TABLE)
    first, second, *_ = (tmp_path / TABLE).read_text().splitlines()
    assert first == "step,train,val,norm"
    assert second.endswith(f",{history['norm'][0][1]}")


def test_runs_of_before_have_no_norms(tmp_path):
    path = tmp_path / LOSSES
    path.write_text('{"from": 0}\n{"step": 1, "train": 2.0}\n{"step": 2, "val": 1.5}\n')
    history = read_losses(path)
    assert history == {**empty_history(), "train": [[1, 2.0]], "val": [[2, 1.5]]}
    pytest.importorskip("matplotlib")
    del history["norm"]
    draw(history, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


# The view


def console(width=80, terminal=True, **more):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, height=30, **more)


def test_elsewhere_than_on_a_terminal_there_are_plain_lines():
    where = console(terminal=False)
    view = View(where, 20, 0)
    view.start()
    view.report(report(10, predicted=4 << 30))
    view.report(report(20, gradient_norm=math.nan, resident=0))
    view.stop()
    assert where.file.getvalue().splitlines() == [
        "step 10/20  loss 2.000  gradient norm 0.5  rate 1.0e-03  12,345 tok/s  48.0% of peak  "
        "memory 3.0 GiB of 4.0 GiB",
        "step 20/20  loss 2.000  rate 1.0e-03  12,345 tok/s  48.0% of peak",
    ]


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_a_terminal_of_any_width_shows_all_of_it_in_place(width):
    where = console(width)
    view = View(where, 20, 0)
    view.start()
    for step in range(1, 21):
        view.report(report(step, loss=3.0 / step))
    where.print("a message")
    view.stop()
    written = where.file.getvalue()
    assert "\x1b[?25l" in written  # the cursor is hidden while it is drawn
    assert written.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in written
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert all(len(line) <= width for line in plain.replace("\r", "\n").split("\n"))
    assert "a message" in plain
    last = " ".join(plain[plain.rindex("train") :].split())
    for said in ("20/20", "loss 0.150", "gradient norm 0.5", "12,345 tok/s", "memory 3.0 GiB"):
        assert said in last


def test_what_goes_to_a_file_is_not_drawn_on_the_terminal(monkeypatch):
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    where = console()
    view = View(where, 2, 0)
    view.start()
    print("a warning", file=sys.stderr)
    view.stop()
    assert errors.getvalue() == "a warning\n"
    assert "a warning" not in where.file.getvalue()


def test_the_time_that_is_left_is_known_of_slow_steps(monkeypatch):
    view = View(console(), 20, 0)
    clock = [0.0]
    monkeypatch.setattr(view._bar, "get_time", lambda: clock[0])
    for step in (1, 2, 3):
        clock[0] += 90.0
        view.report(report(step))
    assert view._bar.tasks[0].time_remaining == 17 * 90


def test_bars_are_drawn_only_where_they_can_be_written():
    assert sparkline([3.0, 2.0, math.nan, 1.0]) == "█▅ ▁"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([]) == ""
    narrow = Console(
        file=io.TextIOWrapper(io.BytesIO(), "ascii"), force_terminal=True, width=80, height=30
    )
    view = View(narrow, 2, 0)
    view.report(report(1))
    assert view._lines[0].plain == "step 1/2  loss 2.000  gradient norm 0.5  rate 1.0e-03"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_the_command_draws_on_a_terminal_and_gives_it_back(tmp_path, text):
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "fxad_nn", "train", "--preset", "tiny", "--data", str(text)]
    command += ["--steps", "6", "--log-every", "2", "--out", str(tmp_path / "run"), "--peak", "100"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "60", "LINES": "30"}
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=follower, stderr=subprocess.STDOUT, env=environment
    )
    os.close(follower)
    written = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(leader)
    assert child.wait() == 0
    said = written.decode()
    assert "6/6" in said
    assert "gradient norm" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")  # the cursor is back


# Pictures


def test_the_picture_shows_norms_and_what_was_said_last(tmp_path, text):
    pytest.importorskip("matplotlib")
    train(options(tmp_path, text, sample_every=4, sample_tokens=5))
    samples = latest(tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / SAMPLES).read_text().splitlines()]
    assert [asdict(sample) for sample in samples] == [
        {k: v for k, v in line.items() if k != "step"} for line in lines if line["step"] == 4
    ]
    history = read_losses(tmp_path / "run" / LOSSES)
    sizes = []
    for norm, said in (
        (False, []),
        (True, []),
        (True, [*samples, Sample("$x$ 字", "\x07é", None)]),
    ):
        drawn = history if norm else {**history, "norm": []}
        draw(drawn, tmp_path / "run.png", said)
        head = (tmp_path / "run.png").read_bytes()[16:24]
        sizes.append((int.from_bytes(head[:4]), int.from_bytes(head[4:])))
    assert sizes[0][1] < sizes[1][1] == sizes[2][1]
    assert sizes[1][0] < sizes[2][0]


def test_samples_that_are_no_whole_lines_are_passed_over(tmp_path):
    assert latest(tmp_path) == []
    good = {"step": 3, "prompt": "a", "text": "b", "wanted": None}
    lines = [json.dumps(good), '{"step": 3}', "nonsense", '{"step": 4, "prompt": "c']
    (tmp_path / SAMPLES).write_text("\n".join(lines))
    assert latest(tmp_path) == [Sample("a", "b", None)]


# A notebook


class Shown:
    """Stands in for IPython's display: remembers what was shown."""

    def __init__(self):
        self.pages = []

    def __call__(self, thing, display_id):
        assert display_id is True
        self.pages.append(thing._repr_html_())
        return self

    def update(self, thing):
        self.pages.append(thing._repr_html_())


def test_a_notebook_shows_a_curve_that_grows(tmp_path, text, monkeypatch):
    shown = Shown()
    monkeypatch.setattr(notebook, "_display", lambda: shown)
    monkeypatch.setattr(notebook, "EVERY", 0.0)
    curve = notebook.Curve()
    train(options(tmp_path, text), curve)
    curve.warned("<b>beware</b>")
    assert len(shown.pages) >= 6
    points = []
    for page in shown.pages:
        picture = ElementTree.fromstring(re.search(r"<svg.*</svg>", page)[0])
        lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
        points.append(sum(len(line.get("points").split()) for line in lines))
    assert points == sorted(points)
    assert points[-1] == 4 + 1  # reports and validations
    assert "step 8/8  loss" in shown.pages[-1]
    assert "gradient norm" in shown.pages[-1]
    assert "&lt;b&gt;beware" in shown.pages[-1]
    assert f"saved {tmp_path}" in shown.pages[-1]


def test_elsewhere_than_in_a_notebook_a_curve_says_so(monkeypatch):
    with pytest.raises(UserError, match="shown in a notebook"):
        notebook.Curve()


def test_listeners_hear_what_a_step_takes(tmp_path, text):
    heard = []

    class Hearing(Listener):
        def progressed(self, progress):
            heard.append(progress)

    train(options(tmp_path, text, memory="2GiB"), Hearing())
    assert all(progress.resident > 32 << 20 for progress in heard)
    assert all(progress.predicted < 2 << 30 for progress in heard)
