"""Kinds of processors: told by what they can do; unknown ones are measured, once and carefully."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.backend.llvm import calibrate, measured
from fxad.backend.llvm.base import kinds
from fxad.backend.llvm.base.answers import DAY, RUNS, TRIES, Calibration
from fxad.backend.llvm.base.kinds import Kind
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.doctor import diagnosis
from fxad.backend.llvm.native import engine, entries
from fxad.backend.llvm.native.caches import own_caches
from fxad.core.config import config
from fxad.core.errors import CacheWarning
from fxad.ir import orders

K, M = 1 << 10, 1 << 20
ZEN4 = Kind.of({"sse4a", "avx512bf16"}, "avx512", 32 * K, M)
ZEN3 = Kind.of({"sse4a"}, "avx2", 32 * K, 512 * K)
HIDDEN = Kind.of({"sse4a"}, "avx2", 32 * K, M)  # a Zen 4 whose AVX-512 is hidden
ZEN5 = Kind.of({"sse4a", "avx512bf16", "avx512vp2intersect"}, "avx512", 48 * K, M)
XEON = Kind.of({"avx512bf16", "amx-tile", "amx-bf16"}, "avx512", 48 * K, 2 * M)
# A kind that nobody measured.
STRANGE = Kind.of({"avx512bf16"}, "avx512", 64 * K, 4 * M)


def test_a_kind_is_features_and_a_cores_own_caches():
    assert ZEN4.name == "amd-avx512-bf16-l1-32k-l2-1m"
    assert ZEN5.name == "amd-avx512-bf16-vp2intersect-l1-48k-l2-1m"
    assert XEON.name == "intel-avx512-bf16-amx-l1-48k-l2-2m"
    assert Kind.of({"amx-tile", "amx-bf16"}, "avx2").name == "other-avx2"  # said of AVX-512 alone
    assert Kind.of({"neon"}, "neon").name == "other-neon"
    assert Kind.of({"avx512bf16"}, "avx2", 32 * K, 512 * K).name == "other-avx2-l1-32k-l2-512k"


def test_each_known_kind_has_the_prefetch_that_was_measured_on_it():
    """Past the second level (0) is right on a Zen 5 alone; on a Xeon it takes 2.3 times as long."""
    measured = (ZEN3, ZEN4, HIDDEN, ZEN5, XEON)
    levels = {kind: kinds.known(kind).gemv.prefetch_level for kind in measured}
    assert levels == {ZEN3: 3, ZEN4: 2, HIDDEN: 2, ZEN5: 0, XEON: 3}
    for kind in (STRANGE, Kind.of({"avx2"}, "avx2"), Kind.of(set(), "generic")):
        assert kinds.known(kind) is None and kinds.safe(kind).gemv.prefetch_level == 3
    names = {"Zen 3", "Zen 4", "Zen 4 without AVX-512", "Zen 5", "Xeon with AMX"}
    assert {one.name for one in kinds.table().values()} == names


def test_rows_are_cut_for_as_many_cores_as_there_are():
    shared = [kinds.for_cores(DEFAULT, cores).gemv.units for cores in (1, 2, 6, 96)]
    assert shared == [2, 2, 6, 8] and kinds.for_cores(DEFAULT, 96).amx.b_stationary_units == 96


def test_capabilities_that_reach_bits_follow_from_features_alone():
    assert kinds.capabilities(ZEN4, tiles=True) == {"avx512_bf16", "bf16_pairs"}
    assert kinds.capabilities(XEON, tiles=True) == {"avx512_bf16", "amx_bf16"}
    assert kinds.capabilities(XEON, tiles=False) == {"avx512_bf16"}
    units = [orders.bf16_unit(kinds.capabilities(k, tiles=True)) for k in (ZEN4, XEON, STRANGE)]
    assert units == ["pairs", "tiles", "lanes"]


def test_caches_are_those_of_one_core(tmp_path):
    """A third level is not looked at, however large it says it is."""
    told = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    for number, facts in enumerate([*told, ("3", "Unified", "491520K")]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        for name, text in zip(("level", "type", "size"), facts, strict=True):
            (folder / name).write_text(text + "\n")
    assert own_caches(tmp_path) == (48 * K, 2 * M)
    (tmp_path / "sys/devices/system/cpu/cpu0/cache/index0/size").write_text("many")
    assert own_caches(tmp_path) == (0, 2 * M) and own_caches(tmp_path / "none") == (0, 0)


def test_code_does_not_depend_on_what_the_processor_is_called(monkeypatch):
    def assembly():
        compiled.forget()
        return fxad.jit(lambda x, w: jnp.tanh(x @ w)).lower(X, X).asm

    expected = assembly()
    monkeypatch.setattr(engine.llvm, "get_host_cpu_name", lambda: "pentium4")
    assert assembly() == expected and engine.host_cpu_name() == "pentium4"


X = np.ones((64, 64), np.float32)


# ---------------------------------------------------------------- calibration


def planted(monkeypatch, ratios, seconds=0.001):
    """What measuring a variant says: its share of the safe choice's time, turn by turn."""
    calls, turns = [], iter([r for ratio in ratios for r in (1.0, ratio)])
    monkeypatch.setattr(calibrate, "call_of", lambda *a: calls.append(a) or len(calls))
    warm = iter([True, True])

    def timed(call, repeats):
        return seconds if next(warm, False) else seconds * next(turns)

    monkeypatch.setattr(calibrate, "timed", timed)
    question = calibrate.Question(
        "gemv", "prefetch_level", (2,), lambda: calibrate.product(1, 64, 64)
    )
    target = engine.host_target().tuned(gemv={"prefetch_level": 3})
    answers, unanswered = calibrate.calibrate(target, 60.0, questions=[question])
    assert unanswered == 0
    return answers


