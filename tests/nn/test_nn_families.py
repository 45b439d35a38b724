"""Every family and option against transformers, on random models: logits, gradients, decoding."""

import json
import warnings

import numpy as np
import pytest

import fxad
import fxad_nn
from fxad_nn import models
from fxad_nn.cache import init_cache
from fxad_nn.errors import CheckpointError
from fxad_nn.families import FAMILIES
from fxad_nn.generate import generate
from fxad_nn.spec import named_leaves

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCAB, TIME, CONTEXT = 97, 24, 96
GPT2 = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": 24, "n_layer": 2, "n_head": 4}
GPT2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
DECODER = {"vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "hidden_size": 24}
DECODER |= {"intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6}
DECODER |= {"num_key_value_heads": 2}
IDS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}

STRETCHED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0}
STRETCHED |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}
YARN |= {"rope_theta": 1000.0, "beta_fast": 4.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1], "long_factor": [2.0, 3.0]}
LOCAL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}

CASES = {
    "gpt2": ("GPT2", {}),
    "gpt2-relu": ("GPT2", {"activation_function": "relu"}),
    "gpt2-gelu": ("GPT2", {"activation_function": "gelu"}),
    "gpt2-silu": ("GPT2", {"activation_function": "silu"}),
    "gpt2-tanh": ("GPT2", {"activation_function": "tanh"}),
    "gpt2-quick": ("GPT2", {"activation_function": "quick_gelu"}),
    "gpt2-scores": ("GPT2", {"scale_attn_weights": False, "reorder_and_upcast_attn": True}),
    "gpt2-layers": ("GPT2", {"scale_attn_by_inverse_layer_idx": True, "n_inner": 40}),
    "gpt2-untied": ("GPT2", {"tie_word_embeddings": False}),
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "head_dim": 6}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "llama-llama3": ("Llama", {"rope_parameters": STRETCHED}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.5}}),
    "llama-dynamic": (
        "Llama",
        {
            "rope_parameters": {"rope_type": "dynamic", "factor": 8.0},
            "max_position_embeddings": 12,
        },
    ),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "llama-yarn-scales": (
        "Llama",
        {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.5, "truncate": False}},
    ),
    "mistral": ("Mistral", {"sliding_window": 7}),
    "mistral-whole": ("Mistral", {"sliding_window": None, "head_dim": 8}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 6}),
    "gemma2": ("Gemma2", {**LOCAL, "head_dim": 6, "query_pre_attn_scalar": 9}),
    "gemma3": ("Gemma3", {**LOCAL, "head_dim": 6, "query_pre_attn_scalar": 9}),
    "gemma3-stretched": (
        "Gemma3",
        {
            **LOCAL,
            "head_dim": 6,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
            "final_logit_softcapping": 4.0,
        },
    ),
    "phi3-short": (
        "Phi3",
        {"rope_parameters": LONG, "original_max_position_embeddings": 90},
    ),
    "phi3-long": (
        "Phi3",
        {"rope_parameters": LONG, "original_max_position_embeddings": 4},
    ),
    "mixtral": ("Mixtral", {"num_local_experts": 5}),
    "mixtral-losses": (
        "Mixtral",
        {
            "num_local_experts": 3,
            "sliding_window": 7,
            "output_router_logits": True,
            "router_aux_loss_coef": 0.5,
        },
    ),
    "olmoe": ("Olmoe", {"num_experts": 6, "num_experts_per_tok": 3, "pad_token_id": 0}),
    "olmoe-other": (
        "Olmoe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "clip_qkv": 0.5,
            "attention_bias": True,
            "pad_token_id": 0,
        },
    ),
    "phi3-part": ("Phi3", {"partial_rotary_factor": 0.5, "head_dim": 8, "sliding_window": 6}),
}


CLASSES = {"GPT2": "GPT2LMHeadModel"}


