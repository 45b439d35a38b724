"""The models, their gradients and the optimizer against PyTorch and transformers."""

import numpy as np
import pytest

import fxad
from fxad_nn import models
from fxad_nn.model import load
from fxad_nn.optim import adamw, muon
from fxad_nn.precision import in_precision
from fxad_nn.spec import named_leaves

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GPT2 = {"vocab_size": 97, "n_positions": 32, "n_embd": 48, "n_layer": 3, "n_head": 4}
LLAMA = {"vocab_size": 97, "max_position_embeddings": 64, "hidden_size": 48}
LLAMA |= {"intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6}
LLAMA |= {"num_key_value_heads": 2, "initializer_range": 0.2}


def saved(directory, kind, **options):
    """A model of random weights and the directory it was saved to."""
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(**GPT2, initializer_range=0.2, attn_implementation="eager")
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        model = transformers.GPT2LMHeadModel(config)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(LLAMA | options)))
    for parameter in model.parameters():  # biases and norms start at 0 and 1, which hides them
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
    size = "20KB" if options.get("tie_word_embeddings") else "5GB"
    model.save_pretrained(directory, max_shard_size=size)
    return model.eval()


def parts(model):
    return model.config, model.params


def test_gradients_and_ten_steps_are_those_of_torch(tmp_path):
    theirs = saved(tmp_path, "gpt2")
    config, params = parts(load(tmp_path))
    model = models.family(config)
    tokens = np.random.default_rng(1).integers(0, 97, (10, 4, 33))
    matrices = [p for p in theirs.parameters() if p.ndim >= 2]
    vectors = [p for p in theirs.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    their_optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), eps=1e-8)
    ours = adamw(1e-3, 0.9, 0.99, 1e-8, weight_decay=0.1)
    state = ours.init(params)
    gradient = fxad.jit(fxad.value_and_grad(lambda p, batch: model.loss(p, batch, config)))
    update = fxad.jit(ours.update)
    for step, batch in enumerate(tokens):
        x, y = (np.ascontiguousarray(part, np.int32) for part in (batch[:, :-1], batch[:, 1:]))
        loss, grads = gradient(params, (x, y))
        logits = theirs(torch.from_numpy(x.astype(np.int64))).logits
        wanted = torch.from_numpy(y.astype(np.int64)).flatten()
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted)
        assert float(loss) == pytest.approx(expected.item(), rel=1e-4)
        their_optimizer.zero_grad()
        expected.backward()
        if step == 0:
            _assert_same_gradients(grads, theirs, tmp_path / "grads")
        their_optimizer.step()
        params, state = update(grads, state, params)


@pytest.mark.parametrize("match_adamw", [False, True])
def test_muon_is_that_of_torch(match_adamw):
    r = np.random.default_rng(5)
    start = r.normal(size=(24, 40)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(start.copy()))
    adjust = "match_rms_adamw" if match_adamw else "original"
    their_optimizer = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, adjust_lr_fn=adjust)
    ours = muon(0.1, weight_decay=0.1, match_adamw=match_adamw)
    params = {"w": fxad.numpy.asarray(start)}
    state = ours.init(params)
    for _ in range(5):
        g = r.normal(size=start.shape).astype(np.float32)
        theirs.grad = torch.from_numpy(g)
        their_optimizer.step()
        params, state = ours.update({"w": fxad.numpy.asarray(g)}, state, params)
    moved = theirs.detach().numpy() - start
    # torch iterates in bfloat16, ours in float32
    difference = np.asarray(params["w"]) - theirs.detach().numpy()
    assert np.linalg.norm(difference) < 2e-2 * np.linalg.norm(moved)


def _assert_same_gradients(grads, theirs, directory):
    expected = _named_gradients(theirs, directory)
    squares = [np.square(np.asarray(leaf, np.float64)).sum() for leaf in expected.values()]
    floor = 1e-6 * np.sqrt(sum(squares))
    for name, got in named_leaves(grads):
        wanted = np.asarray(expected[name])
        difference = np.linalg.norm(np.asarray(got) - wanted)
        assert difference <= max(1e-4 * np.linalg.norm(wanted), floor), name


def _named_gradients(theirs, directory):
    """Save their gradients in place of weights, so that the loader maps names and layouts."""
    copy = type(theirs)(theirs.config)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    with torch.no_grad():
        for name, p in copy.named_parameters():
            p.copy_(gradients[name])
    copy.save_pretrained(directory)
    return dict(named_leaves(load(directory).params))


@pytest.mark.parametrize(("precision", "times"), [("bf16", 1), ("mixed", 1.5)])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_narrow_precisions_are_as_good_as_autocast(tmp_path, kind, precision, times):
    """Gradients of bf16 products lie no further from those of float32 than torch's own do: the
    bound is torch's error, of all parameters together, and for a single one twice its error. Where
    the residual stream is rounded too, which autocast keeps in float32, half as much again."""
    theirs = saved(tmp_path, kind)
    config, params = parts(load(tmp_path))
    tokens = np.random.default_rng(2).integers(0, 97, (8, 33))
    x, y = (np.ascontiguousarray(part, np.int64) for part in (tokens[:, :-1], tokens[:, 1:]))
    found, losses = {}, {}
    for narrow in (False, True):
        theirs.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            logits = theirs(torch.from_numpy(x)).logits
        wanted = torch.from_numpy(y).flatten()
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted)
        loss.backward()
        losses[narrow] = loss.item()
        found[narrow] = _named_gradients(theirs, tmp_path / str(narrow))
    config = in_precision(config, precision)
    loss_of = models.family(config).loss
    step = fxad.jit(fxad.value_and_grad(lambda p, batch: loss_of(p, batch, config)))
    loss, grads = step(params, (x.astype(np.int32), y.astype(np.int32)))
    assert abs(float(loss) - losses[False]) <= 2 * abs(losses[True] - losses[False]) + 2**-8
    squares = []
    for name, got in named_leaves(grads):
        exact, cast = (np.asarray(found[n][name], np.float64) for n in (False, True))
        size = np.linalg.norm(exact)
        error, allowed = (np.linalg.norm(a - exact) / size for a in (np.asarray(got), cast))
        assert error <= 2 * times * allowed + 1e-6, (name, error, allowed)
        squares.append((error**2, allowed**2))
    ours, torchs = np.sqrt(np.mean(squares, axis=0))
    assert ours <= times * torchs
