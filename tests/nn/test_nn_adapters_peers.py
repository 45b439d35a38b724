"""Adapters against PEFT: files both ways, the start, one step's gradients, and merged models."""

import warnings

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
import fxad_nn
from fxad_nn import models
from fxad_nn.adapters import load_adapters, save_adapters
from fxad_nn.errors import CheckpointError
from fxad_nn.families import family_of
from fxad_nn.lora import Lora, adapters_of, add_lora, merge_lora, targeted, trainable
from fxad_nn.model import Model
from fxad_nn.token_rows import resized

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES = {"vocab_size": 97, "max_position_embeddings": 64, "hidden_size": 48}
SIZES |= {"intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6}
SIZES |= {"num_key_value_heads": 2, "initializer_range": 0.2}
TOKENS = np.random.default_rng(0).integers(0, 97, (2, 24))


def base(directory, kind, dtype=torch.float32):
    """A model of random weights, in the directory it was saved to."""
    torch.manual_seed(0)
    if kind == "gpt2":
        sizes = {"vocab_size": 97, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}
        config = transformers.GPT2Config(**sizes, initializer_range=0.2)
        model = transformers.GPT2LMHeadModel(config)
    elif kind == "qwen2":
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES))
    else:
        config = transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)
        model = transformers.LlamaForCausalLM(config)
    model.to(dtype).save_pretrained(directory)
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()


def logits_of(model):
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)).logits.float().numpy()


def moved(params, seed=1):
    """The parameters with adapters that are not zero any more."""
    rng = np.random.default_rng(seed)
    for leaves in adapters_of(params).values():
        leaves["b"] = jnp.asarray(rng.normal(0, 0.1, leaves["b"].shape), "float32")
    return params


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_tables_of_a_resized_vocabulary(tmp_path, kind, dtype):
    """PEFT saves them where the vocabulary is not the one of the base's directory any more."""
    grown = base(tmp_path / "base", kind, dtype)
    grown.resize_token_embeddings(101)
    with torch.no_grad():
        grown.get_input_embeddings().weight[97:] += 0.5
    targets = ["c_attn"] if kind == "gpt2" else ["q_proj"]
    config = peft.LoraConfig(
        r=3, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=kind == "gpt2"
    )
    theirs = peft.get_peft_model(grown, config).eval()
    with pytest.warns(UserWarning, match="embedding"):
        theirs.save_pretrained(tmp_path / "adapter")
    model = fxad_nn.load(tmp_path / "base")
    with pytest.raises(CheckpointError, match="make room for them first"):
        load_adapters(tmp_path / "adapter", model.params, model.config)
    params, config = resized(model.params, model.config, 101, 97)
    params, _ = load_adapters(tmp_path / "adapter", params, config)
    assert params["embed"]["token"].dtype == model.params["embed"]["token"].dtype
    ours = np.asarray(Model(params, config)(TOKENS % 4 + 97), np.float32)
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(TOKENS % 4 + 97)).logits.float().numpy()
    if dtype == torch.float32:
        np.testing.assert_allclose(ours, wanted, atol=1e-4)
    else:
        np.testing.assert_allclose(ours, wanted, atol=0.05 * abs(wanted).max())


