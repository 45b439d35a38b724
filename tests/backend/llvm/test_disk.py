"""Compiled programs on disk: what is found again, what is not, and what is not trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import cache_key
from fxad.api import compiled
from fxad.backend.llvm import cache, disk
from fxad.backend.llvm.native import entries
from fxad.backend.llvm.native import library as native
from fxad.cache_key import key
from fxad.core.config import config
from fxad.core.errors import CacheWarning
from fxad.ir.digest import digest
from fxad.ir.program import OPS, subprograms
from fxad.ops import OWN
from fxad.ops.elements.pointwise import prim, unary

ROOT = Path(__file__).parents[3]
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """A cache of its own, for programs of any size."""
    native.runtime()  # has an entry of its own
    monkeypatch.setattr(disk, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(entries, "_warned", set())
    with config.override(check=False, cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def lowered(function, *args, **options):
    """The function's stages as a new process would make them."""
    compiled._executables.clear()
    cache.kernels.clear()
    return fxad.jit(function, **options).lower(*args)


def files(where):
    return sorted(path for path in where.iterdir() if path.name != entries.TAG)


@pytest.fixture
def no_planning(monkeypatch):
    """From the call of what this gives on, nothing may be planned."""

    def refuse(*args, **kwargs):
        raise AssertionError("planned although there is an entry")

    return lambda: monkeypatch.setattr("fxad.compiler.planned", refuse)


def mlp(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def scanned(x):
    return fxad.lax.scan(lambda c, v: (c * 0.9 + v, jnp.sin(c)), x[0], x)


def branched(x):
    return fxad.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: -v, x)


def halved(x):
    return fxad.lax.while_loop(lambda v: jnp.sum(v * v) > 0.1, lambda v: v / 2, x)


def sorted_and_gathered(x):
    order = jnp.argsort(x[:, 0])
    return x[order], x.astype(jnp.complex64) * 2j, x.astype(jnp.float16).sum(), x > 0.5


@fxad.custom_vjp
def swish(x):
    return x * fxad.nn.sigmoid(x)


# The function itself in its own rule leaves a call, with its rules, in programs of gradients.
swish.defvjp(
    lambda x: (swish(x), x),
    lambda x, d: (d * fxad.grad(lambda y: jnp.sum(y * fxad.nn.sigmoid(y)))(x),),
)


@fxad.custom_jvp
def cubed(x):
    return x**3


cubed.defjvp(lambda primals, tangents: (cubed(*primals), 3 * primals[0] ** 2 * tangents[0]))


def ruled(x):
    return fxad.lax.scan(lambda c, v: (swish(c) + cubed(v), swish(v)), x[0], x)[1].sum()


PROGRAMS = [
    ("custom rules", fxad.grad(lambda x: swish(cubed(x)).sum()), (X,)),
    ("custom rules in a scan", fxad.value_and_grad(ruled), (X,)),
    ("gradient", fxad.grad(mlp), (X.T.copy(), X)),
    ("scan", scanned, (X,)),
    ("scan gradient", fxad.grad(lambda x: scanned(x)[1].sum()), (X,)),
    ("cond", branched, (X,)),
    ("while", halved, (X,)),
    ("while gradient", fxad.grad(lambda x: halved(x).sum()), (X,)),
    ("sort", sorted_and_gathered, (X,)),
]


