"""Weights in 4 or 8 bits: what they are, what products and gradients they give, loading, tuning."""

import json
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from short_run import At
from tiny_chat_model import write_chats, write_model

import fxad
import fxad.numpy as jnp
import fxad_nn
from fxad_nn import models, optim
from fxad_nn.adapters import load_adapters
from fxad_nn.errors import CheckpointError, ConfigError, DamageWarning
from fxad_nn.finetune import finetune
from fxad_nn.finetune_recipe import finetune_recipe, resumed_finetune
from fxad_nn.generate import generate
from fxad_nn.layers import conv1d, linear
from fxad_nn.lora import ALL_LINEAR, add_lora, merge_lora, targeted, trainable
from fxad_nn.objective import Answers
from fxad_nn.quantized import KINDS, is_quantized, quantized, stacked
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.step import tuning_step
from fxad_nn.tensors import Stored

RNG = np.random.default_rng(0)
LLAMA = models.preset("llama-tiny", width=64, heads=4, groups=2, head_dim=16, hidden=192)
GPT2 = models.preset("tiny", width=64)
EXPERTS = models.preset(
    "mixtral-8x7b", vocab=67, width=64, heads=4, groups=2, layers=2, head_dim=16, hidden=80,
    context=64, experts=4,
)  # fmt: skip
TOKENS = RNG.integers(0, 60, (2, 12)).astype(np.int32)


def levels():
    """NF4's, by the formula of the paper (Dettmers et al., 2023, section 3)."""
    outermost = (1 - 1 / (2 * 15) + 1 - 1 / (2 * 16)) / 2
    quantile = NormalDist().inv_cdf
    upper = [quantile(p) for p in np.linspace(outermost, 0.5, 9)[:-1]]
    lower = [-quantile(p) for p in np.linspace(outermost, 0.5, 8)[:-1]]
    found = np.sort([*upper, 0.0, *lower])
    return found / found[-1]


