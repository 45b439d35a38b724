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
from fxad import compiler
from fxad_nn import flops, live, models, notebook, optim, spec
from fxad_nn.errors import UserError
from fxad_nn.listener import Listener, Progress
from fxad_nn.live import View, sparkline
from fxad_nn.losses import LOSSES, TABLE, empty_history, read_losses, write_table
from fxad_nn.memory_choice import COMPILER
from fxad_nn.plot import draw
from fxad_nn.recipe import optimizer_of
from fxad_nn.run import resumed_options
from fxad_nn.samples import SAMPLES, Sample, latest
from fxad_nn.screen import Output, console_on
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


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (2, 0.1)])
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
        "memory 3.0 GiB of 4.0 GiB predicted",
        "step 20/20  loss 2.000  rate 1.0e-03  12,345 tok/s  48.0% of peak",
    ]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_that_a_notebook_shows_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    written = []
    for notebook_starts_it in (False, True):
        if notebook_starts_it:
            monkeypatch.setenv("JPY_PARENT_PID", "1")  # as in a kernel
        ours, theirs = os.openpty()
        with open(theirs, "w", encoding="utf-8") as stream:
            view = View(console_on(Output(stream)), 20, 0)
            view.start()
            view.report(report(20))
            view.stop()
            stream.flush()
            written.append(os.read(ours, 1 << 16).decode())
        os.close(ours)
    assert "\x1b[" in written[0]
    assert written[1].startswith("step 20/20  loss 2.000") and "\x1b" not in written[1]


@pytest.mark.parametrize("width", [1, 2, 7, 13, 24, 40, 80, 200])
def test_a_terminal_of_any_width_shows_the_view_in_place(width):
    where = console(width)
    view = View(where, 20, 0)
    view.start()
    for step in range(1, 21):
        view.report(report(step, loss=3.0 / step))
    where.print("a message")
    view.stop()
    written = where.file.getvalue()
    assert "\x1b[?25l" in written  # the cursor is hidden while it is drawn
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert all(len(line) <= width for line in plain.replace("\r", "\n").split("\n"))
    assert "a message" in plain or width < len("a message")  # which is broken there
    if width < 24:  # where less fits the run goes on all the same
        assert "cannot be drawn" not in plain
        return
    last = plain[plain.rindex("train") :]
    for shown in ("100%", "loss 0.150", "12,345 tok/s"):
        assert shown in last
    assert ("memory 3.0 GiB" in last) == (width >= 40)
    assert ("48.0% of peak" in last) == (width >= 80)


@pytest.mark.parametrize("width", range(1, 120))
def test_a_name_is_never_parted_from_its_value(width):
    where = console(width)
    view = View(where, 2000, 0, [[100, 2.5]])
    view.validated(2.75)
    for step in range(1, 31):
        view.report(report(step, loss=3.0 / step, predicted=4 << 30))
    lines = view.lines(width)
    assert all(len(line) <= width for line in lines)
    whole = {"step 30/2000", "loss 0.100", "gradient norm 0.5", "rate 1.0e-03", "12,345 tok/s"}
    whole |= {"48.0% of peak", "memory 3.0 GiB", "memory 3.0 GiB of 4.0 GiB"}
    whole |= {"memory 3.0 GiB of 4.0 GiB predicted", "validation loss 2.750"}
    whole |= {"validation loss 2.750, best 2.500"}
    said = {pair for line in lines for pair in line.split("  ")}
    assert all(pair in whole or set(pair) <= set("▁▂▃▄▅▆▇█") for pair in said)
    if width >= 80:
        assert "validation loss 2.750, best 2.500" in said
        assert "memory 3.0 GiB of 4.0 GiB predicted" in said
        assert "▁" in lines[0]


class Terminal:
    """A terminal's rows, which breaks lines anew when its width changes."""

    def __init__(self, width):
        self.width, self.lines, self.at = width, [""], 0  # `at`: which row the cursor is in
        self.column = 0

    def rows(self):
        cut = [
            [line[i : i + self.width] for i in range(0, max(1, len(line)), self.width)]
            for line in self.lines
        ]
        return [(n, i, row) for n, parts in enumerate(cut) for i, row in enumerate(parts)]

    def write(self, text):
        for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.|\n", text):
            if token == "\r":
                self.column = 0
            elif token == "\n":
                self.at, self.column = self.at + 1, 0
                if self.at == len(self.rows()):
                    self.lines.append("")
            elif token == "\x1b[2K":
                line, part, row = self.rows()[self.at]
                before, after = self.lines[line][: part * self.width], self.lines[line + 1 :]
                rest = self.lines[line][part * self.width + len(row) :]
                # A row that is erased ends the line above it, and begins one of its own.
                new = [*([before] if part else []), "", *([rest] if rest else [])]
                self.lines = [*self.lines[:line], *new, *after]
            elif token == "\x1b[1A":
                self.at -= 1
            elif not token.startswith("\x1b"):
                line, part, _ = self.rows()[self.at]
                start = part * self.width + self.column
                old = self.lines[line].ljust(start)
                self.lines[line] = old[:start] + token + old[start + 1 :]
                self.column += 1

    def becomes(self, width):
        """The cursor stays where its text goes; here that is the end of the last line."""
        self.width = width
        self.at = len(self.rows()) - 1
        self.column = len(self.rows()[self.at][2])


