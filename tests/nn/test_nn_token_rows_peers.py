"""New tokens against transformers and PEFT: files both ways, gradients, and how rows begin."""

import numpy as np
import pytest
from chat_templates import CHATML
from tiny_chat_model import write_chats, write_model

import fxad
import fxad_nn
from fxad_nn import models
from fxad_nn.adapters import load_adapters
from fxad_nn.finetune import finetune
from fxad_nn.finetune_recipe import finetune_recipe
from fxad_nn.lora import trainable
from fxad_nn.token_rows import resized, rows_of
from fxad_nn.tokenizer import from_directory

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

NEW = ("<|turn|>", "<|over|>")
TEMPLATE = CHATML.replace("<|im_start|>", NEW[0]).replace("<|im_end|>", NEW[1])
TEXT = "<|turn|>user\nWhat comes after 3?<|over|>"


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def base(tmp_path, request):
    path = tmp_path / "base"
    return write_model(path, "float32", template=TEMPLATE, tied=request.param)


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(np.asarray(ids, np.int64))[None]).logits.float().numpy()


def test_our_tokens_in_transformers_and_peft(tmp_path, base):
    data = write_chats(tmp_path / "chat.jsonl", 20)
    given = {"lora": 4, "learning_rate": 1e-2, "steps": 6, "batch": 4, "peak": 100.0}
    given |= {"new_tokens": NEW, "out": tmp_path / "run", "eval_every": 0}
    finetune(finetune_recipe(model=base, data=data, **given))
    merged, ours = tmp_path / "run" / "merged", from_directory(tmp_path / "run" / "adapter")
    ids = ours.encode(TEXT)
    wanted = np.asarray(fxad_nn.load(merged)(ids[None]))
    theirs = transformers.AutoTokenizer.from_pretrained(merged)
    assert theirs(TEXT, add_special_tokens=False)["input_ids"] == ids.tolist()
    assert set(ids[[0, -1]].tolist()) <= set(theirs.all_special_ids) | {
        i for i, token in theirs.added_tokens_decoder.items() if token.special
    }
    chat = [{"role": "user", "content": "What comes after 3?"}]
    assert theirs.apply_chat_template(chat, tokenize=False).startswith(TEXT)
    whole = transformers.AutoModelForCausalLM.from_pretrained(merged).eval()
    np.testing.assert_allclose(logits_of(whole, ids), wanted, atol=2e-4)
    # The adapters beside the base, by hand and by the class that does it itself.
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(len(theirs))
    adapted = peft.PeftModel.from_pretrained(model, tmp_path / "run" / "adapter").eval()
    np.testing.assert_allclose(logits_of(adapted, ids), wanted, atol=2e-4)
    auto = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "run" / "adapter").eval()
    np.testing.assert_allclose(logits_of(auto, ids), wanted, atol=2e-4)


def test_rows_of_peft_here_with_the_same_gradients(tmp_path, base):
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    known = from_directory(base).size
    ids = [known, known + 1, 7]
    model.resize_token_embeddings(known + 2)
    tied = model.config.tie_word_embeddings
    indices = ids if tied else {"embed_tokens": ids, "lm_head": ids}
    options = {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    config = peft.LoraConfig(**options, trainable_token_indices=indices)
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(0)
    with torch.no_grad():
        for _, leaf in adapted.named_parameters():
            if leaf.requires_grad:
                leaf.normal_(0, 0.2)
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    ours = fxad_nn.load(base)
    params, config = resized(ours.params, ours.config, known + 2, known)
    params, _ = load_adapters(tmp_path / "adapter", params, config)
    tokens = np.random.default_rng(0).integers(0, known, (2, 16)).astype(np.int32)
    tokens[:, 3], tokens[:, 7], tokens[0, 9] = known, known + 1, 7
    theirs = adapted(torch.from_numpy(tokens).long(), labels=torch.from_numpy(tokens).long())
    np.testing.assert_allclose(
        np.asarray(fxad_nn.Model(params, config)(tokens)), theirs.logits.detach(), atol=2e-4
    )
    theirs.loss.backward()
    trained, frozen = fxad.tree.partition(params, trainable(params))
    batch = tokens[:, :-1].copy(), tokens[:, 1:].copy()

    def loss(trained):
        return models.family(config).loss(fxad.tree.combine(trained, frozen), batch, config)

    value, grads = fxad.jit(fxad.value_and_grad(loss))(trained)
    assert float(value) == pytest.approx(theirs.loss.item(), rel=1e-5)
    wanted = {n: p.grad.numpy() for n, p in adapted.named_parameters() if p.requires_grad}
    names = {"embed": "embed_tokens"} | ({} if tied else {"head": "lm_head"})
    for place, name in names.items():
        [leaf] = [g for n, g in wanted.items() if f".{name}.token_adapter" in n]
        mine = np.asarray(rows_of(grads)[place]["values"])
        assert np.linalg.norm(mine - leaf) <= 1e-4 * np.linalg.norm(leaf)


def test_rows_begin_as_in_transformers(base):
    """But for its noise: draws of a covariance of 1e-9 of that of the rows."""
    model, ours = transformers.AutoModelForCausalLM.from_pretrained(base), fxad_nn.load(base)
    vocab = ours.config.vocab
    torch.manual_seed(0)
    model.resize_token_embeddings(vocab + 3)
    params, _ = resized(ours.params, ours.config, vocab + 3, vocab)
    mine = np.asarray(params["embed"]["token"])
    theirs = model.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(mine[:vocab], theirs[:vocab])
    deviation = np.sqrt(1e-9) * mine[:vocab].std(axis=0)
    assert (np.abs(mine[vocab:] - theirs[vocab:]) <= 6 * deviation + 1e-7).all()
