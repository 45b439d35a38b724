"""The guard: statistics on synthetic times, the workers' protocol, fingerprints, the command."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from benchmarks.guard import command, results, sides, turns, verdicts
from benchmarks.guard.cases import CASES
from benchmarks.guard.fingerprint import fingerprint, machine_code
from benchmarks.guard.probes import Probe, disturbance
from benchmarks.guard.sides import Side, UnknownRevision
from benchmarks.guard.verdicts import FASTER, SLOWER, UNCHANGED, UNKNOWN, estimate, judge
from benchmarks.guard.whole import WHOLE

ROOT = Path(__file__).parent.parent


def drawn(change: float, noise: float, seed: int, luck: float = 0.002) -> list[list[float]]:
    """Log-ratios of four pairs of processes, each with luck of its own."""
    r = np.random.default_rng(seed)
    return [list(change + r.normal(0, luck) + r.normal(0, noise, 16)) for _ in range(4)]


def test_a_slowdown_is_flagged_and_a_side_against_itself_is_not() -> None:
    for seed in range(50):
        itself = [estimate(drawn(0.0, 0.01, seed + n)) for n in range(6)]
        floor = verdicts.noise_floor(itself)
        assert judge(estimate(drawn(math.log(1.05), 0.01, 100 + seed)), floor) == SLOWER
        assert judge(estimate(drawn(-math.log(1.05), 0.01, 200 + seed)), floor) == FASTER
        assert judge(estimate(drawn(0.0, 0.01, 300 + seed)), floor) == UNCHANGED


def test_noise_leaves_the_question_open_and_says_what_it_could_have_seen() -> None:
    noisy = estimate(drawn(math.log(1.05), 0.3, 0))
    assert noisy is not None
    assert judge(noisy, 0.0) == UNKNOWN
    assert verdicts.visible(noisy, 0.0) == pytest.approx(
        0.0198 + noisy.median - noisy.low, abs=1e-4
    )
    assert estimate([[], []]) is None
    assert judge(None, 0.0) == UNKNOWN
    assert judge(estimate([[0.5] * 5]), 0.0) == UNKNOWN  # too few for an interval
    assert judge(estimate([[0.5] * 6]), 0.0) == SLOWER


def test_a_change_below_the_floor_of_the_run_is_not_flagged() -> None:
    found = estimate(drawn(math.log(1.05), 0.001, 0))
    assert judge(found, 0.03) == SLOWER
    assert judge(found, 0.08) == UNKNOWN


def test_two_pairs_of_processes_that_disagree_keep_a_row_from_being_flagged() -> None:
    rounds, unchanged = drawn(math.log(1.05), 0.001, 0), [0.0, 0.001, -0.001]
    assert judge(estimate([*rounds[:3], unchanged]), 0.0) == SLOWER
    assert judge(estimate([*rounds[:2], unchanged, unchanged]), 0.0) == UNKNOWN


def test_the_floor_is_what_a_side_was_found_to_differ_from_itself() -> None:
    differs, noisy = estimate(drawn(0.05, 0.001, 0)), estimate(drawn(0.0, 0.3, 0))
    assert verdicts.noise_floor([None, noisy]) == 0.0
    assert verdicts.noise_floor([None, noisy, differs]) == pytest.approx(0.05, abs=0.005)


@pytest.mark.parametrize(("count", "rank"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (20, 5)])
def test_intervals_are_those_of_the_sign_test(count: int, rank: int) -> None:
    """Tables of the sign test: of 20 samples the 6th and the 15th bound the median at 95.9%."""
    found = estimate([[float(n) for n in range(count)]])
    assert found is not None
    assert (found.low, found.high) == (rank, count - 1 - rank)


def test_pairs_are_dropped_if_the_machine_changed_meanwhile_but_half_are_kept() -> None:
    calm, taken, slow = Probe(1.0, 2.0), Probe(1.9, 2.0), Probe(1.0, 3.5)
    assert disturbance(calm, Probe(1.1, 2.4), calm) < 1
    assert min(disturbance(calm, taken, calm), disturbance(calm, calm, slow)) > 1
    blocks = [turns.Block(s, calm, calm) for s in (1.0, 2.0)]
    blocks += [turns.Block(9.0, calm, taken), turns.Block(3.0, taken, calm)]
    double, triple = turns.ratios((0, 1, 1, 0), blocks)
    assert (double.ratio, triple.ratio) == (math.log(2.0), math.log(3.0))
    assert turns.calm([double, triple]) == [double.ratio]
    assert turns.calm([triple, turns.Sample(0.5, 1.1), triple]) == [0.5, triple.ratio]


def test_a_block_is_ten_milliseconds_or_few_long_calls() -> None:
    assert [turns.calls_of(s) for s in (1e-6, 1e-3, 0.012, 0.03, 0.08)] == [10_000, 10, 3, 1, 1]


# ---------------------------------------------------------------- workers


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """This tree where it lies."""
    made = Side("tree", tmp_path / "tree")
    made.folder.mkdir()
    made.cache.mkdir(mode=0o700)
    for name in (*sides.PACKAGES, "benchmarks"):
        (tmp_path / "tree" / name).symlink_to(ROOT / name)
    return made


@pytest.mark.slow
def test_a_worker_does_as_it_is_told_and_says_what_it_cannot_do(side: Side) -> None:
    name = "product small, 33x65x129 NN float32"
    with sides.workers(side, side, side) as (one, other, idle):
        for worker in (one, other):
            worker.tell(do="fingerprint", case=name)
        first, second = one.hear(), other.hear()
        assert first == second and len(first["fingerprint"]) == 64
        assert one.ask(do="prepare", case=name) == {}
        assert one.ask(do="settle")["seconds"] > 0
        assert one.ask(do="block", calls=10)["seconds"] > 0
        assert one.ask(do="drop") == {}
        with pytest.raises(sides.Failed, match="tree: KeyError: 'no such case'"):
            one.ask(do="prepare", case="no such case")
        with pytest.raises(sides.Failed, match="no case was prepared"):
            one.ask(do="block", calls=1)
        one.tell(do="settle")
        other.tell(do="fingerprint", case=name)
        with pytest.raises(sides.Failed, match="no case was prepared"):
            sides.heard([one, other])
        assert other.ask(do="drop") == {}  # not the fingerprint
        other._process.kill()
        with pytest.raises(sides.Ended, match="tree: its process ended, -9"):
            other.ask(do="drop")
        assert one._process.stdin is not None
        one._process.stdin.close()
        assert one._process.wait(30) == 0  # it ends with its input
        assert idle.alive
    assert not idle.alive


def test_a_worker_that_died_before_an_order_ends_with_the_block(side: Side) -> None:
    with sides.workers(side) as (worker,):
        worker._process.kill()
        worker._process.wait()
        with pytest.raises(sides.Ended, match="tree: its process ended, -9"):
            worker.ask(do="drop")  # the order stays in the buffer of its closed pipe


def test_a_process_of_its_own_prints_a_number(side: Side) -> None:
    assert 0 < WHOLE["import, CPU"].run(side) < 60


# ---------------------------------------------------------------- fingerprints


def _of(function, *args) -> str:
    found = fingerprint(fxad.jit(function).lower(*args))
    assert found is not None
    return found


def test_fingerprints_are_of_code_and_plan() -> None:
    x = np.ones((40, 30), np.float32)
    tanh = _of(lambda x: jnp.tanh(x), x)
    assert _of(lambda y: jnp.tanh(y), x) == tanh
    assert _of(lambda x: jnp.sin(x), x) != tanh
    assert _of(lambda x: jnp.tanh(x), x[:39]) != tanh


def test_a_fingerprint_does_not_depend_on_what_was_compiled_before() -> None:
    x = np.ones((40, 31), np.float32)
    both = _of(lambda x: (jnp.tanh(x), jnp.sum(jnp.cos(x))), x)
    fxad.jit(lambda x: jnp.tanh(x))(x)
    assert _of(lambda y: (jnp.tanh(y), jnp.sum(jnp.cos(y))), x) == both


def test_machine_code_leaves_names_of_kernels_out() -> None:
    lowered = fxad.jit(lambda x: jnp.tanh(x) + 1).lower(np.ones(33, np.float32))
    (code,) = lowered.executable.codes.values()
    image = code.module.image
    named = code.name.encode()
    assert named in image and named not in machine_code(image)
    assert machine_code(image.replace(named, named[:-1] + b"_")) != b""


# ---------------------------------------------------------------- what is printed and kept


def test_an_unknown_revision_is_a_clear_error() -> None:
    with pytest.raises(UnknownRevision, match="--base v9: no such commit here; try a branch"):
        sides.commit_of("v9")
    started = [sys.executable, "-m", "benchmarks", "guard", "--base", "v9"]
    done = subprocess.run(started, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "--base v9: no such commit here" in done.stderr


def test_a_pattern_without_cases_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as bad:
        command.guard(["--base", "HEAD", "--cases", "nothing"])
    assert bad.value.code == 2
    assert "no case matches nothing; there are: step gpt2" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    started = [sys.executable, "-m", "benchmarks", "guard", "--base", "HEAD", "--cases", "exp*"]
    process = subprocess.Popen(
        started, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE
    )
    with process:
        for _ in range(600):
            if logs := list(tmp_path.glob("guard-*/tree.log")):  # a worker has started
                break
            time.sleep(0.1)
        assert logs
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"stopped: nothing is kept" in process.stderr.read()
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


def test_rows_and_reports(tmp_path: Path) -> None:
    found = estimate(drawn(math.log(1.05), 0.001, 0))
    times = {"base": 0.0010, "tree": 0.00105}
    made = results.row("exp", "s", times, found, 0.0, share=0.9, ceiling="reading")
    assert made["verdict"] == SLOWER and made["change"] == pytest.approx(0.05, abs=0.005)
    same = {"case": "log", "unit": "s", "verdict": results.SAME}
    text = results.table([made, same])
    assert "1 ms" in text and "1.05 ms" in text and "slower" in text
    assert "same code on both sides, not timed (1): log" in text
    about = {"commit": "b" * 40, "date": "2026-01-02 10:00", "command": "guard"}
    results.write(tmp_path / "some" / "b.json", about, [made, same])
    before = {"commit": "a" * 40, "date": "2026-01-01 10:00", "command": "guard"}
    log = results.row("log", "s", times, found, 0.0, peers={"torch": 2.5})
    results.write(tmp_path / "some" / "a.json", before, [log])
    lines = results.report("some", tmp_path).splitlines()
    assert lines[-2].startswith("| exp | 1.05 ms | 0.90 reading |  | +5.0%, slower | 2026-01-02")
    assert lines[-1].startswith("| log | 1.05 ms |  | torch 2.50 | same code | 2026-01-01")
    with pytest.raises(ValueError, match="no results of 'other'; there are: some"):
        results.report("other", tmp_path)


def test_cases_are_about_sixty_and_run() -> None:
    assert 50 <= len(CASES) + len(WHOLE) <= 80
    for name in ("exp, float64", "loop with cond", "Cholesky, 200 x 200", "eager gradient"):
        CASES[name].build().run()


# ---------------------------------------------------------------- kinds
