"""Talking to a model: a conversation by its chat template, answers as they are drawn.

chat = Chat(model.params, model.config, tokenizer, template, tokens=300)
for piece in chat.ask("What comes after 6?"):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fxad_nn import models
from fxad_nn.chat_template import ChatTemplate
from fxad_nn.errors import DataError
from fxad_nn.generate import generate
from fxad_nn.tokenizer import Tokenizer


def spelled(tokenizer: Tokenizer, prompt: Sequence[int], drawn: Iterable[int]) -> Iterator[str]:
    """The text of tokens that follow a prompt, in parts as they come: a character may be split over
    several tokens."""
    tokens = [int(token) for token in prompt]
    text = tokenizer.decode(tokens)
    shown = len(text)
    for token in drawn:
        tokens.append(token)
        text = tokenizer.decode(tokens)
        if not text.endswith("\ufffd"):
            yield text[shown:]
            shown = len(text)
    if text[shown:]:
        yield text[shown:]


class Chat:
    """A conversation with a model. `messages` holds what was said, objects with a role and a
    content; `limits` are those of `generate`: temperature, top_k, top_p, seed.

    Room is left for an answer of `tokens` tokens, or of half the context if that is less. What then
    does not fit is left out: the oldest questions with their answers, never what the system said.
    """

    def __init__(
        self,
        params: Any,
        config: models.Config,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        system: str | None = None,
        tokens: int = 300,
        **limits: Any,
    ) -> None:
        self._params, self._config, self._tokenizer = params, config, tokenizer
        self._template, self._tokens, self._limits = template, tokens, limits
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})

    def ask(self, question: str) -> Iterator[str]:
        """The answer in parts, at most `tokens` tokens of it, or as many as the context has room
        for. It is in `messages` once all parts have been read.

        Raises TemplateError for what the template does not take, and DataError where its text has
        ids that the model lacks, or leaves no room for an answer.
        """
        asked = [*self.messages, {"role": "user", "content": question}]
        prompt = self._prompt(asked)
        context, has_system = self._config.context, asked[0]["role"] == "system"
        wanted = min(self._tokens, context // 2)
        while len(prompt) + wanted > context and len(asked) > 2:
            del asked[has_system : has_system + 2]
            prompt = self._prompt(asked)
        room = context - len(prompt)
        if room < 1:
            beside = (
                "what the system says and the chat template" if has_system else "the chat template"
            )
            raise DataError(
                f"the question takes {len(prompt)} tokens with {beside}, and the model's context "
                f"holds {context}, the answer among them: try a shorter question"
                + (", or a shorter system message" if has_system else "")
            )
        ends = getattr(getattr(self._tokenizer, "ids", None), "eos", ())
        limits = {"vocab": self._tokenizer.size, "ends": ends, **self._limits}
        count = min(self._tokens, room)
        drawn = generate(self._params, self._config, prompt, count, **limits)
        return self._said(asked, spelled(self._tokenizer, prompt, drawn))

    def _prompt(self, messages: list[dict[str, str]]) -> list[int]:
        text = self._template.render(messages, add_generation_prompt=True)
        return [int(token) for token in self._tokenizer.encode(text)]

    def _said(self, asked: list[dict[str, str]], parts: Iterator[str]) -> Iterator[str]:
        answer = ""
        for part in parts:
            answer += part
            yield part
        self.messages = [*asked, {"role": "assistant", "content": answer}]
