"""A tokenizer and a chat template small enough to count by hand.

Every character is an id; "^" starts a text, "$" ends a turn.
"""

import re
from types import SimpleNamespace

import numpy as np

from fxad_nn.errors import DataError

START, END = ord("^"), ord("$")


class Letters:
    """Ids are code points."""

    size = 128

    def __init__(self, start=START):
        self.ids = SimpleNamespace(bos=start, eos=(END,), pad=None, unk=None)

    def encode(self, text, add_special_tokens=False):
        first = [self.ids.bos] if add_special_tokens and self.ids.bos is not None else []
        return np.array([*first, *map(ord, text)], np.int32)

    def encode_with_offsets(self, text):
        starts = np.arange(len(text))
        return self.encode(text), np.stack([starts, starts + 1], axis=1)

    def decode(self, ids):
        return "".join(map(chr, ids))


class Turns:
    """^u:Hi$a:Hello!$ - what follows "a:", with its "$", is the assistant's."""

    def render(self, messages, tools=None, add_generation_prompt=False, **variables):
        if messages and messages[0]["role"] == "assistant":
            raise DataError("the assistant cannot speak first")
        turns = [f"{m['role'][0]}:{m['content']}$" for m in messages]
        return "^" + "".join(turns) + ("a:" if add_generation_prompt else "")

    def encode(self, tokenizer, messages, tools=None, untrained=()):
        text = self.render(messages, tools)
        answers = np.zeros(len(text), np.bool_)
        for at, turn in enumerate(re.finditer(r"(?<=[\^$])(.):[^$]*\$", text)):
            answers[turn.start() + 2 : turn.end()] = turn[1] == "a" and at not in untrained
        return tokenizer.encode(text), answers
