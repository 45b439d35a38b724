"""A chat model learns to answer by adapters, and what it learned is merged into its weights.

python examples/finetune_lora.py [MODEL chat.jsonl]

Without a model of yours a tiny one is made: a Llama of random weights that spells bytes.
"""

import json
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as vocabularies

import fxad
import fxad_nn
from fxad_nn import chat_template, models, tokenizer
from fxad_nn.finetune import finetune
from fxad_nn.finetune_recipe import finetune_recipe
from fxad_nn.generate import generate
from fxad_nn.listener import Listener
from fxad_nn.spec import init_params

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

CAPITALS = {"France": "Paris", "Norway": "Oslo", "Peru": "Lima", "Kenya": "Nairobi"}


class Reports(Listener):
    """Prints losses as they come."""

    def progressed(self, progress):
        print(f"step {progress.step:4d}  loss {progress.loss:.3f}")


def asked(country):
    return [{"role": "user", "content": f"The capital of {country}?"}]


def tiny_model(directory):
    """A model in the form in which they are published: weights, tokenizer, chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelling = Tokenizer(vocabularies.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    spelling.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelling.decoder = decoders.ByteLevel()
    spelling.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    directory.mkdir()
    spelling.save(str(directory / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))

    sizes = {"vocab": 258, "context": 96, "width": 64, "heads": 4, "groups": 2, "head_dim": 16}
    config = models.preset("llama-tiny", **sizes, hidden=128, ends=(257,))
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    # Weights of the size of trained ones: frozen ones near zero could not be made to say anything.
    params = fxad.tree.map(lambda p: 8 * p if p.ndim == 2 else p, params)
    fxad_nn.save(fxad_nn.Model(params, config), directory)


def tiny_chats(path):
    """Questions and answers, one conversation on each line."""
    with open(path, "w") as file:
        for country, capital in CAPITALS.items():
            answer = {"role": "assistant", "content": f"It is {capital}."}
            for _ in range(8):
                file.write(json.dumps({"messages": [*asked(country), answer]}) + "\n")


def answer(directory, messages):
    """What the model in a directory says."""
    model, encoder = fxad_nn.load(directory), tokenizer.from_directory(directory)
    template = chat_template.from_directory(directory)
    prompt = encoder.encode(template.render(messages, add_generation_prompt=True))
    drawn = generate(model.params, model.config, prompt.tolist(), 40, temperature=0)
    return encoder.decode(list(drawn))


def main(model=None, data=None) -> float:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        given = {"lora": 16}
        if model is None:
            model, data = room / "model", room / "chat.jsonl"
            tiny_model(model)
            tiny_chats(data)
            given = {
                "lora": 8,
                "steps": 120,
                "learning_rate": 1e-2,
                "batch": 8,
                "out": room / "run",
            }
        options = finetune_recipe(model=Path(model), data=Path(data), **given)
        tuned = finetune(options, Reports())
        merged = tuned.saved[-1]
        print(f"validation loss {tuned.result.val_loss:.3f}; {tuned.rounding}")
        for country in CAPITALS:
            print(asked(country)[0]["content"], answer(merged, asked(country)))
        return float(tuned.result.val_loss)


if __name__ == "__main__":
    main(*sys.argv[1:])