def reference(w, kind):
    """A matrix after quantisation, in NumPy: the nearest level of each element by its block."""
    rows, columns = w.shape
    blocks = -(-columns // 64)
    padded = np.zeros((rows, blocks * 64), np.float64)
    padded[:, :columns] = w
    blocked = padded.reshape(rows, blocks, 64)
    largest = np.abs(blocked).max(-1, keepdims=True)
    if kind == "int8":
        scale = np.where(largest == 0, 1, largest / 127)
        found = np.rint(blocked / scale) * scale
    else:
        table = levels()
        ratio = blocked / np.where(largest == 0, 1, largest)
        found = table[np.abs(ratio[..., None] - table).argmin(-1)] * largest
    return found.reshape(rows, -1)[:, :columns]


def made(config, seed=0):
    params = init_params(models.family(config).spec(config), fxad.random.key(seed))
    return fxad.tree.map(lambda p: (8 * p if p.ndim > 1 else p).astype(config.dtype), params)


def in_bits(params, config, kind):
    """The parameters with the matrices of layers and experts quantised, and these dequantised."""
    names = {f"{name}.weight" for name in targeted(config, ALL_LINEAR)}

    def one(path, leaf):
        name = fxad.tree.keystr(path, simple=True, separator=".")
        if ".experts." in name:  # [experts, in, out], published as [out, in]
            rows = leaf.swapaxes(1, 2).reshape(-1, leaf.shape[1])
            return stacked(quantized(rows, kind), len(leaf))
        return quantized(leaf, kind) if name in names else leaf

    def whole(leaf):
        if not is_quantized(leaf):
            return leaf
        found = leaf.dequantized()
        return found if found.ndim == 2 else found.swapaxes(1, 2)

    kept = fxad.tree.map_with_path(one, params)
    experts = 3 * config.layers if getattr(config, "experts", 0) else 0
    found = fxad.tree.leaves(kept, is_leaf=is_quantized)
    assert sum(map(is_quantized, found)) == len(names) + experts
    return kept, fxad.tree.map(whole, kept, is_leaf=is_quantized)


# What is kept


def test_the_levels_are_those_of_the_paper():
    ones = jnp.asarray(np.arange(16, dtype=np.uint8)[None].repeat(2, 1))
    found = fxad.nn.dequantize(ones, np.ones((1, 1), np.float32), 64)
    np.testing.assert_allclose(np.asarray(found)[0, :32:2], levels(), atol=2e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [192, 70, 5])
def test_elements_become_the_nearest_level(kind, columns):
    w = RNG.standard_normal((24, columns)).astype(np.float32)
    w[3] = 0
    for run in (lambda f: f, fxad.jit):
        codes, scales = run(lambda w: fxad.nn.quantize(w, kind))(w)
        found = np.asarray(fxad.nn.dequantize(codes, scales, columns, kind))
        # Float32 may choose the other of two levels of equal distance: no such element is here.
        np.testing.assert_allclose(found, reference(w, kind), rtol=1e-5, atol=1e-6)
    bits = {"nf4": 4, "int8": 8}[kind]
    assert codes.nbytes == 24 * -(-columns // 64) * 64 * bits // 8


def test_what_quantize_refuses():
    with pytest.raises(TypeError, match="format must be one of nf4, int8"):
        fxad.nn.quantize(np.ones((2, 2), np.float32), "nf3")
    with pytest.raises(ValueError, match="takes a matrix"):
        fxad.nn.quantize(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="takes floats"):
        fxad.nn.quantize(np.ones((2, 2), np.int32))
    codes, scales = fxad.nn.quantize(np.ones((2, 64), np.float32))
    with pytest.raises(ValueError, match="are not those of 65 columns"):
        fxad.nn.dequantize(codes, scales, 65)


# Products


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [linear, conv1d])
def test_products_and_gradients_are_those_of_the_dequantised_matrix(kind, layer):
    w = quantized(jnp.asarray(RNG.standard_normal((96, 80)), jnp.float32), kind)
    whole = np.asarray(w.dequantized(), np.float64)
    matrix = whole.T if layer is linear else whole
    x = RNG.standard_normal((3, 5, len(matrix)))
    weigh = RNG.standard_normal((3, 5, matrix.shape[1]))

    def loss(x):
        return jnp.sum(jnp.tanh(layer({"weight": w}, x)) * weigh.astype(x.dtype))

    y = layer({"weight": w}, x.astype(np.float32))
    np.testing.assert_allclose(y, x @ matrix, rtol=1e-5, atol=1e-5)
    slope = (weigh * (1 - np.tanh(x @ matrix) ** 2)) @ matrix.T
    for grad in (fxad.grad(loss), fxad.jit(fxad.grad(loss))):
        np.testing.assert_allclose(grad(x.astype(np.float32)), slope, rtol=1e-4, atol=1e-4)
    with fxad.enable_x64():
        fxad.check_grads(loss, (jnp.asarray(x, jnp.float64),), order=1, modes=("rev",))


def test_a_bias_is_added_before_sums_are_rounded():
    x = jnp.asarray(RNG.standard_normal((4, 64)), jnp.bfloat16)
    w = quantized(jnp.asarray(RNG.standard_normal((32, 64)), jnp.bfloat16), "nf4")
    bias = jnp.asarray(RNG.standard_normal(32), jnp.bfloat16)
    found = linear({"weight": w, "bias": bias}, x)
    expected = linear({"weight": w.dequantized(), "bias": bias}, x)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (LLAMA, "nf4"),
        (replace(LLAMA, dtype="bfloat16"), "int8"),
        (GPT2, "nf4"),
        (EXPERTS, "nf4"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.family}-{value.dtype}",
)
def test_a_model_computes_what_its_dequantised_weights_do(config, kind):
    kept, plain = in_bits(made(config), config, kind)
    forward = fxad.jit(lambda p: models.family(config).forward(p, TOKENS[:, :-1], config))
    np.testing.assert_array_equal(forward(kept), forward(plain))