@pytest.mark.parametrize(("name", "function", "args"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_an_entry_gives_the_same_bits_and_texts(cached, no_planning, name, function, args):
    first = lowered(function, *args)
    before = first.executable
    wanted = before.run(list(args))
    texts = first.llvm, first.asm, len(first.kernels), str(first.plan)
    assert len(files(cached)) == 1
    no_planning()
    second = lowered(function, *args)
    after = second.executable
    assert after is not before
    for got, want in zip(after.run(list(args)), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    assert (second.llvm, second.asm, len(second.kernels)) == texts[:3]
    assert after.stats() | {"compile_seconds": 0} == before.stats() | {"compile_seconds": 0}


def products():
    """Two that pack and add up tiles with the same functions; the larger one's arguments."""
    few, more = np.ones((240, 96), np.float32), np.ones((480, 96), np.float32)
    args = more, np.arange(96 * 480, dtype=np.float32).reshape(96, 480) % 7
    lowered(jnp.matmul, few, args[1]).executable  # noqa: B018 - compiled
    return fxad.jit(jnp.matmul).lower(*args), args


def test_an_entry_holds_what_its_code_calls_of_others(cached, no_planning):
    second, args = products()
    assert any(code.module.calls for code in second.executable.codes.values())
    (expected,) = second.executable.run(args)
    del second
    no_planning()
    found = lowered(jnp.matmul, *args).executable
    np.testing.assert_array_equal(found.run(args)[0], expected)
    modules = [code.module for code in found.codes.values() if code.module.calls]
    assert modules
    known = {*cache.kernels._common.values()}  # later compilations call it too
    assert known >= {other for module in modules for other in module.calls.values()}


@pytest.mark.parametrize("damage", [lambda calls: dict.fromkeys(calls, 99), lambda calls: {}])
def test_an_entry_whose_images_do_not_fit_together_is_ignored(cached, monkeypatch, damage):
    rows = disk._Images.add

    def add(self, module):
        number = rows(self, module)
        self.rows = [(size, damage(calls)) for size, calls in self.rows]
        return number

    with monkeypatch.context() as patch:
        patch.setattr(disk._Images, "add", add)
        second, args = products()
        (expected,) = second.executable.run(args)
    with pytest.warns(CacheWarning, match="ignoring the damaged cache entry"):
        got = lowered(jnp.matmul, *args).executable.run(args)
    np.testing.assert_array_equal(got[0], expected)


def test_donation_of_entries(cached, no_planning):
    def step(state, x):
        return state + 2 * x

    assert lowered(step, X, X, donate_argnums=0).plan.donated == {0: 0}
    no_planning()
    assert lowered(step, X, X, donate_argnums=0).plan.donated == {0: 0}
    state, x = jnp.asarray(X), jnp.asarray(X)
    np.testing.assert_array_equal(fxad.jit(step, donate_argnums=0)(state, x), X + 2 * X)
    assert state.is_deleted()


def test_addresses_tell_apart_what_matters(cached, monkeypatch):
    def address(function, *args, donate=(), fusion=True):
        program = fxad.jit(function).lower(*args).traced
        return key(program, frozenset(donate), fusion, disk.identity)

    def twice(x):
        return x * 2

    found = {
        address(twice, X),
        address(twice, X, donate=[0]),
        address(twice, X, fusion=False),
        address(twice, X.T),
        address(twice, X.astype(np.int32)),
        address(lambda x: x * 3, X),
        address(lambda x: x * -0.0, X),
        address(lambda x: x * 0.0, X),
    }
    with config.override(isa="generic"):
        found.add(address(twice, X))
    with config.override(offload_memory=12345):
        found.add(address(twice, X))
    monkeypatch.setattr(cache_key, "_surroundings", lambda: "other sources")
    found.add(address(twice, X))
    assert len(found) == 11
    assert None not in found
    assert address(twice, X) == address(twice, X)


def _nowhere(program):
    """The program without lines, which are part of digests."""
    for eqn in program.eqns:
        eqn.where = ""
        for _, inner in subprograms(eqn):
            _nowhere(inner)
    return program


def test_digests_tell_apart_what_keys_do():
    a, b = jnp.asarray(X), jnp.asarray(X + 1)
    functions = [
        lambda x, y: (x + y, x),
        lambda x, y: (y + x, x),
        lambda x, y: (x + y, y),
        lambda x, y: (x + 1, x),
        lambda x, y: (x + 2, x),
        lambda x, y: (x - 1, x),
        lambda x, y: (jnp.sum(x, 0), x),
        lambda x, y: (jnp.sum(x, 1), x),
        lambda x, y: (jnp.sum(x, (0, 1)), x),
        lambda x, y: (jnp.sum(x > 0, 1), x),
        lambda x, y: (fxad.checkpoint(jnp.sin)(x), x),
        lambda x, y: (fxad.checkpoint(jnp.cos)(x), x),
        lambda x, y: (jnp.sin(x), x),
        lambda x, y: (swish(x), x),
        lambda x, y: (cubed(x), x),
        lambda x, y: (fxad.lax.map(swish, x), x),
        lambda x, y: (fxad.lax.map(cubed, x), x),
    ]
    programs = [_nowhere(fxad.jit(function).lower(a, b).traced) for function in functions]
    again = [_nowhere(fxad.jit(function).lower(a, b).traced) for function in functions]
    assert len({program.key() for program in programs}) == len(functions)
    assert len({digest(program, OWN) for program in programs}) == len(functions)
    assert [digest(p, OWN) for p in programs] == [digest(p, OWN) for p in again]


def with_rule(value, slope):
    """value(x) with a derivative of its own, which is not taken; in a loop too."""

    @fxad.custom_vjp
    def one(x):
        return value(x)

    one.defvjp(lambda x: (value(x), x), lambda x, ct: (slope(x) * ct,))
    return lambda x: fxad.lax.fori_loop(0, 2, lambda _, y: one(y), one(x))


def test_rules_that_are_not_called_do_not_keep_a_program_from_being_kept():
    functions = [
        with_rule(jnp.sin, jnp.cos),
        with_rule(jnp.sin, jnp.sin),
        with_rule(jnp.cos, jnp.sin),
    ]
    programs = [_nowhere(fxad.jit(function).lower(X).traced) for function in functions]
    assert "custom_vjp" in str(programs[0])
    found = [digest(program, OWN) for program in programs]
    assert None not in found and found[0] == found[1] != found[2]


def test_what_only_this_process_knows_is_not_kept(cached):
    mine = unary("disk_test_op", doc="x.", numpy=np.sin, dtypes="float", loops=prim("sin"))
    try:
        lowered(mine, X).compile()
    finally:
        del OPS["disk_test_op"]

    def printing(x):
        fxad.debug.print("{}", x[0, 0])
        return x + 1

    lowered(printing, X).compile()
    with config.override(cache=False):
        lowered(mlp, X.T, X).compile()
    with config.override(check=True):
        lowered(mlp, X.T, X).compile()
    assert not cached.exists() or not files(cached)


def test_quick_programs_are_not_kept(cached, monkeypatch):
    monkeypatch.setattr(disk, "WORTH_SECONDS", 1e9)
    lowered(mlp, X.T, X).compile()
    assert not cached.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[:20],
        lambda raw: b"",
        lambda raw: b"something else entirely" * 100,
        lambda raw: raw[:-1000] + bytes(1000),
        lambda raw: raw.replace(b'"plan"', b'"Plan"'),
    ],
)
def test_damaged_entries_are_ignored_with_one_warning(cached, damage):
    want = lowered(mlp, X.T, X).executable.run([X.T, X])
    (entry,) = files(cached)
    entry.write_bytes(damage(entry.read_bytes()))
    with pytest.warns(CacheWarning, match="ignoring the damaged cache entry"):
        got = lowered(mlp, X.T, X).executable.run([X.T, X])
    np.testing.assert_array_equal(got[0], want[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered(mlp, X.T, X).compile()  # the entry was replaced
        entry.write_bytes(b"damaged again")
        lowered(mlp, X.T, X).compile()  # one warning is enough


def test_an_entry_with_a_right_digest_but_wrong_content_is_ignored(cached):
    lowered(mlp, X.T, X).compile()
    (entry,) = files(cached)
    body = b"\x02" + bytes(7) + b"{}"
    entry.write_bytes(entries.seal(entry.stem, body) + body)
    with pytest.warns(CacheWarning, match="damaged"):
        lowered(mlp, X.T, X).compile()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX permissions")
def test_an_entry_under_the_name_of_another_is_ignored(cached):
    lowered(lambda x: x.sum(), X).executable.run([X])
    (wrong,) = files(cached)
    lowered(jnp.tanh, X).executable.run([X])
    (right,) = set(files(cached)) - {wrong}
    right.write_bytes(wrong.read_bytes())
    with pytest.warns(CacheWarning, match="ignoring the damaged cache entry"):
        got = lowered(jnp.tanh, X).executable.run([X])[0]
    np.testing.assert_allclose(got, np.tanh(X), rtol=1e-6)


def test_a_directory_that_others_may_write_to_is_not_used(cached):
    cached.mkdir()
    cached.chmod(0o777)
    with pytest.warns(CacheWarning, match="others"):
        lowered(mlp, X.T, X).compile()
    assert not files(cached)
    cached.chmod(0o700)
    lowered(mlp, X.T, X).compile()
    assert len(files(cached)) == 1
    cached.chmod(0o777)
    entries._warned.clear()
    with pytest.warns(CacheWarning, match="others"):
        lowered(mlp, X.T, X).compile()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX permissions")
def test_entries_are_private(cached):
    lowered(mlp, X.T, X).compile()
    (entry,) = files(cached)
    assert cached.stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o077 == 0


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with config.override(cache_dir=tmp_path / "file" / "cache"):
        with pytest.warns(CacheWarning, match="cannot write to the cache directory"):
            lowered(mlp, X.T, X).compile()
        lowered(mlp, X.T, X).compile()  # no further warning, which would be an error


def test_the_least_recently_used_entries_go_first(cached, monkeypatch):
    functions = [lambda x, n=n: x * n for n in (2.0, 3.0, 4.0)]
    for age, function in zip((100, 300, 200), functions, strict=True):
        before = set(files(cached)) if cached.exists() else set()
        lowered(function, X).compile()
        (made,) = set(files(cached)) - before
        os.utime(made, (time.time() - age,) * 2)
    lowered(functions[1], X).compile()  # used again
    stale = cached / f".fxad-{'0' * 16}.tmp"
    stale.write_bytes(b"")
    os.utime(stale, (time.time() - 7200,) * 2)
    sizes = [e.stat().st_size for e in files(cached) if e.suffix != ".tmp"]
    monkeypatch.setattr(entries, "BOUND", sum(sizes) + max(sizes) // 2)
    lowered(lambda x: x * 5.0, X).compile()
    assert len(files(cached)) == 3
    names = {
        key(fxad.jit(f).lower(X).traced, frozenset(), True, disk.identity) for f in functions[:2]
    }
    assert names <= {e.stem for e in files(cached)}


_CHILD = """
import numpy as np, fxad, fxad.numpy as jnp
from fxad.backend.llvm import disk
disk.WORTH_SECONDS = 0.0
x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
f = fxad.jit(fxad.grad(lambda v: jnp.sum(jnp.tanh(v @ v.T) ** 2)))
print(np.asarray(f(x)).tobytes().hex())
"""


def test_processes_share_entries(cached):
    environment = os.environ | {"FXAD_CACHE_DIR": str(cached), "FXAD_CACHE": "1"}
    command = [sys.executable, "-W", "error", "-c", _CHILD]

    def run(count):
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
            for _ in range(count)
        ]
        return [child.communicate(timeout=120)[0] for child in children]

    together = run(3)
    before = [entry.stat().st_ino for entry in files(cached)]
    assert len(before) == 2  # the program, and the native runtime
    assert len(set(together + run(1))) == 1
    assert len(together[0]) > 20
    assert [entry.stat().st_ino for entry in files(cached)] == before  # not written anew


def test_what_is_read_needs_no_compiler(cached):
    environment = os.environ | {"FXAD_CACHE_DIR": str(cached), "FXAD_CACHE": "1"}
    asked = "import sys; print(*[m for m in sys.modules if m.startswith('fxad.')])"
    command = [sys.executable, "-c", _CHILD + asked]

    def loaded():
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        return {*run.stdout.splitlines()[-1].split()}

    compiler = {
        "fxad.passes.offload",
        "fxad.lower",
        "fxad.rematerialization",
        "fxad.plan",
        "fxad.backend.llvm.emit",
    }
    assert compiler <= loaded()
    assert compiler.isdisjoint(loaded())


# ---------------------------------------------------------------- plans as text


def test_the_native_runtime_is_read_from_disk(cached, monkeypatch):
    fresh = native.runtime.__wrapped__
    first = fresh()
    (entry,) = files(cached)
    with monkeypatch.context() as patch:
        patch.setattr(native, "compile_modules", lambda *_: pytest.fail("compiled again"))
        assert fresh().worker != first.worker
        with config.override(cache=False), pytest.raises(pytest.fail.Exception):
            fresh()
    entry.write_bytes(b"damaged")
    with pytest.warns(CacheWarning, match="damaged"):
        fresh()