def built(name):
    """A model of random weights, large enough to tell tokens apart, in transformers."""
    kind, options = CASES[name]
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(kind, f"{kind}Config")
    base = {**GPT2, **IDS} if kind == "GPT2" else {**DECODER, **IDS}
    asked = {**base, "initializer_range": 0.3, **options}
    config = getattr(transformers, config_class)(**asked, attn_implementation="eager")
    torch.manual_seed(0)
    model = getattr(transformers, CLASSES.get(kind, f"{kind}ForCausalLM"))(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start at 0 and 1: hidden
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
    return model.eval()


@pytest.fixture
def pair(request, tmp_path):
    """(theirs, ours, where ours came from), of one case."""
    theirs = built(request.param)
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs, fxad_nn.load(str(tmp_path / "theirs")), tmp_path


def tokens_of(shape, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, shape).astype(np.int32)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))).logits.float().numpy()


@pytest.mark.parametrize("pair", CASES, indirect=True)
def test_a_family_is_that_of_transformers(pair):
    theirs, model, directory = pair
    config, tokens = model.config, tokens_of((2, TIME))
    expected = logits_of(theirs, tokens)
    got = np.asarray(model(tokens))
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)
    _assert_same_gradients(theirs, model, directory / "gradients")
    _assert_decoding_is_the_whole_pass(model, tokens, got)
    if config.family == "gpt2" or getattr(config.rope_scaling, "kind", "") != "dynamic":
        # They choose dynamic frequencies anew for every token, beside keys of older ones.
        _assert_same_greedy_tokens(theirs, model)
    fxad_nn.save(model, directory / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        directory / "ours", attn_implementation="eager"
    )
    assert type(again) is type(theirs)
    np.testing.assert_array_equal(logits_of(again.eval(), tokens), expected)


QWEN_README = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "factor": 3.0}
EDITS = {
    "llama": {"rope_scaling": {"rope_type": "llama3", **STRETCHED}},
    "llama-yarn": {"rope_scaling": LINEAR},
    "mistral": {"partial_rotary_factor": 0.5},
    "qwen2": {"rope_scaling": QWEN_README},
    "qwen3": {"rope_scaling": {**QWEN_README, "rope_theta": 500.0}},
    "gemma2": {"partial_rotary_factor": 0.5, "rope_scaling": {}},
    "gemma3": {"rope_scaling": LINEAR},
    "gemma3-stretched": {"rope_scaling": {**LINEAR, "rope_theta": 3.0}},
    "mixtral": {"rope_scaling": LINEAR},
    "olmoe": {"partial_rotary_factor": 0.5},
    "phi3-long": {"rope_scaling": {**LONG, "long_factor": [4.0, 5.0]}},
}


@pytest.mark.parametrize("pair", EDITS, indirect=True)
def test_what_a_user_adds_to_a_file_counts_as_in_transformers(pair, request):
    """Files that transformers 5 writes hold rope_parameters, which a rope_scaling beside it
    replaces; and partial_rotary_factor is what most models do not read."""
    _, _, directory = pair
    path = directory / "theirs" / "config.json"
    edits = EDITS[request.node.callspec.params["pair"]]
    values = json.loads(path.read_text("utf-8")) | edits
    assert "rope_parameters" in values
    path.write_text(json.dumps(values), "utf-8")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        directory / "theirs", attn_implementation="eager"
    )
    model, tokens = fxad_nn.load(directory / "theirs"), tokens_of((2, TIME))
    expected = logits_of(theirs.eval(), tokens)
    np.testing.assert_allclose(np.asarray(model(tokens)), expected, atol=1e-4, rtol=0)
    fxad_nn.save(model, directory / "ours")
    assert fxad_nn.load(directory / "ours").config == model.config


def test_a_head_of_its_own_counts_though_the_configuration_ties_it(tmp_path):
    built("llama").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text("utf-8")) | {"tie_word_embeddings": True}
    path.write_text(json.dumps(values), "utf-8")
    theirs, tokens = transformers.AutoModelForCausalLM.from_pretrained(tmp_path), tokens_of((2, 9))
    model = fxad_nn.load(tmp_path)
    assert not model.config.tied
    np.testing.assert_allclose(np.asarray(model(tokens)), logits_of(theirs, tokens), atol=1e-4)


def test_scaled_rotary_positions_of_half_a_head_run_nowhere(tmp_path):
    built("llama-yarn").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text("utf-8")) | {"partial_rotary_factor": 0.5}
    path.write_text(json.dumps(values), "utf-8")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="size of tensor"):
        logits_of(theirs, tokens_of((1, 4)))
    with pytest.raises(CheckpointError, match="llama rotates whole heads"):
        fxad_nn.load(tmp_path)


