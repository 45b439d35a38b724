"""From conversations to token ids, and which of them are trained.

    counts = Counts()
    items = read_conversations(Path("chat.jsonl"))
    examples = list(encoded(items, Encoder(tokenizer, template, vocab), 2048, "truncate", counts))
    print(counts)                       # 120 read, 117 used; 3 truncated, 2 empty, 1 dropped

The loss is on answers only: what the assistant says, with the token that ends its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.core.schema import shown
from fxad_nn.chat_data import Completion, Conversation, Item, Preference
from fxad_nn.errors import ConfigError, DataError, UserError
from fxad_nn.tokenizer import start_of
from fxad_nn.vocabulary import require_ids

TOO_LONG = ("truncate", "drop", "error")
"""What can be done with an example that exceeds the context."""


@dataclass(frozen=True)
class Example:
    """One document: ids int32 [n], and which of them are trained, bool [n].

    The first id has nothing before it, and is never trained.
    """

    ids: np.ndarray
    trained: np.ndarray

    def __len__(self) -> int:
        """How many positions it takes: each but the last token is read, each but the first
        predicted."""
        return max(len(self.ids) - 1, 0)


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt; the first is preferred."""

    chosen: Example
    rejected: Example

    def __len__(self) -> int:
        """How many positions the longer one takes."""
        return max(len(self.chosen), len(self.rejected))


@dataclass
class Counts:
    """What became of the records of a file."""

    read: int = 0
    used: int = 0
    truncated: int = 0
    """Used, without what is beyond the context."""
    empty: int = 0
    """Left out: nothing in it is to be trained."""
    dropped: int = 0
    """Left out: longer than the context, and nothing to train within it, or not to be cut."""
    tokens: int = 0
    trained: int = 0
    equal: int = 0
    """Used, though both answers of the pair are the same: neither can be preferred."""

    def __str__(self) -> str:
        said = (
            f"{self.read:,} read, {self.used:,} used ({self.tokens:,} tokens, {self.trained:,} "
            f"trained); {self.truncated:,} truncated, {self.empty:,} empty, "
            f"{self.dropped:,} dropped"
        )
        if self.equal:
            pairs = "1 pair" if self.equal == 1 else f"{self.equal:,} pairs"
            said += f"; {pairs} with equal answers, which teach nothing"
        return said


class Encoder:
    """Turns items into examples, by a tokenizer and, for conversations, a chat template.

    tokenizer: as those of `fxad_nn.tokenizer.from_directory`. template: has
    `encode(tokenizer, messages, tools=..., untrained=...) -> (ids, answers)`
    (`fxad_nn.chat_template`); None where the model has none. Ids are proved to be in the vocabulary
    of the model.
    """

    def __init__(self, tokenizer: Any, template: Any, vocab: int) -> None:
        self._tokenizer, self._template, self._vocab = tokenizer, template, vocab

    def example(self, item: Conversation | Completion) -> Example:
        """The whole item. DataError naming file and line where it cannot be encoded."""
        try:
            if isinstance(item, Conversation):
                ids, trained = self._conversation(item)
            else:
                ids, trained = self._completion(item)
        except UserError as error:
            raise DataError(f"{item.where}: {error}") from error
        require_ids(ids, self._vocab, item.where)
        ids, trained = np.asarray(ids, np.int32), np.array(trained, np.bool_)
        trained[:1] = False
        return Example(ids, trained)

    def question(self, text: str) -> list[int]:
        """What a user says, up to where the answer begins; without a template, a text to continue.
        DataError for an id outside the model's vocabulary."""
        if self._template is None:
            ids, start = self._tokenizer.encode(text).tolist(), start_of(self._tokenizer)
            ids = ids if ids[: len(start)] == start else start + ids
        else:
            message = {"role": "user", "content": text}
            rendered = self._template.render([message], add_generation_prompt=True)
            ids = self._tokenizer.encode(rendered).tolist()
        require_ids(ids, self._vocab, f"the prompt {shown(text)}")
        return ids

    def _conversation(self, item: Conversation) -> tuple[Any, Any]:
        if self._template is None:
            raise DataError("the model has no chat template; train prompts and completions instead")
        if not item.messages:
            return [], []
        return self._template.encode(
            self._tokenizer, item.messages, tools=item.tools, untrained=item.untrained
        )

    def _completion(self, item: Completion) -> tuple[Any, Any]:
        """Prompt and completion, encoded as the one text that they are, and the end.

        A token counts as the completion's if a character of it is: one that straddles the border,
        such as that of " 4" after a prompt that ends with a space, is trained.
        """
        text = item.prompt + item.completion
        encoded, offsets = self._tokenizer.encode_with_offsets(text)
        ids = [int(i) for i in encoded]
        answer = [bool(stop > len(item.prompt)) for _, stop in offsets]
        start, end = start_of(self._tokenizer), list(self._tokenizer.ids.eos[:1])
        if ids[: len(start)] != start:
            ids, answer = start + ids, [False] * len(start) + answer
        if not (any(answer) and ids[-1:] == end):
            ids, answer = ids + end, answer + [True] * len(end)
        return ids, answer


def encoded(
    items: Iterable[Item], encoder: Encoder, context: int, too_long: str, counts: Counts
) -> Iterator[Example | Pair]:
    """The examples that can be trained, none longer than `context` positions.

    A pair is trained if both of its answers are. What is left out, or cut, is counted in `counts`.
    Raises DataError for an item that cannot be encoded, or that is too long where `too_long` says
    so.
    """
    if too_long not in TOO_LONG:
        raise ConfigError(f"what is too long can be {', '.join(TOO_LONG)}, got {too_long!r}")
    for item in items:
        counts.read += 1
        whole = _each(item, encoder.example)
        if not all(example.trained.any() for example in whole):
            counts.empty += 1
            continue
        longest = max(map(len, whole))
        kept = [Example(x.ids[: context + 1], x.trained[: context + 1]) for x in whole]
        if longest > context and too_long == "error":
            raise DataError(f"{item.where} takes {longest} tokens, the context holds {context}")
        useless = not all(example.trained.any() for example in kept)
        if useless or (longest > context and too_long == "drop"):
            counts.dropped += 1
            continue
        counts.used += 1
        counts.truncated += longest > context
        counts.equal += _is_one_answer(kept)
        counts.tokens += sum(map(len, kept))
        counts.trained += sum(int(example.trained.sum()) for example in kept)
        yield Pair(*kept) if len(kept) == 2 else kept[0]


def _is_one_answer(examples: list[Example]) -> bool:
    """Whether these are a pair whose answers are the same."""
    ids = [example.ids for example in examples]
    return len(ids) == 2 and np.array_equal(ids[0], ids[1])


def _each(item: Item, encode: Callable[[Any], Example]) -> list[Example]:
    if isinstance(item, Preference):
        return [encode(item.chosen), encode(item.rejected)]
    return [encode(item)]
