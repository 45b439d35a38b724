"""Tables of tiles: no entry changes a bit; what was measured is found again, damage is not."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from contracts import Sketch

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.backend.llvm import measured
from fxad.backend.llvm.base.choices import MODEL, TABLES, Choice, Choices
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.contract.autotune import class_of, table_of
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.native import entries
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.core.errors import BadArgument, CacheWarning
from fxad.core.record import replace

F32, BF16 = np.dtype("float32"), np.dtype(ml_dtypes.bfloat16)
W, X = (np.random.default_rng(i).random((160, 160), np.float32) for i in range(2))


def targets() -> list[Target]:
    """What this machine runs: its own instruction set, B from the other level of the caches, pairs
    of bfloat16, AVX2, none."""
    host = host_target()
    lower = ["generic"] if host.isa in ("generic", "neon") else ["avx2", "generic"]
    found = [host, *(host_target(name) for name in lower if name != host.isa)]
    flag = not host.tuning.gemm.panels_in_l2
    found.append(host.tuned(gemm={"panels_in_l2": flag}))
    if "avx512_bf16" in host.features:
        found.append(Target(host.isa, frozenset({"bf16_pairs"})))
    return found


def operands(size: tuple[int, int, int], layout: str, dtype: np.dtype):
    rng = np.random.default_rng(0)
    m, n, k = size
    shapes = ((m, k), (k, n))
    for shape, letter in zip(shapes, layout, strict=True):
        whole = rng.standard_normal(shape if letter == "N" else shape[::-1], F32).astype(dtype)
        yield (whole if letter == "N" else whole.T), whole


def every(table: str) -> list[Choice]:
    """Every entry of a table, and some together."""
    own = TABLES[table]
    alone = list(itertools.chain(*own.variants(MODEL)))
    both = itertools.product(own.tiles[1:3], own.b_bytes[:1], own.rows[:1])
    return alone + [Choice(h, v, b_bytes, rows) for (h, v), b_bytes, rows in both]


CASES = [
    ((203, 250, 800), "NN", F32),
    ((403, 400, 300), "TN", F32),
    ((200, 130, 1600), "NT", BF16),
]


@pytest.mark.slow
@pytest.mark.parametrize("target", targets(), ids=lambda t: "-".join([t.isa, *sorted(t.features)]))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_choice_changes_a_bit(case, target):
    size, layout, dtype = case
    a, b = operands(size, layout, dtype)
    expected, out = (np.full(size[:2], np.nan, F32) for _ in range(2))
    emitted = Sketch(a, b, expected).run(target=target)
    problem = Problem.of(Sketch(a, b, out).kernel())
    key, others = class_of(problem, target), 0
    entries = every(table_of(problem, target))
    # All of them here, for each table, a half for every second case; elsewhere a sixth for each
    # case, a third where one case alone has the table.
    n, bf16 = CASES.index(case), dtype != F32
    here = target == host_target()
    for choice in entries[n % 2 :: 1 + n % 2] if here else entries[n :: 3 if bf16 else 6]:
        out[:] = np.nan
        chosen = replace(target, choices=Choices({key: choice}))
        text = Sketch(a, b, out).run(target=chosen, cuts=(1, 3)).text
        others += text != emitted.text
        np.testing.assert_array_equal(out, expected, str(choice))
    assert others
    wide = a[0].astype(np.float64) @ b[0].astype(np.float64)
    np.testing.assert_allclose(expected, wide, atol=1e-3 if dtype == F32 else 1e-2)


def test_tables_leave_registers_for_b_and_a_factor():
    for name, table in TABLES.items():
        if name != "amx":
            registers = Target(name.split("_")[0]).registers
            assert all(h * v + v + 2 <= registers for h, v in table.tiles), name


def test_choices_are_of_their_table():
    text = Choices({"avx2 float32 m n 8.8.8": Choice(6, 2, 16384, 96)}).text()
    assert Choices.parse(text) == Choices({"avx2 float32 m n 8.8.8": Choice(6, 2, 16384, 96)})
    for key, choice in [
        ("avx2 float32", Choice(14, 2)),  # spills
        ("avx512 float32", Choice(b_bytes=1 << 30)),
        ("amx bfloat16", Choice(rows=192)),
        ("sse9 float32", MODEL),
        ("", MODEL),
    ]:
        with pytest.raises(ValueError, match="not in the table"):
            Choices({key: choice})


def test_products_of_one_class_are_alike():
    target = host_target()

    def key(size, layout="NN", dtype=F32):
        a, b = operands(size, layout, dtype)
        return class_of(Problem.of(Sketch(a, b, np.empty(size[:2], F32)).kernel()), target)

    assert key((200, 300, 400)) == key((250, 257, 511))
    assert len({key((200, 300, 400)), key((300, 300, 400)), key((200, 300, 400), "NT")}) == 3
    assert "pages" in key((200, 300, 1024)) and "pages" not in key((200, 300, 1000))


# ---------------------------------------------------------------- measured, kept and found again


@pytest.fixture
def cached(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "_own", {})
    monkeypatch.setattr(entries, "_warned", set())
    compiled.forget()
    with config.override(check=False, cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"
    compiled.forget()


def step(w, x):
    return jnp.tanh(x @ w), x.T @ w


def table(where):
    (path,) = where.glob("tiles-*.json")
    return path


def test_tune_measures_once_and_later_processes_find_it(cached):
    before = [np.asarray(v) for v in fxad.jit(step)(W, X)]
    report = fxad.tune(step, W, X, seconds=0.002)
    assert len(report.products) == 2 and report.known == 0
    assert report.path == table(cached)
    assert str(report).count("160x160x160") == 2
    assert all(one.before > 0 and one.after > 0 for one in report.products)
    written = report.path.stat().st_mtime_ns
    kept = compiled.executable(fxad.jit(step).trace_for((W, X), {})[1].program)
    again = fxad.tune(step, W, X, seconds=0.002)
    assert not again.products and again.known == 2 and again.path == report.path
    assert report.path.stat().st_mtime_ns == written
    assert compiled.executable(fxad.jit(step).trace_for((W, X), {})[1].program) is kept
    found = measured.current()
    measured._own.clear()  # as a new process
    assert measured.current() == found and len(found.items()) == 2
    assert len(fxad.tune(step, W, X, seconds=0.002, again=True).products) == 2
    for old, new in zip(before, fxad.jit(step)(W, X), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_file_that_does_not_exist_is_not_named(cached):
    report = fxad.tune(jnp.tanh, X, seconds=0.002)  # no products in it
    assert not report.products and report.path is None and "nothing is kept" in str(report)


def test_what_was_measured_is_compiled(cached):
    jitted = fxad.jit(lambda w, x: x @ w)
    (kernel,) = jitted.lower(W, X).kernels
    plain = host_target(config.isa)
    key = class_of(Problem.of(kernel), plain)
    choice = TABLES[key.split()[0]].variants(MODEL)[0][-1]
    assert measured.adopt({key: choice}) == table(cached)
    measured._own.clear()
    compiled.forget()
    target = measured.target_of(config.isa)
    assert target.choices.of(key) == choice and target != plain
    assert emit_contract(kernel, "k", target).text != emit_contract(kernel, "k", plain).text
    executable = compiled.executable(jitted.trace_for((W, X), {})[1].program)
    assert [code.module.target for code in executable.codes.values()] == [target]


ADOPTS = """
from fxad.backend.llvm import measured
from fxad.backend.llvm.base.choices import Choice
for i in range(20):
    measured.adopt({f"avx2 float32 k n {i}.PART.8": Choice(6, 2)})
    measured._own.clear()