# Loading


@pytest.mark.parametrize(
    ("model", "kind", "mapped"),  # every pair of two of them
    [
        ("llama", "nf4", False),
        ("llama", "int8", True),
        ("mixtral", "nf4", True),
        ("mixtral", "int8", False),
    ],
)
def test_loading_quantises_the_matrices_of_layers_and_experts(
    tmp_path, model, kind, mapped, monkeypatch
):
    config = {"llama": LLAMA, "mixtral": EXPERTS}[model]
    monkeypatch.setattr("fxad_nn.quantized.PART", 64 * 50)  # parts end in the midst of experts
    fxad_nn.save(fxad_nn.Model(made(config), config), tmp_path)
    model = fxad_nn.load(tmp_path, quantize=kind, mapped=mapped)
    kept, _ = in_bits(fxad_nn.load(tmp_path).params, config, kind)
    for (name, one), (again, other) in zip(
        named_leaves(model.params), named_leaves(kept), strict=True
    ):
        assert name == again
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert repr(model).startswith("Model(") and f"float32/{kind}" in repr(model)
    assert repr(model).split()[0] == repr(fxad_nn.load(tmp_path)).split()[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 70])
def test_parts_of_a_matrix_are_quantised_as_the_whole_is(kind, rows, monkeypatch):
    monkeypatch.setattr("fxad_nn.quantized.PART", 32 * 70)
    w = RNG.standard_normal((rows, 70)).astype(np.float32)
    kept = quantized(w, kind)
    for found, expected in zip((kept.codes, kept.scales), fxad.nn.quantize(w, kind), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert kept.shape == w.shape and kept.dtype == "float32"


def test_what_quantized_refuses():
    with pytest.raises(TypeError, match="format must be one of nf4, int8"):
        quantized(np.ones((2, 2), np.float32), "nf3")
    with pytest.raises(ValueError, match="takes a matrix"):
        quantized(np.ones(2, np.float32), "nf4")
    with pytest.raises(TypeError, match="takes floats"):
        quantized(np.ones((2, 2), np.int32), "nf4")


@pytest.mark.parametrize("mapped", [False, True])
def test_some_rows_of_one_matrix_are_read_at_a_time(tmp_path, monkeypatch, mapped):
    fxad_nn.save(fxad_nn.Model(made(LLAMA), LLAMA), tmp_path)
    monkeypatch.setattr("fxad_nn.quantized.PART", 16 * LLAMA.width)
    read, seen = Stored.read, []

    def watched(tensor, *rows):
        array = read(tensor, *rows)
        if "_proj" in tensor.name:
            assert not [ref for ref in seen if ref() is not None]
            assert array.size <= 16 * LLAMA.width
            seen.append(weakref.ref(array))
        return array

    monkeypatch.setattr(Stored, "read", watched)
    fxad_nn.load(tmp_path, quantize="nf4", mapped=mapped)
    assert len(seen) > 14 * LLAMA.layers


LOADED = """
import sys
import fxad, fxad_nn

def kilobytes(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what))

fxad_nn.load(sys.argv[1] + "/small", quantize="nf4")  # compiled
before = kilobytes("VmRSS")
model = fxad_nn.load(sys.argv[1] + "/large", quantize="nf4")
held = sum(leaf.nbytes for leaf in fxad.tree.leaves(model.params)) / 1024
print((kilobytes("VmHWM") - before) / held)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_takes_the_memory_of_what_is_kept(tmp_path):
    """Not of the matrices, or of what quantises them, beside it."""
    shape = {"width": 1024, "hidden": 4096, "heads": 8, "groups": 8, "head_dim": 128}
    for name, layers in (("small", 1), ("large", 5)):
        config = models.preset("llama-tiny", **shape, layers=layers, dtype="bfloat16")
        spec = models.family(config).spec(config)
        zeros = fxad.tree.map(lambda leaf: np.zeros(leaf.shape, jnp.bfloat16), spec)
        fxad_nn.save(fxad_nn.Model(zeros, config), tmp_path / name)
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, tmp_path], capture_output=True, text=True, check=True
    )
    assert 0.5 < float(ran.stdout) < 1.3


def test_what_is_quantised_is_neither_saved_nor_merged(tmp_path):
    fxad_nn.save(fxad_nn.Model(made(LLAMA), LLAMA), tmp_path)
    with pytest.raises(ConfigError, match="choose from"):
        fxad_nn.load(tmp_path, quantize="int4")
    model = fxad_nn.load(tmp_path, quantize="nf4")
    with pytest.raises(CheckpointError, match="no published form: save its adapters"):
        fxad_nn.save(model, tmp_path / "again")
    params = add_lora(model.params, LLAMA, 2, 4.0, ALL_LINEAR, fxad.random.key(0))
    with pytest.raises(ConfigError, match="is in nf4: put the adapters beside"):
        merge_lora(params, LLAMA)


def test_a_damaged_weight_is_warned_of(tmp_path):
    params = made(LLAMA)
    weight = np.asarray(params["blocks"][0]["mlp"]["up"]["weight"]).copy()
    weight[2, 3] = np.nan
    params["blocks"][0]["mlp"]["up"]["weight"] = jnp.asarray(weight)
    fxad_nn.save(fxad_nn.Model(params, LLAMA), tmp_path)
    with pytest.warns(DamageWarning, match=r"blocks.0.mlp.up"):
        fxad_nn.load(tmp_path, quantize="nf4")


def test_generation_goes_on_from_quantised_weights():
    config = replace(LLAMA, layers=1)
    kept, plain = in_bits(made(config), config, "nf4")
    drawn = [list(generate(p, config, [1, 2, 3], 8, temperature=0)) for p in (kept, plain)]
    assert drawn[0] == drawn[1]


# Tuning


def lora_steps(params, config, count=4):
    """The losses of some steps, and the adapters after them."""
    params = add_lora(params, config, 4, 8.0, ALL_LINEAR, fxad.random.key(3))
    trained, frozen = fxad.tree.partition(params, trainable(params), is_leaf=is_quantized)
    optimizer = optim.adamw(1e-2)
    step, state = tuning_step(Answers(config), optimizer, 1.0), optimizer.init(trained)
    tokens, targets = TOKENS[None, :, :-1], TOKENS[None, :, 1:]
    losses = []
    for number in range(count):
        given = (trained, state, frozen, None, tokens, targets, np.int32(number))
        trained, state, loss = step(*given)
        losses.append(float(loss))
    return losses, trained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kind", "dtype"),
    [
        ("llama", "nf4", "bfloat16"),
        ("llama", "int8", "float32"),
        ("mixtral", "int8", "float32"),  # in nf4 it computes the same above, and is tuned below
    ],
)
def test_adapters_learn_what_they_learn_beside_dequantised_weights(model, kind, dtype):
    """Products of both have the same factors; what is fused with them may round apart."""
    config = replace({"llama": LLAMA, "mixtral": EXPERTS}[model], dtype=dtype, layers=1)
    rtol = {"float32": 1e-5, "bfloat16": 1e-2}[dtype]
    kept, plain = in_bits(made(config), config, kind)
    (losses, trained), (expected, wanted) = lora_steps(kept, config), lora_steps(plain, config)
    np.testing.assert_allclose(losses, expected, rtol=rtol)
    assert losses[-1] < losses[0]
    found, others = dict(named_leaves(trained)), dict(named_leaves(wanted))
    assert found.keys() == others.keys()
    if dtype == "float32":
        for name, leaf in found.items():
            np.testing.assert_allclose(leaf, others[name], atol=2e-3, err_msg=name)


@pytest.mark.parametrize(
    "config",
    [replace(LLAMA, tied=False), replace(GPT2, tied=True)],
    ids=["llama, untied", "gpt2, tied"],
)
def test_prompts_cost_no_product_of_the_head(config):
    """The loss and the adapters' gradients are those of the loss that computes every row."""
    kept, _ = in_bits(made(config), config, "nf4")
    params = add_lora(kept, config, 4, 8.0, ALL_LINEAR, fxad.random.key(3))
    trained, frozen = fxad.tree.partition(params, trainable(params), is_leaf=is_quantized)
    targets = np.where(np.arange(11) < 9, -1, TOKENS[:, 1:])
    found = []
    for skip in (True, False):

        def loss(trained, skip=skip):
            whole = fxad.tree.combine(trained, frozen)
            batch = TOKENS[:, :-1], targets
            return models.family(config).loss(whole, batch, config, skip_ignored=skip)

        found.append(fxad.jit(fxad.value_and_grad(loss))(trained))
    (value, slopes), (expected, wanted) = found
    assert value == pytest.approx(expected, rel=1e-6)
    others = dict(named_leaves(wanted))
    for name, leaf in named_leaves(slopes):
        np.testing.assert_allclose(leaf, others[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_plan_of_a_step_holds_no_dequantised_weight(capsys):
    config = replace(LLAMA, hidden=640, dtype="bfloat16", layers=1)
    kept, plain = in_bits(made(config), config, "nf4")
    plans = []
    for params in (kept, plain):
        params = add_lora(params, config, 4, 8.0, ALL_LINEAR, fxad.random.key(3))
        trained, frozen = fxad.tree.partition(params, trainable(params), is_leaf=is_quantized)
        optimizer = optim.adamw(1e-2)
        step = tuning_step(Answers(config), optimizer, None)
        given = (trained, optimizer.init(trained), frozen, None)
        tokens = TOKENS[None, :, :-1], TOKENS[None, :, 1:]
        plans.append(step.lower(*given, *tokens, np.int32(0)))
    weight = config.width * config.hidden
    slots = [slot for slot in plans[0].plan.slots if slot.place == "arena"]
    with capsys.disabled():
        arenas = [plan.memory()["arena_bytes"] for plan in plans]
        print(f"arena of a step: {arenas[0]:,} bytes in nf4, {arenas[1]:,} in bf16")
    assert weight not in {slot.type.size for slot in slots}
    assert arenas[0] <= arenas[1] + 64 * len(slots)
    assert "unpack" not in [kernel.kind for kernel in plans[0].kernels]


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_recomputed_blocks_give_the_same_gradients_in_less_memory(config):
    """What a gradient keeps of more layers are their inputs."""
    arenas = {}
    for layers in (1, 2):
        for recompute in (False, True):
            one = replace(config, layers=layers, recompute=recompute)
            kept, _ = in_bits(made(one), one, "nf4")
            params = add_lora(kept, one, 4, 8.0, ALL_LINEAR, fxad.random.key(3))
            trained, frozen = fxad.tree.partition(params, trainable(params), is_leaf=is_quantized)

            def loss(trained, frozen, one=one):
                whole = fxad.tree.combine(trained, frozen)
                return models.family(one).loss(whole, (TOKENS[:, :-1], TOKENS[:, 1:]), one)

            step = fxad.jit(fxad.grad(loss))
            arenas[layers, recompute] = step.lower(trained, frozen).memory()["arena_bytes"]
            found = dict(named_leaves(step(trained, frozen))) if layers == 2 else {}
            if not recompute:
                expected = found
    assert found
    for name, leaf in found.items():
        np.testing.assert_array_equal(leaf, expected[name], err_msg=name)
    growth = [arenas[2, recompute] - arenas[1, recompute] for recompute in (False, True)]
    assert growth[1] < growth[0] / 3


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    return write_model(tmp_path_factory.mktemp("base") / "model", layers=1)


def recipe(tmp_path, base, **more):
    chats = write_chats(tmp_path / "chat.jsonl", 40)
    given = {"out": tmp_path / "run", "lora": 4, "learning_rate": 1e-2, "steps": 8, "batch": 4}
    given |= {"eval_every": 4, "log_every": 2, "peak": 100.0, "eval_share": 0.1}
    return finetune_recipe(**{"model": base, "data": chats, "quantize": "nf4", **given, **more})


@pytest.mark.slow
def test_fine_tuning_saves_adapters_that_merge_into_the_base(tmp_path, base):
    tuned = finetune(recipe(tmp_path, base, steps=40, save="both"))
    history = [loss for _, loss in tuned.result.run.history["train"]]
    assert history[-1] < 0.7 * history[0]
    assert [path.name for path in tuned.saved] == ["adapter", "merged"]
    model = fxad_nn.load(base)
    params, lora = load_adapters(tuned.saved[0], model.params, model.config)
    assert lora.rank == 4
    merged, _ = merge_lora(params, model.config)
    found = fxad_nn.load(tuned.saved[1])
    for (name, one), (_, other) in zip(
        named_leaves(found.params), named_leaves(merged), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_mixture_of_experts_is_tuned_beside_its_quantised_experts(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("tokenizers")
    small = {"width": 32, "heads": 4, "groups": 2, "hidden": 64, "layers": 1, "experts": 4}
    base = write_model(tmp_path / "model", preset="mixtral-8x7b", **small)
    tuned = finetune(recipe(tmp_path, base, steps=20))
    history = [loss for _, loss in tuned.result.run.history["train"]]
    assert history[-1] < 0.8 * history[0]
    experts = tuned.result.run.task.frozen["blocks"][0]["mlp"]["experts"]
    assert {weight["weight"].shape for weight in experts.values()} == {(4, 64, 32), (4, 32, 64)}
    assert all(is_quantized(weight["weight"]) for weight in experts.values())
    model = fxad_nn.load(base)
    params, _ = load_adapters(tuned.saved[0], model.params, model.config)
    assert "lora" in params["blocks"][0]["attention"]["q"]


def test_a_quantised_run_is_resumed_to_the_same_bits(tmp_path, base):
    whole = finetune(recipe(tmp_path, base, out=tmp_path / "whole")).result.run
    stop = At(4, lambda: signal.raise_signal(signal.SIGINT))
    assert finetune(recipe(tmp_path, base), stop).result.interrupted
    options = resumed_finetune(tmp_path / "run")
    assert options.quantize == "nf4"
    tuned = finetune(options)
    assert [path.name for path in tuned.saved] == ["adapter"]  # where nothing is said of it
    ended = tuned.result.run
    assert ended.history == whole.history
    left, right = dict(named_leaves(ended.params)), dict(named_leaves(whole.params))
    assert left.keys() == right.keys()
    for name, leaf in left.items():
        np.testing.assert_array_equal(leaf, right[name], err_msg=name)
    with pytest.raises(ConfigError, match="`quantize` cannot change"):
        resumed_finetune(tmp_path / "run", quantize="int8")


def test_preferences_compare_with_the_quantised_base(tmp_path, base):
    pairs = [
        {"prompt": f"After {i}? ", "chosen": f"{i + 1}.", "rejected": f"{i - 1}."}
        for i in range(12)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    tuned = finetune(recipe(tmp_path, base, data=path, dpo=True, steps=6, log_every=1))
    history = [loss for _, loss in tuned.result.run.history["train"]]
    assert history[0] == pytest.approx(np.log(2))  # nothing is preferred to begin with
    assert min(history) < history[0]


def test_options_that_contradict_each_other(tmp_path, base):
    with pytest.raises(ConfigError, match="left out without `lora`: what is quantised is not"):
        finetune_recipe(model=base, data=tmp_path / "chat.jsonl", quantize="nf4")
    with pytest.raises(ConfigError, match="nf3"):
        recipe(tmp_path, base, quantize="nf3")