@pytest.mark.parametrize("narrow", [30, 45, 61, 79])
def test_a_terminal_that_becomes_narrower_keeps_no_rest_of_the_view(narrow, monkeypatch):
    for name in ("XTERM_VERSION", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(live, "PER_SECOND", 0.001)  # drawn only where the test says so
    where, terminal = console(80), Terminal(80)

    def drawn():
        view._live.refresh()
        terminal.write(where.file.getvalue())
        where.file.seek(0)
        where.file.truncate()

    view = View(where, 2000, 0, [[100, 2.5]])
    where.print("a message")
    view.start()
    for step in range(1, 30):
        view.report(report(step, predicted=4 << 30))
    drawn()
    drawn()
    where.width = narrow
    terminal.becomes(narrow)
    drawn()
    view.stop()
    terminal.write(where.file.getvalue())
    rows = [row for _, _, row in terminal.rows()]
    assert rows[0] == "a message"
    assert sum("train" in row or "time left" in row for row in rows) == 1
    assert len([row for row in rows if row.strip()]) == 5


def test_a_view_that_cannot_be_drawn_ends_no_run(monkeypatch):
    monkeypatch.setattr(View, "lines", lambda self, width: 1 / 0)
    view = View(console(), 20, 0)
    view.start()
    view.report(report(10))
    view._live.refresh()
    view.stop()
    said = view._console.file.getvalue()
    assert "the view cannot be drawn: ZeroDivisionError('division by zero')" in said


def test_a_terminal_that_cuts_lines_off_loses_no_message():
    view = View(console(80), 20, 0)
    view._widths = [70, 20]
    view._console.width = 40
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TMUX", raising=False)
        patch.setenv("XTERM_VERSION", "XTerm(390)")
        assert view.process_renderables([]) == []
        patch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
        assert len(view.process_renderables([])) == 1


def test_reports_do_no_more_than_store_what_is_drawn(monkeypatch):
    """A terminal is drawn a few times in a second, however fast the steps are."""
    view = View(console(), 20_000, 0)
    assert view._live.refresh_per_second <= 10
    drawn = []
    monkeypatch.setattr(View, "lines", lambda self, width: drawn.append(width) or [])
    for name in ("sparkline", "learned", "speed", "memory"):
        monkeypatch.setattr(live, name, lambda *_: pytest.fail("words are made in a step"))
    for step in range(1, 2001):
        view.report(report(step))
    assert not drawn


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
    assert view.lines(80)[0] == "step 1/2  loss 2.000"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
@pytest.mark.slow
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


@pytest.mark.parametrize("steps", [8, 3])
def test_a_run_that_is_done_is_shown_as_it_ended(tmp_path, text, monkeypatch, steps):
    history = train(options(tmp_path, text)).run.history
    shown, where = Shown(), console()
    monkeypatch.setattr(notebook, "_display", lambda: shown)
    train(resumed_options(tmp_path / "run", steps=steps), notebook.Curve())
    done = f"finished at step 8  loss {history['train'][-1][1]:.3f}"
    how = "more than" if steps == 3 else "which are all of"
    warning = f"the run has done 8 steps, {how} `steps={steps}`: nothing is trained"
    for said in (done, warning, "<svg", "<polyline"):
        assert said in shown.pages[-1]
    view = View(where, steps, 8, history["val"], history["train"])
    view.start()
    view.stop()
    last = history["val"][-1][1]
    first, second = view.lines(80)
    assert first.startswith(done) and set(first.split("  ")[-1]) <= set(live.BARS)
    assert second.startswith(f"validation loss {last:.3f}, best ")
    assert "100%  time left 00:00" in where.file.getvalue()
    assert "compiling" not in where.file.getvalue()


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


@pytest.mark.parametrize("save_in_background", [False, True])
def test_memory_is_predicted_by_the_plans_that_are_there(
    tmp_path, text, monkeypatch, save_in_background
):
    heard = []

    class Hearing(Listener):
        def progressed(self, progress):
            heard.append(progress)

    monkeypatch.setattr("fxad_nn.train.resident_now", lambda: 700 << 20)
    given = options(tmp_path, text, background_saves=save_in_background)
    run = train(given, Hearing()).run
    task, optimizer = run.task, optimizer_of(given)
    with monkeypatch.context() as patch:
        for name in ("planned", "executable", "stages"):
            patch.setattr(compiler, name, lambda *_: pytest.fail("a report plans or compiles"))
        assert task.needed() > 0
    step, judged = (
        low.compile().memory() for low in task.largest(optimizer, run.params, run.state)
    )
    beside = [found["predicted_bytes"] - found["argument_bytes"] for found in (step, judged)]
    assert task.needed() == pytest.approx(max(beside), rel=0.05)
    trees = fxad.tree.leaves((run.params, run.state)) if save_in_background else []
    held = heard[0].predicted - beside[0] - sum(leaf.nbytes for leaf in trees) - COMPILER
    assert held == pytest.approx(700 << 20, rel=0.01)
    assert heard[-1].predicted >= heard[0].predicted


def test_utilisation_is_of_the_unit_that_products_use(tmp_path, text, monkeypatch):
    heard, asked = [], []

    class Hearing(Listener):
        def started(self, run, parameters, peak):
            assert peak == 50e9

        def progressed(self, progress):
            heard.append(progress.unit)

    class Machine:
        def unit_for(self, dtype):
            return {"bfloat16": "AMX", "float32": "float32"}[dtype]

        def peak(self, unit, threads):
            asked.append(unit)
            return 40.0 if len(asked) % 3 else 50.0

    monkeypatch.setattr(flops, "machine", Machine())
    monkeypatch.setattr(flops, "_seen", {})
    for number, dtype in enumerate(("bfloat16", "mixed", None, "float16")):
        more = {"dtype": dtype, "steps": 2, "out": tmp_path / str(number)}
        train(options(tmp_path, text, peak=None, **more), Hearing())
    assert heard == ["AMX", "AMX", "float32", "float32"]
    assert asked == ["AMX"] * 3 + ["float32"] * 3  # once for each
    assert live.said(report(unit="AMX"))[4] == "48.0% of AMX peak"
