"""What is kept beside compiled code, damaged at random: reading it raises nothing but ValueError.

Tables of tiles, calibrations and the JSON of entries go through the reader that is used for files
of strangers (`core/schema.py`). Machine code itself is guarded by its digest alone.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from damage import damaged

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm import disk
from fxad.backend.llvm.base.answers import Answer, Calibration
from fxad.backend.llvm.base.choices import Choice, Choices
from fxad.core.config import config
from fxad.ir import wire

COUNT = 700  # damaged files of each kind
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
CHOICES = Choices({f"avx2 float32 k n 8.8.{i}": Choice(6, 2, 16384, 96) for i in range(3)})
ANSWERS = (
    Answer("gemv", "prefetch_level", 2, 3, 11, 0.5),
    Answer("rows", "near_only", 1, 0, 9, 0.9),
)
CALIBRATION = Calibration(ANSWERS, unanswered=1, tries=2, when=1_700_000_000)


def executable():
    def function(x):
        return jnp.sort(jnp.tanh(x @ x.T)), fxad.lax.scan(lambda c, v: (c + v, c * v), x[0], x)

    return fxad.jit(function).lower(X).executable


def head():
    body = disk._packed(executable())
    (length,) = struct.unpack_from("<Q", body)
    return body[8 : 8 + length].decode(), len(body) - 8 - length


HEAD, IMAGES = head()


def read_head(content):
    """As of an entry with the same machine code after it."""
    return disk._head(struct.pack("<Q", len(content)) + content + bytes(IMAGES))


TEXTS = {
    "tiles": (CHOICES.text(), Choices.parse),
    "calibration": (CALIBRATION.text(), Calibration.parse),
    "plan": (wire.dumps(executable().plan, {})[0], wire.loads),
    "head of an entry": (HEAD, read_head),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_damaged_texts_raise_nothing_but_value_errors(kind):
    text, reading = TEXTS[kind]
    draw, refused = random.Random(kind), 0
    reading(text.encode())
    for _ in range(COUNT):
        try:
            reading(damaged(draw, text.encode()))
        except ValueError as error:
            refused += 1
            assert 10 < len(str(error)) < 3000
    assert refused > COUNT // 2


def test_texts_come_back():
    assert Choices.parse(CHOICES.text()) == CHOICES
    assert Calibration.parse(CALIBRATION.text().encode()) == CALIBRATION
    plan = executable().plan
    assert str(wire.loads(wire.dumps(plan, {})[0]).plan) == str(plan)


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        (b'{"a": [0, 0, 0, 0], "a": [0, 0, 0, 0]}', "appears twice"),
        (b'{"a": ' * 50_000, "nested deeper|no JSON"),
        (b'{"a": [[[0]], 0, 0, 0]}', "nested deeper than 2"),
        (b'{"a": [NaN, 0, 0, 0]}', "no JSON number"),
        (b'{"a": [true, 0, 0, 0]}', "must be an integer"),
        (b'{"' + b"a" * (1 << 20) + b'": 0}', "characters"),
    ],
)
def test_a_table_is_read_within_limits(content, saying):
    with pytest.raises(ValueError, match=saying):
        Choices.parse(content)


@pytest.mark.parametrize("change", [lambda images: images[:-1], lambda images: images + b"\0"])
def test_an_entry_whose_machine_code_has_another_size_is_refused(tmp_path, change):
    with config.override(check=False, cache=True, cache_dir=tmp_path / "cache"):
        body = disk._packed(executable())
        (length,) = struct.unpack_from("<Q", body)
        disk._unpacked(body)
        with pytest.raises(ValueError, match="another size"):
            disk._unpacked(body[: 8 + length] + change(body[8 + length :]))
