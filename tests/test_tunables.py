"""No tuned number reaches a bit: all of them drawn at random give the same results.

The backend's are those of `Tuning`; those of passes, lowering and planning are `ir/heuristics.py`.
What bits do depend on is in `ir/orders.py` and nowhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.backend.llvm import measured
from fxad.backend.llvm.base.tuning import DEFAULT, Tuning
from fxad.backend.llvm.native.engine import host_target
from fxad.ir import heuristics, orders
from fxad.rematerialization import automatic

# What else the numbers of the rooms that know no backend may be.
HEURISTICS: dict[str, tuple[float, ...]] = {
    "LOAD_COST": (1.0, 40.0),
    "STORE_AND_LOAD_COST": (4.0, 200.0),
    "CHEAP_COST": (1.0, 60.0),
    "BROADCAST_COST": (1.0, 40.0),
    "INLINED_OPERATIONS": (20, 400),
    "ACCUMULATION_BYTES": (1 << 10, 1 << 30),
    "KERNEL_NODES": (4, 64),
    "SIBLING_GROUPS": (1, 16),
    "SHARED_ELEMENTS": (1, 1 << 20),
    "TINY_ELEMENTS": (1, 256),
    "FEW_ROWS": (2, 100),
    "LONG_ROWS": (1 << 8, 1 << 30),
    "PART_ELEMENTS": (64, 1 << 20),
    "MOST_PARTS": (2, 64),
    "EPILOGUE_BYTES": (0, 1 << 30),
    "NARROW_EPILOGUE_BYTES": (0, 1 << 30),
    "ROW_EPILOGUE_EXTENT": (16, 1 << 20),
    "SCRATCH_BYTES": (1 << 8, 1 << 14),
    "ROUNDED_ELEMENTS": (1 << 8, 1 << 30),
    "ROUNDED_READERS": (0, 8),
    "ROWS_APART_BYTES": (1 << 12, 1 << 40),
    "ROWS_APART_RATIO": (2, 64),
    "DELAYED_BYTES": (1 << 8, 1 << 30),
    "STREAMING_DISTANCE": (1 << 10, 1 << 40),
    "OFFLOAD_BUFFER_BYTES": (1 << 8, 1 << 40),
    "HOLE_BYTES": (0, 1 << 40),
}
REMATERIALIZATION = {"LEAST": (0, 1 << 40), "LARGE": (1 << 8, 1 << 30)}


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.asarray(
        jnp.asarray(np.random.default_rng(shape).standard_normal(shape, np.float32)).astype(dtype)
    )


def layer_norm(x, scale):
    centred = x - x.mean(-1, keepdims=True)
    return centred * fxad.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale


def products(x, w, v):
    """Of few rows and of many, with an epilogue, transposed, of odd K."""
    h = jnp.tanh(x @ w + 1)
    return h, x[:1] @ w, x[:3] @ v.T, h @ w.T, (x.T @ h).sum(0), x[:, :-1] @ w[1:]


def halves(x, w):
    return x @ w, x[:1] @ w, x[:2, :600] @ w.T[: x.shape[1]][:, :5], x.T @ x


def adam(w, m, v, x, y):
    g = fxad.grad(lambda w: ((x @ w - y) ** 2).mean())(w)
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (jnp.sqrt(v) + 1e-3), m, v


def attention(q, k, v):
    def total(q, k, v):
        out = fxad.nn.dot_product_attention(q, k, v, is_causal=True)
        return (out * out).sum(), out

    (_, out), grads = fxad.value_and_grad(total, (0, 1, 2), has_aux=True)(q, k, v)
    return out, grads


def decoding(q, k, v):
    return fxad.nn.dot_product_attention(q, k, v)


def rows(x, d, scale):
    y, pull = fxad.vjp(lambda x: layer_norm(x, scale), x)
    s, back = fxad.vjp(fxad.nn.softmax, x)
    return y, pull(d), s, back(d), jnp.log(jnp.exp(x).sum(-1))


def maps(x, y):
    return jnp.exp(x) * y, x * y + 1, fxad.nn.gelu(x), x.sum(), x.sum(0)


def sorts(x, small):
    parts = [small[:, :n] for n in (10, 60, 300)]
    return [jnp.sort(x), fxad.lax.top_k(x, 5), fxad.lax.top_k(x, 300), *map(jnp.sort, parts)]


def loops(x, w):
    def step(c, a):
        c = jnp.tanh(c @ w + a)
        return c, c.sum()

    def total(w):
        return fxad.lax.scan(lambda c, a: (jnp.sin(c @ w + a), c.sum()), x[0], x)[1].sum()

    return fxad.lax.scan(step, x[0], x), fxad.grad(total)(w)


def small_sums(x, lengths=(3, 7, 8, 12)):
    """Of few positions, at vectors of points or at one; transposes beside them. In f32 few are
    up to 7 or to 15 by the width of vectors, otherwise up to 1, 4 or 8 as drawn."""
    parts = [x[:, : n * 60].reshape(-1, n) for n in lengths]
    sums = [(p.sum(-1), (p * p).sum(-1), p.max(-1), p.T + 1, jnp.tanh(p).T) for p in parts]
    return sums, fxad.lax.cumsum(x, 1), x.T * 2, x[:5, :5].sum()


def small_loops(x, w):
    """Loops in loops, of bodies that are written out, in vectors, or neither."""

    def step(c, a):
        c = fxad.lax.fori_loop(0, 3, lambda _, v: jnp.sin(v @ w[:4, :4]) + a[:4], c)
        return c * (c * c).sum(), jnp.concatenate([c, c[:2] * 2])

    def until(v):
        return fxad.lax.while_loop(lambda v: (v * v).sum() > 0.1, lambda v: v @ w * 0.05, v)

    short = fxad.lax.scan(step, x[0, :4], x[:9])
    return short, fxad.lax.scan(step, x[0, :4], x), until(x[1]), (x[:7] @ w)[:3]


def concatenated(x, w):
    """A head's loss, a table's rows, parts that are put together."""
    parts = jnp.concatenate([x * 2, jnp.sin(x), x @ w[:, : x.shape[1]]], -1)
    labels = jnp.arange(x.shape[0]) % w.shape[1]

    def loss(w):
        logits = x @ w
        picked = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
        return (fxad.nn.logsumexp(logits, -1) - picked).mean()

    return parts, fxad.value_and_grad(loss)(w), w.T[labels]


CASES = {
    "products": (products, draw(203, 900), draw(900, 417), draw(130, 900)),
    "products of bf16": (
        halves,
        draw(130, 512, dtype="bfloat16"),
        draw(512, 600, dtype="bfloat16"),
    ),
    "Adam": (adam, *(draw(200, 450) for _ in range(3)), draw(300, 200), draw(300, 450)),
    "attention": (attention, *(draw(1, 700, 2, 32) for _ in range(3))),
    "attention of wide heads": (attention, *(draw(1, 130, 1, 160) for _ in range(3))),
    "a token's attention": (
        decoding,
        draw(2, 1, 4, 64),
        draw(2, 1500, 2, 64),
        draw(2, 1500, 2, 64),
    ),
    "rows": (rows, draw(60, 5000), draw(60, 5000), draw(5000)),
    "long rows": (rows, draw(3, 40_000), draw(3, 40_000), draw(40_000)),
    "maps": (maps, draw(300, 1111), draw(300, 1111)),
    "sorts": (sorts, draw(20_000), draw(40, 300)),
    "loops": (loops, draw(40, 24), draw(24, 24)),
    "sums of few positions": (small_sums, draw(33, 720)),
    "sums of few positions of bf16": (
        lambda x: small_sums(x, (4, 5, 9)),
        draw(33, 720, dtype="bfloat16"),
    ),
    "small loops": (small_loops, draw(40, 24), draw(24, 24)),
    "a head": (concatenated, draw(96, 64), draw(64, 3000)),
}


@contextlib.contextmanager
def drawn(seed: int, tuning: Tuning) -> Iterator[None]:
    """Every tunable number at random."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch, measured.tuned_by(tuning.drawn(rng)):
        for module, numbers in ((heuristics, HEURISTICS), (automatic, REMATERIALIZATION)):
            for name, others in numbers.items():
                patch.setattr(module, name, rng.choice([getattr(module, name), *others]))
        compiled.forget()
        try:
            yield
        finally:
            compiled.forget()