def save_moved(model, config, directory):
    """PEFT's adapters of a model, with other weights in the modules that are saved whole."""
    adapted = peft.get_peft_model(model, config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "modules_to_save" in name:
                weight += 0.1 * torch.randn_like(weight)
    adapted.save_pretrained(directory)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_a_table_that_peft_untied_is_refused(tmp_path, module):
    theirs = base(tmp_path / "base", "llama")
    config = peft.LoraConfig(r=3, target_modules=["q_proj"], modules_to_save=[module])
    save_moved(theirs, config, tmp_path / "adapter")
    model = fxad_nn.load(tmp_path / "base")
    with pytest.raises(CheckpointError, match="with ensure_weight_tying=True"):
        load_adapters(tmp_path / "adapter", model.params, model.config)


@pytest.mark.parametrize(
    ("kind", "modules", "dtype"),
    [
        ("llama", ["norm", "input_layernorm"], torch.float32),
        ("llama", ["embed_tokens"], torch.float32),
        ("qwen2", ["lm_head", "model.norm"], torch.float32),
        ("qwen2", ["lm_head"], torch.bfloat16),
        ("qwen2", ["k_proj"], torch.float32),
        ("gpt2", ["ln_f", "ln_1", "c_proj"], torch.float32),
    ],
)
def test_modules_that_peft_trained_and_saved_whole(tmp_path, kind, modules, dtype):
    theirs = base(tmp_path / "base", kind, dtype)
    config = peft.LoraConfig(
        r=3,
        target_modules=["c_attn"] if kind == "gpt2" else ["q_proj"],
        modules_to_save=modules,
        ensure_weight_tying=True,
        task_type="CAUSAL_LM",
        fan_in_fan_out=kind == "gpt2",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about tables of tokens
        save_moved(theirs, config, tmp_path / "adapter")
        model = fxad_nn.load(tmp_path / "base")
        params, _ = load_adapters(tmp_path / "adapter", model.params, model.config)
        again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=dtype)
        wanted = logits_of(peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval())
    ours = np.asarray(Model(params, model.config)(TOKENS), np.float32)
    assert np.abs(ours - np.asarray(model(TOKENS), np.float32)).max() > 0.1
    atol = 1e-4 if dtype == torch.float32 else 0.05 * abs(wanted).max()
    np.testing.assert_allclose(ours, wanted, atol=atol)


def test_the_head_has_an_adapter(tmp_path):
    """PEFT saves the table of such a head, too, and takes it from there."""
    theirs = base(tmp_path / "base", "qwen2")
    config = peft.LoraConfig(r=3, target_modules=["lm_head"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(theirs, config).eval()
    with torch.no_grad():
        theirs.lm_head.lora_B["default"].weight += 0.1
        theirs.lm_head.base_layer.weight += 0.1
    with pytest.warns(UserWarning, match="embedding"):
        adapted.save_pretrained(tmp_path / "adapter")
    model = fxad_nn.load(tmp_path / "base")
    params, _ = load_adapters(tmp_path / "adapter", model.params, model.config)
    ours = np.asarray(Model(params, model.config)(TOKENS), np.float32)
    np.testing.assert_allclose(ours, logits_of(adapted), atol=1e-4)


CASES = [
    ("llama", "all-linear", False),
    ("llama", ("q_proj", "v_proj"), True),
    ("qwen2", ("down_proj",), False),
    ("gpt2", "all-linear", False),
]


@pytest.mark.parametrize(("kind", "targets", "rslora"), CASES)
def test_our_adapters_in_peft(tmp_path, kind, targets, rslora):
    theirs = base(tmp_path / "base", kind)
    model = fxad_nn.load(tmp_path / "base")
    key = fxad.random.key(0)
    params = moved(add_lora(model.params, model.config, 4, 6.0, targets, key, rslora))
    lora = Lora(4, 6.0, targets, rslora)
    save_adapters(tmp_path / "adapter", params, model.config, lora, str(tmp_path / "base"))
    before = logits_of(theirs)
    with_ours = logits_of(peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval())
    ours = np.asarray(Model(params, model.config)(TOKENS))
    assert np.abs(with_ours - before).max() > 0.1
    np.testing.assert_allclose(ours, with_ours, atol=1e-4)
    merged, _ = merge_lora(params, model.config)
    fxad_nn.save(Model(merged, model.config), tmp_path / "merged")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    np.testing.assert_allclose(logits_of(again), with_ours, atol=1e-4)


@pytest.mark.parametrize(("kind", "targets", "rslora"), CASES)
def test_adapters_of_peft_here_with_the_same_gradients(tmp_path, kind, targets, rslora):
    theirs = base(tmp_path / "base", kind)
    targets = targets if isinstance(targets, str) else list(targets)
    options = {"r": 4, "lora_alpha": 6, "target_modules": targets, "use_rslora": rslora}
    options |= {"task_type": "CAUSAL_LM", "init_lora_weights": False}
    options |= {"fan_in_fan_out": kind == "gpt2"}
    adapted = peft.get_peft_model(theirs, peft.LoraConfig(**options))
    adapted.save_pretrained(tmp_path / "adapter")
    model = fxad_nn.load(tmp_path / "base")
    params, lora = load_adapters(tmp_path / "adapter", model.params, model.config)
    named = targeted(model.config, targets if isinstance(targets, str) else tuple(targets))
    assert set(adapters_of(params)) == set(named)
    assert targeted(model.config, lora.targets) == named
    config = model.config
    np.testing.assert_allclose(
        np.asarray(Model(params, config)(TOKENS)), logits_of(adapted.eval()), atol=1e-4
    )
    trained, frozen = fxad.tree.partition(params, trainable(params))
    batch = TOKENS[:, :-1].astype(np.int32), TOKENS[:, 1:].astype(np.int32)

    def loss(trained):
        return models.family(config).loss(fxad.tree.combine(trained, frozen), batch, config)

    grads = adapters_of(fxad.jit(fxad.grad(loss))(trained))
    tokens = torch.from_numpy(TOKENS)
    adapted(tokens, labels=tokens).loss.backward()
    wanted = {
        name: leaf.grad.numpy() for name, leaf in adapted.named_parameters() if leaf.requires_grad
    }
    assert len(wanted) == 2 * len(grads)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in wanted.values()))
    for name, leaves in grads.items():
        published = f"base_model.model.{family_of(config).published(name)}"
        for ours, kind_ in (("a", "lora_A"), ("b", "lora_B")):
            leaf = wanted[f"{published}.{kind_}.default.weight"]
            error = np.linalg.norm(np.asarray(leaves[ours]) - leaf)
            assert error <= 1e-3 * np.linalg.norm(leaf) + 1e-6 * norm, (name, ours)


def test_a_bf16_model_merges_as_in_peft(tmp_path):
    """Both add in float32 what they then round; the last bit may differ where the sums do."""
    theirs = base(tmp_path / "base", "llama", torch.bfloat16)
    model = fxad_nn.load(tmp_path / "base")
    params = moved(add_lora(model.params, model.config, 4, 6.0, "all-linear", fxad.random.key(0)))
    save_adapters(tmp_path / "adapter", params, model.config, Lora(4, 6.0), "x")
    merged, rounding = merge_lora(params, model.config)
    fxad_nn.save(Model(merged, model.config), tmp_path / "merged")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert again.dtype == torch.bfloat16
    ours = np.asarray(Model(merged, model.config)(TOKENS), np.float32)
    wide = again.float().eval()
    exact = logits_of(wide)
    narrow = logits_of(wide.bfloat16())
    assert np.linalg.norm(ours - exact) <= 1.1 * np.linalg.norm(narrow - exact)
    inside = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").float()
    with torch.no_grad():
        closest = logits_of(inside.merge_and_unload().eval())
    # Weights differ by their rounding to 8 bits, at most 2**-9 of their size.
    assert np.linalg.norm(exact - closest) <= 0.02 * np.linalg.norm(closest)
    assert 0 < rounding.largest < 2**-8 * 2
