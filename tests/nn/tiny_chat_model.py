"""A directory with a tiny chat model, and conversations for it.

write_model(tmp_path / "model")
write_chats(tmp_path / "chat.jsonl", 40)
"""

import json
from dataclasses import replace

from chat_templates import CHATML
from tokenizer_directories import OWN, write_trained

import fxad
import fxad_nn
from fxad_nn import models
from fxad_nn.spec import init_params
from fxad_nn.tokenizer import from_directory


def write_model(path, dtype="bfloat16", template=CHATML, preset="llama-tiny", **changes):
    """A Llama, or another decoder, of random weights with a tokenizer of bytes and merges, and a
    chat template."""
    path.mkdir()
    settings = {} if template is None else {"chat_template": template}
    write_trained(path, "BPE", OWN * 40, eos_token="<|im_end|>", **settings)
    sizes = {"context": 128, "width": 32, "head_dim": 8, "hidden": 64, "tied": True} | changes
    config = models.preset(preset, vocab=from_directory(path).size, **sizes)
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    # Weights of the size of trained ones, or frozen ones could not be made to say anything.
    params = fxad.tree.map(lambda p: (p * 10 if p.ndim > 1 else p).astype(dtype), params)
    fxad_nn.save(fxad_nn.Model(params, replace(config, dtype=dtype)), path)
    return path


def chat(number):
    """A question, and an answer that follows from it."""
    answer = f"It is {number + 1}." if number % 3 else f"That would be {number + 1}, of course."
    question = {"role": "user", "content": f"What comes after {number}?"}
    return [question, {"role": "assistant", "content": answer}]


def write_chats(path, count, *others):
    records = [{"messages": chat(i)} for i in range(count)]
    path.write_text("".join(json.dumps(record) + "\n" for record in [*records, *others]), "utf-8")
    return path
