"""New tokens: rows beside a frozen table are as rows in it, and what is saved knows the tokens."""

import json
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
from chat_templates import CHATML
from short_run import At
from tiny_chat_model import write_chats, write_model

import fxad
import fxad.numpy as jnp
import fxad_nn
from fxad_nn import models
from fxad_nn.adapters import load_adapters, save_adapters
from fxad_nn.cli import main
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.finetune import finetune, preview
from fxad_nn.finetune_recipe import finetune_recipe, resumed_finetune
from fxad_nn.lora import Lora, add_lora, merge_lora, trainable
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.token_rows import add_rows, merge_rows, resized, rows_of, without_rows
from fxad_nn.tokenizer import from_directory

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")

NEW = ("<|turn|>", "<|over|>")
TEMPLATE = CHATML.replace("<|im_start|>", NEW[0]).replace("<|im_end|>", NEW[1])
MODELS = {
    "tied": models.preset("llama-tiny", vocab=61, tied=True, context=32, layers=1),
    "untied": models.preset("llama-tiny", vocab=61, tied=False, context=32, layers=1),
    "gpt2": models.preset("tiny", vocab=61, context=32, layers=1),
}
IDS = [62, 5, 61]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A chat model whose template writes tokens that its tokenizer does not know."""
    return write_model(
        tmp_path_factory.mktemp("base") / "model", template=TEMPLATE, tied=False, layers=1
    )


@pytest.fixture
def chats(tmp_path):
    return write_chats(tmp_path / "chat.jsonl", 40)


def options(tmp_path, base, data, **more):
    given = {"out": tmp_path / "run", "lora": 4, "learning_rate": 1e-2, "steps": 8, "batch": 4}
    given |= {"eval_every": 4, "log_every": 2, "peak": 100.0, "new_tokens": NEW}
    return finetune_recipe(model=base, data=data, **{**given, **more})


def made(config, seed=0):
    return init_params(models.family(config).spec(config), fxad.random.key(seed))


def with_moved_rows(config):
    """A model of more ids, with rows of some that differ from those of its tables."""
    params, config = resized(made(config), config, 63, 61)
    params = add_rows(params, config, IDS)
    for number, rows in enumerate(rows_of(params).values()):
        rng = np.random.default_rng(number)
        rows["values"] = jnp.asarray(rng.normal(0, 0.1, rows["values"].shape), "float32")
    return params, config


def logits(params, config, tokens):
    return np.asarray(models.family(config).forward(params, tokens, config))


TOKENS = np.random.default_rng(0).integers(0, 63, (2, 12)).astype(np.int32)
TOKENS[0, :4] = [5, 62, 61, 5]


# Tables and rows


@pytest.mark.parametrize("kind", MODELS)
def test_new_rows_are_the_mean_of_the_known_ones(kind):
    before, config = made(MODELS[kind]), MODELS[kind]
    after, grown = resized(before, config, 64, 50, fresh=[55])
    assert grown == replace(config, vocab=64)
    tables = [
        (t[p][n], s[p][n])
        for p, n in [("embed", "token"), ("head", "weight")]
        if p in before
        for t, s in [(before, after)]
    ]
    assert len(tables) == (1 if config.tied else 2)
    for old, new in tables:
        old, new = np.asarray(old), np.asarray(new)
        assert new.shape == (64, config.width)
        kept = [i for i in range(61) if i != 55]
        np.testing.assert_array_equal(new[kept], old[kept])
        mean = old[:50].astype(np.float64).mean(0)
        # Of 50 float32 numbers of at most 0.1, summed in float32.
        np.testing.assert_allclose(new[[55, 61, 62, 63]], np.tile(mean, (4, 1)), atol=1e-7)
    assert resized(before, config, 61, 61) == (before, config)
    old = logits(before, config, TOKENS % 50)
    np.testing.assert_allclose(
        logits(after, grown, TOKENS % 50)[..., :50], old[..., :50], atol=1e-6
    )
    for wrong in ({"known": 0}, {"known": 62}, {"known": 61, "fresh": [70]}):
        with pytest.raises(ConfigError, match="cannot set the rows"):
            resized(before, config, 64, **wrong)


@pytest.mark.parametrize("kind", MODELS)
def test_rows_beside_a_table_are_as_rows_in_it(kind):
    params, config = with_moved_rows(MODELS[kind])
    merged = merge_rows(params)
    assert not rows_of(merged)
    assert [n for n, _ in named_leaves(without_rows(params))] == [
        n for n, _ in named_leaves(merged)
    ]
    wanted = logits(merged, config, TOKENS)
    assert np.abs(logits(without_rows(params), config, TOKENS) - wanted).max() > 0.01
    np.testing.assert_allclose(logits(params, config, TOKENS), wanted, atol=1e-5)
    ours = [int(t) for t in fxad_nn.generate.generate(params, config, [1, 62, 5], 6, 0.0)]
    theirs = [int(t) for t in fxad_nn.generate.generate(merged, config, [1, 62, 5], 6, 0.0)]
    assert ours == theirs


@pytest.mark.parametrize("kind", MODELS)
def test_their_gradients_are_those_of_the_whole_table(kind):
    params, config = with_moved_rows(MODELS[kind])
    targets = np.roll(TOKENS, -1, axis=1)
    loss = models.family(config).loss
    trained, frozen = fxad.tree.partition(params, trainable(params))

    def of_rows(trained):
        return loss(fxad.tree.combine(trained, frozen), (TOKENS, targets), config)

    value, grads = fxad.jit(fxad.value_and_grad(of_rows))(trained)
    exact, wanted = fxad.value_and_grad(lambda p: loss(p, (TOKENS, targets), config))(
        merge_rows(params)
    )
    assert float(value) == pytest.approx(float(exact), rel=1e-5)
    places = {"embed": "token"} | ({} if config.tied else {"head": "weight"})
    assert rows_of(grads).keys() == places.keys()
    for place, name in places.items():
        ours, table = np.asarray(grads[place]["rows"]["values"]), np.asarray(wanted[place][name])
        np.testing.assert_allclose(ours, table[IDS], atol=1e-5 * np.abs(table).max())
        assert np.abs(ours).min(axis=1).max() > 0


def test_ids_that_cannot_have_rows_are_refused():
    config = MODELS["untied"]
    for ids in ([], [1, 1], [-1], [61]):
        with pytest.raises(ConfigError, match="rows need different ids below 61"):
            add_rows(made(config), config, ids)
    params = add_lora(made(config), config, 2, 4.0, ("lm_head",), fxad.random.key(0))
    with pytest.raises(ConfigError, match="the head has an adapter"):
        add_rows(params, config, [1])


# Fine-tuning


@pytest.mark.slow
def test_new_tokens_are_learned_and_saved(tmp_path, base, chats):
    before, known = fxad_nn.load(base), from_directory(base)
    tuned = finetune(options(tmp_path, base, chats, steps=30))
    history = tuned.result.run.history["train"]
    assert history[-1][1] < 0.5 * history[0][1]
    merged = fxad_nn.load(tmp_path / "run" / "merged")
    assert merged.config == replace(before.config, vocab=known.size + 2)
    tokenizers = [from_directory(path) for path in tuned.saved]
    ids = [known.size, known.size + 1]
    for tokenizer in tokenizers:
        assert tokenizer.encode("a".join(NEW)).tolist()[:1] == ids[:1]
        assert [tokenizer.id_of(token) for token in NEW] == ids
        assert tokenizer.special > set(ids)
        assert tokenizer.decode(tokenizer.encode("".join(NEW))) == "".join(NEW)
    # The adapters beside the base, with room made for the tokens, are what was merged.
    params, config = resized(before.params, before.config, known.size + 2, known.size)
    params, lora = load_adapters(tmp_path / "run" / "adapter", params, config)
    assert lora.rank == 4
    for place, name in (("embed", "token"), ("head", "weight")):
        rows = rows_of(params)[place]
        assert np.asarray(rows["ids"]).tolist() == ids
        table = np.asarray(merged.params[place][name])
        np.testing.assert_array_equal(table[ids], np.asarray(rows["values"]).astype(table.dtype))
        np.testing.assert_array_equal(table[:-2], before.params[place][name])
        assert not np.array_equal(rows["values"][0], rows["values"][1])
    again, _ = merge_lora(params, config)
    for (name, left), (_, right) in zip(
        named_leaves(again), named_leaves(merged.params), strict=True
    ):
        np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"lora": None}, {"quantize": "nf4", "save": "both"}])
def test_such_a_run_goes_on_to_the_same_bits(tmp_path, base, chats, more):
    whole = finetune(options(tmp_path, base, chats, out=tmp_path / "whole", **more))
    stop = At(4, lambda: signal.raise_signal(signal.SIGINT))
    assert finetune(options(tmp_path, base, chats, **more), stop).result.interrupted
    ended = finetune(resumed_finetune(tmp_path / "run"))
    assert ended.result.run.history == whole.result.run.history
    left, right = (fxad_nn.load(tuned.saved[-1]) for tuned in (ended, whole))
    for (name, ours), (_, theirs) in zip(
        named_leaves(left.params), named_leaves(right.params), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    assert from_directory(ended.saved[-1]).id_of(NEW[1]) == left.config.vocab - 1
    with pytest.raises(ConfigError, match="`new_tokens` cannot change"):
        resumed_finetune(tmp_path / "run", new_tokens=NEW[:1])


def test_preferences_compare_with_the_rows_as_they_began(tmp_path, base):
    path = tmp_path / "pairs.jsonl"
    pairs = [
        {"prompt": f"After {i}? ", "chosen": f"{i + 1}.", "rejected": f"{i - 1}."}
        for i in range(20)
    ]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    more = {"dpo": True, "log_every": 1, "label_smoothing": 0.1, "eval_every": 0}
    history = finetune(options(tmp_path, base, path, **more)).result.run.history["train"]
    # With log-probabilities that have not moved both of its terms are log 2.
    assert history[0][1] == pytest.approx(np.log(2), rel=1e-5)
    assert history[-1][1] < history[0][1]


def test_tokens_that_are_known_keep_their_ids_and_their_rows(tmp_path, base, chats):
    """As those that a model reserves; and rows that a model has to spare are used."""
    directory = tmp_path / "spare"
    shutil.copytree(base, directory)
    model, known = fxad_nn.load(base), from_directory(base)
    params, config = resized(model.params, model.config, known.size + 16, known.size)
    fxad_nn.save(fxad_nn.Model(params, config), directory)
    tokens = ("<|im_start|>", *NEW)
    tuned = finetune(options(tmp_path, directory, chats, new_tokens=tokens, steps=2))
    merged = fxad_nn.load(tuned.saved[-1])
    assert merged.config.vocab == known.size + 16
    tokenizer = from_directory(tuned.saved[-1])
    ids = [tokenizer.id_of(token) for token in tokens]
    assert ids == [known.id_of("<|im_start|>"), known.size, known.size + 1]
    left, right = np.asarray(params["embed"]["token"]), np.asarray(merged.params["embed"]["token"])
    assert set(np.flatnonzero((left != right).any(axis=1))) <= set(ids)


def test_the_command_takes_tokens_or_a_file_of_them(tmp_path, base, chats, capsys):
    path = tmp_path / "tokens.txt"
    path.write_text("\n".join(NEW) + "\n")
    flags = ["finetune", "--model", str(base), "--data", str(chats), "--lora", "4", "--steps", "1"]
    flags += ["--peak", "100", "--eval-every", "0", "--batch", "4", "--eval-share", "0.1"]
    for number, given in enumerate((",".join(NEW), f"@{path}")):
        out = tmp_path / str(number)
        assert main([*flags, "--new-tokens", given, "--out", str(out)]) == 0
        assert from_directory(out / "adapter").id_of(NEW[1]) is not None
    first = (tmp_path / "0" / "merged" / "model.safetensors").read_bytes()
    assert first == (tmp_path / "1" / "merged" / "model.safetensors").read_bytes()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*flags, "--new-tokens", f"@{tmp_path}/none"])
    assert "none cannot be read" in capsys.readouterr().err
    [pieces, *_] = preview(options(tmp_path, base, chats), 1)
    assert pieces[0][0].startswith(NEW[0])


def test_what_cannot_be_is_refused(tmp_path, base, chats):
    for tokens in (("a", "a"), ("", "b")):
        with pytest.raises(ConfigError, match="`new_tokens` must be different texts"):
            options(tmp_path, base, chats, new_tokens=tokens)
    with pytest.raises(ConfigError, match="the head has an adapter"):
        finetune(options(tmp_path, base, chats, targets="lm_head"))
    config = MODELS["tied"]
    params, config = with_moved_rows(config)
    params = add_lora(params, config, 2, 4.0, "all-linear", fxad.random.key(0))
    lora, directory = Lora(2, 4.0), tmp_path / "adapter"
    save_adapters(directory, params, config, lora, "base")
    with pytest.raises(CheckpointError, match="has a row for id 62, the model a vocabulary of 61"):
        load_adapters(directory, made(MODELS["tied"]), MODELS["tied"])
    path = directory / "adapter_config.json"
    values = json.loads(path.read_text())
    assert values["trainable_token_indices"] == {"embed_tokens": IDS}
    for wrong, saying in [
        ({"embed": [1]}, "no token table 'embed'"),
        ({"embed_tokens": [1, 2]}, "has shape"),
        (None, "has no place in this model"),
    ]:
        path.write_text(json.dumps({**values, "trainable_token_indices": wrong}))
        with pytest.raises(CheckpointError, match=saying):
            load_adapters(directory, without_rows(made(config)), config)
    with pytest.raises(CheckpointError, match="merge adapters before you save"):
        fxad_nn.save(fxad_nn.Model(add_rows(made(config), config, [1]), config), tmp_path / "out")