def results(case: str) -> list[bytes]:
    function, *args = CASES[case]
    found = fxad.jit(lambda *xs: function(*xs))(*args)
    return [np.asarray(leaf).tobytes() for leaf in fxad.tree.leaves(found)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_tuned_numbers_drawn_at_random_change_no_bit(case):
    expected, plain = results(case), host_target().tuning
    for seed in range(4):
        with drawn(seed, plain):
            assert results(case) == expected, f"seed {seed}"


def test_drawing_draws_and_changes_code():
    """Else the test above compares a program with itself."""
    one, other = (DEFAULT.drawn(random.Random(seed)) for seed in (0, 1))
    assert one != other and one != DEFAULT and DEFAULT.with_("equal") == DEFAULT
    function, *args = CASES["products"]
    plain = fxad.jit(lambda *xs: function(*xs)).lower(*args).asm
    with drawn(0, DEFAULT):
        assert fxad.jit(lambda *xs: function(*xs)).lower(*args).asm != plain


def test_every_number_says_where_it_was_measured_and_what_else_it_may_be():
    drawings = [DEFAULT.drawn(random.Random(n)) for n in range(40)]
    for name, value, where in DEFAULT.items():
        assert "2026" in where, name
        table, field = name.split(".")
        draws = {getattr(getattr(drawing, table), field) for drawing in drawings}
        assert value in draws and len(draws) > 1, name


def test_every_heuristic_is_drawn_and_says_where_it_comes_from():
    """In the comment before it, or before those it stands with."""
    blocks = re.findall(r"((?:# .+\n)+)((?:[A-Z_]+ = .+\n)+)", inspect.getsource(heuristics))
    where = {name: said for said, names in blocks for name in re.findall(r"^[A-Z_]+", names, re.M)}
    assert where.keys() == HEURISTICS.keys() == {n for n in vars(heuristics) if n.isupper()}
    for name, said in where.items():
        text = " ".join(line.removeprefix("# ") for line in said.splitlines())
        assert "2026" in text or "By reason" in text, name
        assert all(other != getattr(heuristics, name) for other in HEURISTICS[name]), name


def test_an_order_is_no_tunable():
    """A frozen number changes bits: that is what keeps it out of the tables."""
    assert orders.k_block(1024) == 512 and orders.k_block(0) == 0
    assert not {"K_BLOCK", "PARTIALS"} & {
        name.split(".")[1].upper() for name, *_ in DEFAULT.items()
    }