@pytest.mark.parametrize(("won", "value"), [(8, 3), (9, 2), (11, 2)])
def test_a_variant_must_win_nine_turns_of_eleven(monkeypatch, won, value):
    (answer,) = planted(monkeypatch, [0.9] * won + [1.5] * (RUNS - won))
    assert (answer.value, answer.safe, answer.wins) == (value, 3, won)
    assert str(answer).startswith(
        "gemv.prefetch_level 2" if value == 2 else "gemv.prefetch_level stays 3"
    )


def test_less_than_five_percent_is_no_win(monkeypatch):
    (answer,) = planted(monkeypatch, [0.96] * RUNS)
    assert (answer.value, answer.wins) == (3, 0)


def test_there_is_an_end_to_it():
    small = calibrate.Question(
        "gemv", "prefetch_level", (2, 0), lambda: calibrate.product(1, 512, 512)
    )
    target = engine.host_target()
    assert calibrate.calibrate(target, 0.0, questions=[small]) == ([], 1)
    (answer,), unanswered = calibrate.calibrate(target, 60.0, questions=[small])
    assert answer.value in (0, 2, 3) and unanswered == 0
    assert calibrate.calibrate(target, 60.0, [answer], [small]) == ([], 0)  # not asked again


LEVEL = calibrate.Answer("gemv", "prefetch_level", 2, 3, 11, 0.5)


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A processor of no known kind, with a cache of its own; what it answers when it is asked."""
    asked = []

    def answers(target, seconds, before):
        asked.append(seconds)
        return [LEVEL], 0

    monkeypatch.setattr(calibrate, "calibrate", answers)
    monkeypatch.setattr(measured, "known", lambda kind: None)
    monkeypatch.setattr(measured, "_answers", {})
    monkeypatch.setattr(entries, "_warned", set())
    with config.override(cache=True, calibrate=True, cache_dir=tmp_path / "cache"):
        yield asked


def test_an_unknown_kind_is_measured_once(strange):
    target = measured.target_of(None)
    assert target.tuning.gemv.prefetch_level == 2 and target.tuning.name == "calibrated"
    assert strange == [measured.SECONDS] and measured.SECONDS <= 2
    measured._answers.clear()  # as a new process
    assert measured.target_of(None).tuning == target.tuning and len(strange) == 1
    assert "gemv.prefetch_level 2 instead of 3: ahead in 11 of 11" in str(diagnosis(measure=False))
    assert measured.target_of("generic").tuning == DEFAULT  # not the processor's best


def test_tune_without_a_function_measures_the_processor(strange):
    assert fxad.tune().answers == measured.calibrated() and len(strange) == 1
    assert "gemv.prefetch_level 2 instead of 3" in str(fxad.tune())


@pytest.mark.parametrize("setting", ["cache", "calibrate"])
def test_measuring_can_be_left_out(strange, setting):
    with config.override(**{setting: False}):
        assert measured.target_of(None).tuning == engine.host_target().tuning
    assert not strange


def test_a_machine_that_was_busy_is_asked_again_on_another_day(strange, monkeypatch):
    """What was answered is kept; what was not is asked once a day, on `TRIES` days at most."""
    clock, busy, known = [1_000_000_000.0], [True], []

    def answers(target, seconds, before):
        known.append(before)
        return ([], 2) if busy[0] else ([LEVEL], 1)

    monkeypatch.setattr(calibrate, "calibrate", answers)
    monkeypatch.setattr(measured.time, "time", lambda: clock[0])

    def started(later):
        """What a process that starts so much later compiles with."""
        clock[0] += later
        measured._answers.clear()
        return measured.target_of(None).tuning.gemv.prefetch_level

    safe = engine.host_target().tuning.gemv.prefetch_level
    assert started(0) == safe and len(known) == 1
    assert "2 questions unanswered" in str(diagnosis(measure=False))
    assert started(DAY - 1) == safe and len(known) == 1
    busy[0] = False
    assert started(1) == 2 and known == [(), ()]
    busy[0] = True
    for _ in range(2 * TRIES):
        assert started(DAY) == 2
    assert len(known) == TRIES and known[-1] == (LEVEL,)
    assert f"on {TRIES} days; fxad.tune() asks" in str(diagnosis(measure=False))
    clock[0] -= 2 * DAY  # put back
    assert fxad.tune().answers == () and len(known) == TRIES + 1 and known[-1] == ()


@pytest.mark.parametrize(
    "damage",
    [
        b"[",
        b"{}x",
        b"[[1]]",
        b"\xff{}",
        b"[" * 100_000,
        b'{"answers": [["gemv", "prefetch_level", 7, 3, 1, 1]], "unanswered": 0, "tries": 1}',
        b'{"answers": [["gemv", "most_rows", 7, 8, 1, 1]], "unanswered": 0, "tries": 1, "when": 9}',
        b'{"answers": [["gemv", "none", 2, 3, 1, 1]], "unanswered": 0, "tries": 1, "when": 9}',
        b'{"answers": [], "unanswered": 0, "tries": true, "when": 9}',
        b'{"answers": [], "unanswered": 0, "tries": 1, "when": 9, "when": 9}',
    ],
)
def test_a_damaged_calibration_is_made_anew(strange, damage):
    measured.target_of(None)
    measured.calibration_file().write_bytes(damage)
    measured._answers.clear()
    with pytest.warns(CacheWarning, match="damaged calibration"):
        assert measured.target_of(None).tuning.gemv.prefetch_level == 2
    assert len(strange) == 2
    assert Calibration.parse(measured.calibration_file().read_bytes()).answers == (LEVEL,)


# ---------------------------------------------------------------- what it all depends on


def test_what_bits_depend_on_is_told_and_is_part_of_keys(monkeypatch):
    found = fxad.bits_depend_on()
    assert all(isinstance(name, str) and isinstance(fact, str) for name, fact in found.items())
    assert found["bf16 products"] == orders.bf16_unit(measured.target_of(config.isa).features)
    for name, value in orders.constants().items():
        if isinstance(value, int):
            with monkeypatch.context() as patch:
                patch.setattr(orders, name, value + 1)
                assert fxad.bits_depend_on() != found, name
    with config.override(isa="generic"):
        assert fxad.bits_depend_on() != found


def test_doctor_tells_what_was_detected_and_chosen():
    told = subprocess.run(
        [sys.executable, "-m", "fxad", "doctor", "--no-measure"], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    kind = engine.host_kind()
    for word in (kind.name, "chosen for it", "what bits depend on", "orders", "cache"):
        assert word in told.stdout
    measuring = str(diagnosis())
    assert "GFLOP/s of float32 on registers" in measuring and "GB/s from memory" in measuring
