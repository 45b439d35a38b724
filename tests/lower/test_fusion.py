"""What becomes one kernel: a transformer block, a training step, and single patterns."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from fused import R, check, draw, kernels_of, kinds, program_of
from plan_walker import run_plan

import fxad
import fxad.numpy as jnp
from fxad.ir import heuristics
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Reduce
from fxad.ir.plan import Run, walk

BATCH, TIME, HEADS, DIM = 2, 8, 4, 16
WIDTH = HEADS * DIM


def layer_norm(x, scale, bias):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / jnp.sqrt(variance + 1e-5) * scale + bias


def softmax(x):
    e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def gelu(u):
    return 0.5 * u * (1 + jnp.tanh(0.7978845608 * (u + 0.044715 * u * u * u)))


def block(x, p):
    qkv = layer_norm(x, *p["norm1"]) @ p["qkv"] + p["qkv_bias"]
    heads = [
        t.reshape(BATCH, TIME, HEADS, DIM).transpose(0, 2, 1, 3) for t in jnp.split(qkv, 3, axis=-1)
    ]
    scores = jnp.einsum("bhqd,bhkd->bhqk", heads[0], heads[1]) * 0.25
    mask = jnp.tril(jnp.ones((TIME, TIME), bool))
    weights = softmax(jnp.where(mask, scores, -1e9))
    mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, heads[2])
    mixed = mixed.transpose(0, 2, 1, 3).reshape(BATCH, TIME, WIDTH)
    x = x + (mixed @ p["out"] + p["out_bias"])
    hidden = gelu(layer_norm(x, *p["norm2"]) @ p["up"] + p["up_bias"])
    return x + (hidden @ p["down"] + p["down_bias"])


def block_params():
    return {
        "norm1": [draw(WIDTH), draw(WIDTH)],
        "qkv": draw(WIDTH, 3 * WIDTH),
        "qkv_bias": draw(3 * WIDTH),
        "out": draw(WIDTH, WIDTH),
        "out_bias": draw(WIDTH),
        "norm2": [draw(WIDTH), draw(WIDTH)],
        "up": draw(WIDTH, 4 * WIDTH),
        "up_bias": draw(4 * WIDTH),
        "down": draw(4 * WIDTH, WIDTH),
        "down_bias": draw(WIDTH),
    }


def test_a_transformer_block_is_nine_kernels() -> None:
    params = block_params()
    leaves, tree = fxad.tree.leaves(params), fxad.tree.structure(params)

    def f(x, *leaves):
        return (block(x, fxad.tree.unflatten(tree, list(leaves))),)

    made = check(f, draw(BATCH, TIME, WIDTH), *leaves)
    norm_qkv = ["row", "contract"]
    attention = ["contract", "row", "contract", "contract"]
    mlp = ["row", "contract", "contract"]
    assert kinds(made) == norm_qkv + attention + mlp


def training_step(layers: int):
    """AdamW on `layers` blocks and a cross-entropy over 50 tokens, with its arguments."""
    params = {"embed": draw(50, WIDTH), "blocks": [block_params() for _ in range(layers)]}
    leaves, tree = fxad.tree.leaves(params), fxad.tree.structure(params)
    n = len(leaves)

    def loss(params, tokens, targets):
        x = params["embed"][tokens]
        for p in params["blocks"]:
            x = block(x, p)
        logits = x @ params["embed"].T
        shifted = logits - fxad.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
        picked = jnp.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]
        return jnp.mean(jnp.log(jnp.sum(jnp.exp(shifted), axis=-1)) - picked)

    def step(*args):
        params = fxad.tree.unflatten(tree, list(args[:n]))
        tokens, targets, rate = args[3 * n :]
        value, grads = fxad.value_and_grad(loss)(params, tokens, targets)
        out = [[], [], []]
        for p, m, v, g in zip(
            args[:n], args[n : 2 * n], args[2 * n : 3 * n], fxad.tree.leaves(grads), strict=True
        ):
            m = 0.9 * m + 0.1 * g
            v = 0.99 * v + 0.01 * g * g
            moved = p - rate * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p)
            for values, value_ in zip(out, (moved, m, v), strict=True):
                values.append(value_)
        return [*out[0], *out[1], *out[2], value]

    tokens = [R.integers(0, 50, (BATCH, TIME)).astype(np.int32) for _ in range(2)]
    moments = [x * 0.01 for x in leaves] + [x * x * 0.01 for x in leaves]
    return step, [*leaves, *moments, *tokens, np.full((), 1e-3, np.float32)], n


def test_a_training_step_updates_donated_state_in_place() -> None:
    step, args, n = training_step(2)
    made = check(step, *args, donate=frozenset(range(3 * n)))
    assert made.donated == {i: i for i in range(3 * n)}
    # Every weight's update happens in the kernel that computes its gradient.
    weights = {x.size for x in args[:n] if x.ndim == 2} - {50 * WIDTH}
    for kernel in kernels_of(made):
        for buffer in kernel.buffers:
            if buffer.role == "inout" and buffer.size in weights:
                assert kernel.kind in ("contract", "row")


def test_layers_share_kernels() -> None:
    count = []
    for layers in (2, 4):
        step, args, n = training_step(layers)
        program, _ = program_of(step, *args)
        made = plan(program, donate=frozenset(range(3 * n)))
        count.append(len({kernel_key(k) for k in kernels_of(made)}))
    assert count[0] == count[1]


def test_reductions_of_columns_share_a_pass() -> None:
    def f(dy, x):
        return dy.sum(axis=0), (dy * x).sum(axis=0)

    assert kinds(check(f, draw(20, 70), draw(20, 70))) == ["row"]


def test_rows_of_two_axes() -> None:
    def f(x):
        mean = x.mean(axis=(1, 2), keepdims=True)
        return (x - mean) / jnp.sqrt(jnp.square(x - mean).mean(axis=(1, 2), keepdims=True) + 1e-5)

    assert kinds(check(lambda x: (f(x),), draw(20, 6, 10))) == ["row"]


def test_softmax_gradient_is_one_kernel() -> None:
    def f(x, ct):
        y, back = fxad.vjp(softmax, x)
        return y, back(ct)[0]

    assert kinds(check(f, draw(17, 70), draw(17, 70))) == ["row"]


def test_cross_entropys_gradient_is_one_kernel_without_a_sum_over_what_is_zero() -> None:
    """The sum over a scatter of one element per row is that element."""
    labels = np.array([3, 69, -1, 70, -71, *range(12)], np.int32)  # two of them out of range

    def f(x, labels):
        def loss(x):
            logp = fxad.nn.log_softmax(x)
            return -jnp.take_along_axis(logp, labels[:, None], -1, mode="fill", fill_value=0).mean()

        return (fxad.grad(loss)(x),)

    made = check(f, draw(17, 70), labels)
    large = [k for k in kernels_of(made) if k.points > 1]
    assert [k.kind for k in large] == ["row"]
    assert sum(isinstance(stage, Reduce) for stage in large[0].body) == 2


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [2.5, 0.0, -0.0, np.inf])
def test_sums_over_scatters_have_the_bits_of_the_sum(sign, scale) -> None:
    places = np.array([[0], [4], [6], [-1], [7]], np.int32)
    updates = np.full((5, 1), scale, np.float32)

    def f(updates, places):
        def pick(x):
            return jnp.take_along_axis(x, places, -1, mode="fill", fill_value=0)

        (spread,) = fxad.vjp(pick, jnp.zeros((5, 7), jnp.float32))[1](updates)
        return ((spread if sign > 0 else -spread).sum(1),)

    (kernel,) = fxad.jit(f).lower(updates, places).kernels
    assert not any(isinstance(stage, Reduce) for stage in kernel.body)
    want = np.zeros((5, 7), np.float32)
    for row, place in enumerate(places[:, 0]):
        if place < 7:
            want[row, place] += updates[row, 0]
    got = np.asarray(fxad.jit(f)(updates, places)[0])
    assert (got == (sign * want).sum(1)).all()
    assert not np.signbit(got[got == 0]).any()


def test_large_sums_are_cut_in_pieces_of_fixed_size() -> None:
    def f(x, y):
        return jnp.sum(x * y), jnp.sum(x, axis=0)

    made = check(f, draw(2000, 37), draw(2000, 37))
    sizes = sorted(k.points for k in kernels_of(made))
    assert sizes[-1] > 37
    x = draw(1 << 16)
    program, args = program_of(lambda x: (jnp.sum(x),), x)
    (total,) = run_plan(plan(program), args)
    assert abs(total - x.astype(np.float64).sum()) < 1e-3


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), ()])
def test_sizes_zero_and_one(shape) -> None:
    def f(x):
        outs = [jnp.exp(x) + 1, x.sum(), x.reshape(-1)]
        if x.ndim:
            outs += [x.sum(axis=0), x @ x.T, jnp.concatenate([x, x])]
        return outs

    check(f, draw(*shape))


def test_results_that_are_arguments_or_repeat() -> None:
    def f(x, y):
        z = x + y
        return x, z, z, z.reshape(-1), y.reshape(-1), jnp.float32(2.5)

    check(f, draw(3, 4), draw(3, 4))


def test_donation_without_a_match_copies_nothing() -> None:
    def f(x, y):
        return x[::-1] + y, y * 2

    made = check(f, draw(6), draw(6), donate=frozenset({0}))
    assert made.donated.get(0) is None  # x is read at other points than the result is written


def test_parts_of_a_concatenation_are_written_in_place() -> None:
    def f(x, y, w):
        return (jnp.concatenate([x @ w, jnp.sin(y)], axis=1),)

    made = check(f, draw(64, 32), draw(64, 48), draw(32, 40))
    assert kinds(made) == ["contract", "map"]
    assert all(len(k.buffers) <= 3 for k in kernels_of(made))


def test_products_read_views_where_they_lie() -> None:
    def f(x, w):
        return (jnp.einsum("bthd,bshd->bhts", x, x[:, ::-1]), jnp.einsum("ij,kj->ki", w.T, w.T))

    made = check(f, draw(2, 8, 4, 16), draw(16, 12))
    assert kinds(made) == ["contract", "contract"]


def test_axes_of_length_one_do_not_change_a_sum() -> None:
    def f(x):
        spread = jnp.broadcast_to(jnp.max(x, axis=1)[:, None], (3, 3))
        return spread[..., None].sum(), (x + 1)[..., None, None].sum(axis=(0, 1, 3))

    check(f, draw(3, 6))


def test_gradients_of_a_split_are_written_into_their_parts() -> None:
    def f(x, w, ct):
        def heads(x):
            a, b, c = jnp.split(x, [32, 48], axis=1)
            return jnp.tanh(a @ w), jnp.sin(b), c * 2

        return fxad.vjp(heads, x)[1]((ct[:, :8], ct[:, :16], ct[:, :16]))

    made = check(f, draw(64, 64), draw(32, 8), draw(64, 16))
    (dx,) = {s for s in made.results if s.type.shape == (64, 64)}
    writers = [s for s in walk(made.steps) if isinstance(s, Run) and dx in s.slots]
    assert [s.kernel.kind for s in writers] == ["map", "contract"]


def test_gradient_of_a_tied_table_is_gathered_in_one_place(monkeypatch) -> None:
    """The product waits for the lookup's gradient, which is added onto it: one table's memory."""
    monkeypatch.setattr(heuristics, "EPILOGUE_BYTES", 0)  # as if the table were large
    monkeypatch.setattr(heuristics, "DELAYED_BYTES", 0)
    table, moment, tokens = draw(600, 32), draw(600, 32), np.arange(24, dtype=np.int32) * 7 % 600

    def loss(table):
        logits = jnp.tanh(table[tokens]) @ table.T
        top = jnp.max(logits, axis=-1, keepdims=True)
        return jnp.sum(jnp.log(jnp.sum(jnp.exp(logits - top), axis=-1)))

    def step(table, moment):
        gradient = fxad.grad(loss)(table)
        moment = 0.9 * moment + 0.1 * gradient * gradient
        return table - 0.01 * gradient / (jnp.sqrt(moment) + 1e-3), moment

    made = check(step, table, moment)
    found = kinds(made)
    assert found[found.index("scatter") - 1] == "contract"
    assert made.arena_bytes < 2 * table.nbytes


def test_a_product_added_to_an_array_and_read_twice_has_no_memory_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr(heuristics, "EPILOGUE_BYTES", 0)
    a, b, moment = draw(40, 8), draw(8, 50), draw(40, 50)

    def step(a, b, moment):
        total = a @ b + jnp.cumsum(moment, axis=1)
        return jnp.tanh(total) * moment, total / (1 + moment * moment)

    made = check(step, a, b, moment)
    (product,) = [k for k in kernels_of(made) if k.kind == "contract"]
    assert product.name == "dot_add"
    assert made.arena_bytes == moment.nbytes
