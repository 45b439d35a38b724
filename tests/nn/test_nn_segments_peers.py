"""Documents that share a row, beside PyTorch's attention and transformers with explicit masks."""

import numpy as np
import pytest

import fxad
import fxad_nn
from fxad_nn import models
from fxad_nn.spec import named_leaves

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = np.stack([np.repeat([3, 1, 2], [40, 7, 73]), np.repeat([0, 1], [96, 24])]).astype(np.int32)


def allowed(ids, causal=True, left=None):
    """Which keys each position sees: bools [batch, 1, time, time]."""
    i, j = np.ogrid[: ids.shape[1], : ids.shape[1]]
    seen = (ids[:, :, None] == ids[:, None, :]) & (j <= i if causal else True)
    return (seen & (True if left is None else j >= i - left))[:, None]


@pytest.mark.parametrize(("causal", "left"), [(True, None), (True, 20), (False, None)])
def test_attention_is_pytorchs_with_a_mask(causal, left):
    r = np.random.default_rng(0)
    q, d_out = (r.standard_normal((2, 120, 4, 32)).astype(np.float32) for _ in "qo")
    k, v = (r.standard_normal((2, 120, 2, 32)).astype(np.float32) for _ in "kv")
    options = {"is_causal": causal, "segment_ids": IDS}
    options |= {"local_window_size": (left, 0)} if left is not None else {}

    @fxad.jit
    def both(q, k, v, d_out):
        out, back = fxad.vjp(lambda *a: fxad.nn.dot_product_attention(*a, **options), q, k, v)
        return out, *back(d_out)

    leaves = [torch.from_numpy(x).transpose(1, 2).requires_grad_() for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(
        *leaves, attn_mask=torch.from_numpy(allowed(IDS, causal, left)), enable_gqa=True
    )
    grads = torch.autograd.grad(out, leaves, torch.from_numpy(d_out).transpose(1, 2))
    for a, b in zip(both(q, k, v, d_out), (out, *grads), strict=True):
        np.testing.assert_allclose(a, b.detach().transpose(1, 2), rtol=2e-5, atol=2e-5)


SIZES = {"vocab_size": 97, "max_position_embeddings": 128, "hidden_size": 32}
SIZES |= {"intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "initializer_range": 0.2}


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "GPT2"])
def test_logits_and_gradients_are_those_of_transformers_with_a_mask(tmp_path, kind):
    sizes = SIZES
    if kind == "GPT2":
        sizes = {"vocab_size": 97, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4}
        sizes |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    # A mask is added to scores as it is only where attention is written out.
    config._attn_implementation = "eager"
    head = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    theirs = getattr(transformers, head)(config).eval()
    theirs.save_pretrained(tmp_path)
    model = fxad_nn.load(tmp_path)
    tokens = np.random.default_rng(1).integers(0, 97, IDS.shape).astype(np.int32)
    borders = np.diff(IDS, axis=1, prepend=IDS[:, :1]) != 0
    positions = np.arange(120) - np.maximum.accumulate(np.where(borders, np.arange(120), 0), axis=1)
    mask = np.where(allowed(IDS), 0.0, np.finfo(np.float32).min).astype(np.float32)
    logits = theirs(
        input_ids=torch.from_numpy(tokens).long(),
        attention_mask=torch.from_numpy(mask),
        position_ids=torch.from_numpy(positions),
    ).logits
    targets = np.roll(tokens, -1, axis=1)
    targets[:, :-1][np.diff(IDS) != 0] = -1
    targets[:, -1] = -1
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, 97), torch.from_numpy(targets).long().reshape(-1), ignore_index=-1
    )
    loss.backward()
    family, c = models.family(model.config), model.config
    ours = fxad.jit(lambda p, t, s: family.forward(p, t, c, s))(model.params, tokens, IDS)
    np.testing.assert_allclose(ours, logits.detach(), atol=1e-4)
    value, grads = fxad.jit(fxad.value_and_grad(lambda p, t, y, s: family.loss(p, (t, y), c, s)))(
        model.params, tokens, targets, IDS
    )
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    wanted = named_gradients(theirs, tmp_path / "gradients")
    floor = 1e-6 * np.sqrt(sum(np.square(g).sum() for g in wanted.values()))
    for name, got in named_leaves(grads):
        limit = max(1e-3 * np.linalg.norm(wanted[name]), floor)
        assert np.linalg.norm(np.asarray(got) - wanted[name]) <= limit, name


def named_gradients(theirs, directory):
    """Their gradients by our names: saved in place of weights, so that the loader maps them."""
    copy = type(theirs)(theirs.config)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    with torch.no_grad():
        for name, p in copy.named_parameters():
            p.copy_(gradients[name])
    copy.save_pretrained(directory)
    found = fxad_nn.load(directory).params
    return {name: np.asarray(leaf) for name, leaf in named_leaves(found)}