"""


def test_processes_that_measure_at_once_lose_nothing(cached):
    environment = {**os.environ, "FXAD_CACHE": "1", "FXAD_CACHE_DIR": str(cached)}
    parts = [
        subprocess.Popen([sys.executable, "-c", ADOPTS.replace("PART", part)], env=environment)
        for part in "12"
    ]
    assert [part.wait(timeout=120) for part in parts] == [0, 0]
    assert len(measured.current().items()) == 40


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"not json",
        b"[1, 2]",
        b'{"avx512 float32": [6, 4]}',
        b'{"avx512 float32": [6.0, 4, 0, 0]}',
        b'{"avx512 float32": [600, 4, 0, 0]}',
        b'{"avx512 float32": ',
    ],
)
def test_a_damaged_table_is_ignored(cached, content):
    key = "avx2 float32 k n 8.8.8"
    path = measured.adopt({key: Choice(6, 2)})
    assert path == table(cached)
    path.write_bytes(content)
    measured._own.clear()
    with pytest.warns(CacheWarning, match=r"damaged table of tiles .*fxad\.tune"):
        assert measured.current() == Choices()
    fxad.jit(step)(W, X)
    measured.adopt({key: Choice(3, 3)})
    measured._own.clear()
    assert measured.current() == Choices({key: Choice(3, 3)})


def test_without_a_cache_nothing_is_written(cached):
    with config.override(cache=False):
        report = fxad.tune(jnp.matmul, W, X, seconds=0.002)
        assert report.path is None
        assert str(report).endswith("measured before; nothing is kept after this process")
        assert len(measured.current().items()) == 1
    assert not cached.exists()
    assert measured.current() == Choices()


def test_choices_add_up_where_nothing_can_be_written(cached, tmp_path):
    (tmp_path / "file").write_text("")
    first, second = "avx2 float32 k n 8.8.8", "avx2 float32 k n 9.9.9"
    with config.override(cache_dir=tmp_path / "file" / "cache"):
        with pytest.warns(CacheWarning, match="cannot write"):
            assert measured.adopt({first: Choice(6, 2)}) is None
        assert measured.adopt({second: Choice(3, 3)}) is None
        assert measured.current() == Choices({first: Choice(6, 2), second: Choice(3, 3)})


def test_a_table_that_others_may_write_is_not_read(cached):
    measured.adopt({"avx2 float32 k n 8.8.8": Choice(6, 2)})
    measured._own.clear()
    assert len(measured.current().items()) == 1
    measured._own.clear()
    cached.chmod(0o777)
    with pytest.warns(CacheWarning, match="others"):
        assert measured.current() == Choices()


def test_bad_arguments(cached):
    with pytest.raises(BadArgument, match="seconds must be a number above 0"):
        fxad.tune(step, W, X, seconds=0)
    with pytest.raises(BadArgument, match="not '1'"):
        fxad.tune(step, W, X, seconds="1")
    with pytest.raises(BadArgument, match="inside jit"):
        fxad.jit(lambda w: fxad.tune(step, w, X).known)(W)