def _assert_same_gradients(theirs, model, directory):
    """Leaf by leaf to 1e-3 of its norm, with a floor of 1e-6 of all together."""
    config, module = model.config, models.family(model.config)
    x, y = tokens_of((2, TIME), 1), tokens_of((2, TIME), 2)
    step = fxad.jit(fxad.value_and_grad(lambda p, batch: module.loss(p, batch, config)))
    loss, grads = step(model.params, (x, y))
    theirs.zero_grad()
    output = theirs(torch.from_numpy(x.astype(np.int64)))
    targets = torch.from_numpy(y.astype(np.int64)).flatten()
    expected = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), targets)
    if getattr(theirs.config, "output_router_logits", False):
        expected = expected + theirs.config.router_aux_loss_coef * output.aux_loss
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-4)
    wanted = _named_gradients(theirs, directory)
    floor = 1e-6 * np.sqrt(sum(np.square(g).sum() for g in wanted.values()))
    for name, got in named_leaves(grads):
        limit = max(1e-3 * np.linalg.norm(wanted[name]), floor)
        assert np.linalg.norm(np.asarray(got) - wanted[name]) <= limit, name


def _named_gradients(theirs, directory):
    """Save their gradients in place of weights, so that the loader maps names and layouts."""
    copy = type(theirs)(theirs.config)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    with torch.no_grad():
        for name, p in copy.named_parameters():
            p.copy_(gradients[name])
    copy.save_pretrained(directory)
    found = fxad_nn.load(directory).params
    return {name: np.asarray(leaf) for name, leaf in named_leaves(found)}


def _assert_decoding_is_the_whole_pass(model, tokens, whole):
    """A prompt, and then pieces at positions that a compiled step learns when it runs."""
    config, first = model.config, 9
    cache = init_cache(config, batch=2, length=TIME)
    step = fxad.jit(lambda *given: models.decode(*given, config))
    logits, cache = models.decode(model.params, cache, tokens[:, :first], 0, config)
    found = [np.asarray(logits)]
    for position in range(first, TIME, 5):
        part = tokens[:, position : position + 5]
        logits, cache = step(model.params, cache, part, np.int32(position))
        found.append(np.asarray(logits))
    np.testing.assert_allclose(np.concatenate(found, 1), whole, atol=1e-4, rtol=0)


def _assert_same_greedy_tokens(theirs, model):
    prompt = [int(t) for t in tokens_of(7, seed=3)]
    found = list(generate(model.params, model.config, prompt, 64, temperature=0.0))
    asked = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs.generate(torch.tensor([prompt]), **asked)[0, 7:].tolist()
    assert found == expected


NARROW = ["gpt2", "llama-llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3-part"]
NARROW += ["mixtral", "olmoe"]


def test_bf16_logits_are_as_good_as_transformers_own(tmp_path):
    """The error of bf16, seen from the same weights in float32: of all families together no larger
    than theirs. Of a single one both are draws from about the same noise."""
    ratios = []
    for name in NARROW:
        theirs = built(name).bfloat16()
        theirs.save_pretrained(tmp_path / name)
        tokens, found = tokens_of((8, TIME)), {}
        for dtype in (torch.float32, torch.bfloat16):
            again = type(theirs).from_pretrained(
                tmp_path / name, dtype=dtype, attn_implementation="eager"
            )
            found[dtype] = logits_of(again.eval(), tokens)
        model = fxad_nn.load(tmp_path / name)
        assert model.config.dtype == "bfloat16"
        exact = found[torch.float32]
        got = np.asarray(model(tokens), np.float32)
        ours, bound = (np.linalg.norm(x - exact) for x in (got, found[torch.bfloat16]))
        assert 0 < ours <= 1.1 * bound, name
        ratios.append(ours / bound)
    assert np.sqrt(np.mean(np.square(ratios))) <= 1.0, dict(zip(NARROW, ratios, strict=True))


def test_every_family_has_a_case():
    classes = {family.architecture for family in FAMILIES.values()}
    assert classes == {CLASSES.get(kind, f"{kind}ForCausalLM") for kind, _ in CASES.values()}
