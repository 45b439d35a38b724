"""bfloat16 values kept for the float32 ones that are made from them: fewer bytes, the same bits,
and plans without narrow values stay."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan, rematerialized

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.executable import Executable
from fxad.compiler import simplified
from fxad.rematerialization import automatic

R = np.random.default_rng(0)
DEPTH, ROWS, WIDTH = 4, 2048, 512
WIDE = 4 * ROWS * WIDTH  # bytes of one float32 activation


@pytest.fixture(autouse=True)
def _arenas_of_moderate_size(monkeypatch):
    monkeypatch.setattr(automatic, "LEAST", 8 << 20)


def heads(x):
    return x.reshape(2, ROWS // 2, -1, 64)


def attended(x, w):
    """Attention computes in float32 of the queries, keys and values that one product makes."""
    sums = jnp.dot(x, w, preferred_element_type=jnp.float32) + 1
    q, k, v = (heads(part) for part in jnp.split(sums.astype(x.dtype), 3, axis=1))
    return x + fxad.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)


def normed(x, w):
    """A norm centres in float32 what is stored in x's dtype."""
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    y = (centred * lax.rsqrt(variance + 1e-5)).astype(x.dtype)
    return x + jnp.dot(y, w, preferred_element_type=jnp.float32).astype(x.dtype)


def gradient(layer, columns, dtype):
    def loss(x, ws):
        for w in ws:
            x = layer(x, w)
        return jnp.sum(x.astype(jnp.float32) ** 2)

    x = jnp.asarray(R.standard_normal((ROWS, WIDTH)), dtype)
    ws = [jnp.asarray(0.05 * R.standard_normal((WIDTH, columns)), dtype) for _ in range(DEPTH)]
    program = simplified(fxad.jit(fxad.grad(loss, argnums=(0, 1))).lower(x, ws).traced)
    return program, [x, *ws]


def without_it(program, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(automatic, "exchange", lambda program, boundary: automatic.NOTHING)
        return rematerialized(program)


LAYERS = [(attended, 3 * WIDTH), (normed, WIDTH)]


@pytest.mark.parametrize(
    ("layer", "columns", "freed"), [(*LAYERS[0], 1.5 * DEPTH), (*LAYERS[1], 0.49 * (DEPTH - 1))]
)
def test_a_narrow_value_is_kept_with_the_same_bits(layer, columns, freed, monkeypatch):
    """Of a layer three activations take half their bytes. Or one does, beside the means of its rows
    (1 in 512), and the operand of the first layer is an argument."""
    program, args = gradient(layer, columns, jnp.bfloat16)
    _, before = without_it(program, monkeypatch)
    _, after = rematerialized(program)
    assert before.arena_bytes - after.arena_bytes >= freed * WIDE
    results = (Executable(p).run([np.array(a) for a in args]) for p in (after, plan(program)))
    for narrowed, plain in zip(*results, strict=True):
        assert np.asarray(narrowed).tobytes() == np.asarray(plain).tobytes()


@pytest.mark.parametrize(("layer", "columns"), LAYERS)
def test_float32_alone_stays(layer, columns, monkeypatch):
    program, _ = gradient(layer, columns, jnp.float32)
    (_, before), (_, after) = without_it(program, monkeypatch), rematerialized(program)
    assert str(after) == str(before)


def both(x, w):
    return attended(normed(x, w[:, :WIDTH]), w)


def with_plans(program, monkeypatch, refused):
    """What is chosen, and how many plans were compared; the first `refused` do not pay."""
    compared = []
    pays = automatic._pays

    def told(other, plan):
        compared.append(other)
        return len(compared) > refused and pays(other, plan)

    with monkeypatch.context() as patched:
        patched.setattr(automatic, "_pays", told)
        return rematerialized(program)[1], len(compared)


def test_cheap_values_and_narrow_ones_take_one_plan_together(monkeypatch):
    """Where both at once do not pay they are tried one after the other."""
    program, args = gradient(both, 3 * WIDTH, jnp.bfloat16)
    at_once, plans = with_plans(program, monkeypatch, 0)
    assert plans == 1
    in_turn, plans = with_plans(program, monkeypatch, 1)
    assert plans == 3
    before = plan(program)
    assert before.arena_bytes - at_once.arena_bytes >= WIDE * DEPTH
    assert before.arena_bytes - in_turn.arena_bytes >= WIDE * DEPTH
    results = (Executable(p).run([np.array(a) for a in args]) for p in (before, at_once, in_turn))
    plain, *changed = ([np.asarray(a).tobytes() for a in result] for result in results)
    assert changed == [plain, plain]
