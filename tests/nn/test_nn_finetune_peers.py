"""Fine-tuning against transformers and PEFT: the steps, and what is loaded of what was saved."""

import numpy as np
import pytest
from chat_templates import CHATML
from tiny_chat_model import chat, write_chats
from tokenizer_directories import OWN, write_trained

import fxad
import fxad_nn
from fxad_nn.adapters import save_adapters
from fxad_nn.cli import main
from fxad_nn.families import family_of
from fxad_nn.finetune import begin
from fxad_nn.finetune_recipe import finetune_recipe
from fxad_nn.lora import adapters_of
from fxad_nn.loss import IGNORE
from fxad_nn.tokenizer import from_directory
from fxad_nn.train import carry_out

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES = {"max_position_embeddings": 128, "hidden_size": 32, "intermediate_size": 64}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"initializer_range": 0.2, "tie_word_embeddings": True}


def base(path, kind, dtype):
    path.mkdir()
    write_trained(path, "BPE", OWN * 40, eos_token="<|im_end|>", chat_template=CHATML)
    torch.manual_seed(0)
    vocab = from_directory(path).size
    if kind == "qwen2":
        config = transformers.Qwen2Config(vocab_size=vocab, **SIZES)
        model = transformers.Qwen2ForCausalLM(config)
    else:
        config = transformers.LlamaConfig(vocab_size=vocab, **SIZES)
        model = transformers.LlamaForCausalLM(config)
    model.to(dtype).save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_what_the_command_saves_loads_in_transformers_and_peft(tmp_path, kind):
    """The slice: a bf16 directory, chats, LoRA, merged; the same logits."""
    path = base(tmp_path / "base", kind, torch.bfloat16)
    data, run = write_chats(tmp_path / "chat.jsonl", 20), tmp_path / "run"
    flags = ["--model", str(path), "--data", str(data), "--out", str(run), "--lora", "4"]
    flags += ["--steps", "10", "--learning-rate", "0.01", "--batch", "4", "--peak", "100"]
    assert main(["finetune", *flags]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(run / "merged")
    assert theirs.dtype == torch.bfloat16
    encoder = transformers.AutoTokenizer.from_pretrained(run / "merged")
    ids = encoder.apply_chat_template(chat(3), return_tensors="pt", return_dict=False)
    with torch.no_grad():
        wanted = theirs.float().eval()(ids).logits.numpy()
    ours = np.asarray(fxad_nn.load(run / "merged", "float32")(ids.numpy()))
    np.testing.assert_allclose(ours, wanted, atol=1e-4)

    before = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        base_logits = before(ids).logits.numpy()
        adapted = peft.PeftModel.from_pretrained(before, run / "adapter").eval()
        with_adapters = adapted(ids).logits.numpy()
    moved = np.linalg.norm(with_adapters - base_logits)
    # Merged weights are rounded to bfloat16: 2**-9 of each, through a few layers.
    assert np.linalg.norm(wanted - with_adapters) < 0.05 * np.linalg.norm(with_adapters)
    assert np.linalg.norm(wanted - with_adapters) < 0.2 * moved


def documents(tokens, targets, segments=None):
    """What is in the rows of a micro-batch: rows as they are, or each document that shares one."""
    if segments is None:
        return [(tokens, targets)]
    rows = zip(tokens, targets, segments, strict=True)
    return [(t[s == n][None], y[s == n][None]) for t, y, s in rows for n in range(1, s.max() + 1)]


@pytest.mark.parametrize("pack", [True, False])
def test_steps_are_those_of_peft_and_torch(tmp_path, pack):
    """From the same adapters, by the same batches, of two micro-batches each; theirs are never
    packed."""
    path = base(tmp_path / "base", "llama", torch.float32)
    data = write_chats(tmp_path / "chat.jsonl", 30)
    options = finetune_recipe(
        **{"model": path, "data": data, "out": tmp_path / "run", "lora": 4, "steps": 5, "batch": 3},
        **{"accumulate": 2, "learning_rate": 1e-3, "schedule": "constant", "warmup": 0},
        **{"clip": 1.0, "peak": 100.0, "eval_every": 0, "weight_decay": 0.01, "pack": pack},
    )
    run = begin(options)
    whole = fxad.tree.combine(run.params, run.task.frozen)
    save_adapters(tmp_path / "start", whole, run.config, options.adapters(), str(path))
    model = transformers.AutoModelForCausalLM.from_pretrained(path)
    model = peft.PeftModel.from_pretrained(model, tmp_path / "start", is_trainable=True)
    model.eval()  # without dropout
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-3, (0.9, 0.999), 1e-8, weight_decay=0.01)
    losses = []
    for step in range(5):
        *arrays, _ = run.task.batch(step)
        assert len(arrays) == 2 + pack
        count = (arrays[1] != IGNORE).sum()
        optimizer.zero_grad()
        total = 0.0
        parts = [each for micro in zip(*arrays, strict=True) for each in documents(*micro)]
        for part, wanted in parts:
            logits = model(torch.from_numpy(part).long()).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1),
                torch.from_numpy(wanted).long().flatten(),
                ignore_index=IGNORE,
                reduction="sum",
            )
            (loss / count).backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(total / count)
    run = carry_out(run).run
    ours = adapters_of(fxad.tree.combine(run.params, run.task.frozen))
    named = dict(model.named_parameters())
    for name, leaves in ours.items():
        published = f"base_model.model.{family_of(run.config).published(name)}"
        for kind, theirs in (("a", "lora_A"), ("b", "lora_B")):
            leaf = named[f"{published}.{theirs}.default.weight"].detach().numpy()
            # Adam moves each number by about the rate a step, whatever the gradient's size: where
            # that is near zero its sign is a matter of rounding, for a few numbers.
            error = np.abs(np.asarray(leaves[kind]) - leaf)
            assert np.mean(error) < 1e-5, (name, kind)
            assert np.mean(error > 1e-4) < 0.01, (name, kind)
    reported = [loss for _, loss in run.history["train"]]
    np.testing.assert_allclose(reported[-1], np.mean(losses), rtol=1e-5)
