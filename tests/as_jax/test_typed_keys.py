"""Typed random keys under the alias, and the same tests of JAX; in fxad itself keys are words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fxad
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.program import Var
from fxad.ir.text import parse
from fxad.ops.arrays.random import random_unwrap, random_wrap
from tests.as_jax.test_alias import ROOT

FILE = str(ROOT / "tests" / "as_jax" / "typed_keys_unchanged.py")


def passes(*plugin: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", FILE]
    done = subprocess.run(
        [*command, "-W", "ignore:fxad.as_jax"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.slow
def test_under_the_alias() -> None:
    passes("-p", "fxad.as_jax")


@pytest.mark.peers
def test_of_jax() -> None:
    pytest.importorskip("jax")
    passes()


def test_keys_of_fxad_are_words() -> None:
    key = fxad.random.key(3)
    assert (key.shape, key.dtype) == ((2,), dt.uint32)
    assert fxad.random.wrap_key_data(key).dtype == dt.uint32


WORDS = np.random.default_rng(0).integers(0, 2**32, (3, 2, 2), np.uint32)


@pytest.mark.parametrize("target", ["llvm", "cpu", "python"])
def test_words_of_keys_of_words(target: str) -> None:
    """Both ops on every backend: an axis of two words is one element, the first word lowest."""
    wide = WORDS[..., 0].astype(np.uint64) | WORDS[..., 1].astype(np.uint64) << np.uint64(32)
    wrap = fxad.jit(lambda x: random_wrap(x).T)
    unwrap = fxad.jit(lambda k: random_unwrap(k)[::-1])
    if target != "llvm":
        wrap, unwrap = wrap.on(target), unwrap.on(target)
    keys = wrap(WORDS)
    assert keys.type == ArrayType(dt.key, (2, 3))
    assert keys.data.view(np.uint64).tolist() == wide.T.tolist()
    assert np.asarray(unwrap(random_wrap(WORDS))).tolist() == WORDS[::-1].tolist()


def test_types_of_keys_in_text() -> None:
    program = fxad.make_ir(lambda w: random_unwrap(random_wrap(w)[0]))(WORDS)
    assert ": key<fry>[3,2] = random_wrap(w)" in str(program)
    again = parse(str(program))
    assert again.key() == parse(str(again)).key()
    assert [str(e.outputs[0].type) for e in again.eqns] == [
        "key<fry>[3,2]", "key<fry>[1,2]", "key<fry>[2]", "u32[2,2]"
    ]  # fmt: skip
    assert dt.from_short_name("key<fry>") == dt.key == Var(ArrayType(dt.key, ())).type.dtype
