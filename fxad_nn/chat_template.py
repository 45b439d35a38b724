"""Chat templates: messages to the one text, and the ids, that a model was trained on.

    template = from_directory("llama")
    template.render([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
    ids, answers = template.encode(tokenizer, messages)     # int32 [length], bool [length]

A template is a Jinja program that a model's directory carries; what it prints is what
`apply_chat_template` of transformers prints. It runs in another process, within limits
(`template_process`). Which tokens are an answer: see `answers`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    array,
    did_you_mean,
    nullable,
    read,
    read_bytes,
    record,
    shown,
    string,
)
from fxad_nn import answers
from fxad_nn.errors import DataError, TemplateError
from fxad_nn.subwords import Subwords
from fxad_nn.template_process import LIMITS, Limits, TemplateProcess
from fxad_nn.tokenizer_config import TOKENIZER_CONFIG, read_config

LARGEST = 1 << 20
"""Bytes of one template."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
"""Who may have written a message that is trained on. Templates have their own opinion, but many
leave out without a word what is written by somebody they do not know."""

Message = Mapping[str, Any]


class ChatTemplate:
    """A template and the special tokens it may name.

    `tokens` are variables of the template, such as bos_token; `tool_use` is the template of
    conversations with tools, where a model has another one for them; `where` names it in errors.
    TemplateError for a text that is no template.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str] | None = None,
        tool_use: str | None = None,
        where: str = "the chat template",
        limits: Limits = LIMITS,
    ) -> None:
        self.tokens = dict(tokens or {})
        self._plain = self._with_tools = TemplateProcess(source, where, limits)
        if tool_use is not None:
            self._with_tools = TemplateProcess(tool_use, where, limits)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text of a conversation, special tokens included.

        `messages` are objects with a role and a content, `tools` JSON schemas of functions;
        `add_generation_prompt` ends the text where the assistant's answer would begin; `variables`
        are whatever else the template asks for. Messages are not changed: a key that is None
        counts as not there, and reasoning is given under all the names that templates know.

        DataError for what is no conversation, TemplateError for what the template does not take.
        """
        if not messages:
            raise DataError("an empty conversation has no text: give at least one message")
        settings = {**variables, "tools": tools}
        return self._render(messages, settings, add_generation_prompt)[0]

    def encode(
        self,
        tokenizer: Subwords,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        untrained: Collection[int] = (),
        **variables: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A conversation to train on: its ids, int32 [length], and which of them the assistant
        wrote, bool [length], the token that ends its turn included.

        `untrained` are the numbers of messages that do not count, whoever wrote them. The ids are
        those of the whole text: no start token is added to the one that the template writes.
        DataError where a role is not one of `ROLES`; TemplateError where the template rewrites
        earlier turns as the conversation grows, which it may where it has generation blocks and
        all that is in them counts, or leaves out a call of a tool.
        """
        if not isinstance(tokenizer, Subwords):
            kind = type(tokenizer).__name__
            raise DataError(f"chats need a tokenizer from a model's directory, got {kind}")
        for at, message in enumerate(messages):
            if (role := _role(message, at)) not in ROLES:
                known = did_you_mean(str(role), ROLES)
                raise DataError(f"message {at} has the unknown role {shown(role)}{known}")
        if not messages:
            raise DataError("an empty conversation has no text: give at least one message")
        settings = {**variables, "tools": tools}
        text, generated = self._render(messages, settings, False)
        written = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        trained = [at for at in written if at not in untrained]
        self._require_calls(messages, trained, settings)
        ids, offsets = tokenizer.encode_with_offsets(text)
        process = self._process(tools)
        if answers.are_marked(process.source):

            def blocks(count: int) -> list[str]:
                if count == 0:
                    return []
                part, spans = self._render(messages[:count], settings, False)
                return [part[start:stop] for start, stop in spans]

            context = [at for at in written if at in untrained]
            some = answers.without(text, generated, context, blocks, process.where)
            return ids, answers.marked(text, ids, offsets, some, tokenizer)

        def prefix(count: int, prompt: bool) -> str:
            return self._render(messages[:count], settings, prompt)[0]

        spans = answers.verified(text, len(messages), trained, prefix, tokenizer, process.where)
        return ids, answers.ended(ids, offsets, spans, tokenizer)

    def _require_calls(
        self, messages: Sequence[Message], trained: Collection[int], settings: Mapping[str, Any]
    ) -> None:
        """A template that knows no tools leaves calls out of an answer, which would be learned so.

        Each called function gets a name of its own, which must be in the text.
        """
        renamed = [dict(message) for message in messages]
        called: dict[str, tuple[int, str]] = {}
        for at in trained:
            calls = renamed[at]["tool_calls"] = copy.deepcopy(renamed[at].get("tool_calls"))
            for number, call in enumerate(calls or ()):
                function = call.get("function", call) if isinstance(call, dict) else {}
                if isinstance(function, dict) and isinstance(function.get("name"), str):
                    name = f"called_{at}_{number}_here"
                    called[name] = at, function["name"]
                    function["name"] = name
        if not called:
            return
        try:
            text, _ = self._render(renamed, settings, False)
        except TemplateError:  # it looks at the names: calls are not left out
            return
        for name, (at, function) in called.items():
            if name not in text:
                raise TemplateError(
                    f"{self._process(settings['tools']).where} leaves out the call of "
                    f"{shown(function)} in message {at}, and an answer without it would be "
                    "trained; take a template that writes `tool_calls`, or leave such "
                    "conversations out"
                )

    def _render(
        self, messages: Sequence[Message], settings: Mapping[str, Any], prompt: bool
    ) -> tuple[str, list[tuple[int, int]]]:
        whole = {"documents": None, **self.tokens, **settings}
        whole["messages"] = [_prepared(message, at) for at, message in enumerate(messages)]
        whole["add_generation_prompt"] = prompt
        return self._process(settings["tools"]).render(whole)

    def _process(self, tools: Any) -> TemplateProcess:
        return self._plain if tools is None else self._with_tools


def _role(message: Any, at: int) -> Any:
    if not isinstance(message, Mapping) or "role" not in message:
        raise DataError(f"message {at} must be an object with a role, got {shown(message)}")
    return message["role"]


REASONING = ("reasoning_content", "thinking", "reasoning")


def _prepared(message: Message, at: int) -> dict[str, Any]:
    """A message as templates see it: without keys that are None, and with its reasoning under the
    two names that are in use, whichever it came with."""
    _role(message, at)
    said = {key: value for key, value in message.items() if value is not None}
    thought = next((said[name] for name in REASONING if name in said), None)
    if thought is None:
        return said
    return {"thinking": thought, **said, "reasoning_content": thought}


# Templates of a directory -------------------------------------------------------------------------


def from_directory(
    path: str | Path, name: str | None = None, limits: Limits = LIMITS
) -> ChatTemplate:
    """The chat template that a Hugging Face model's directory carries.

    Files count before tokenizer_config.json: `chat_template.jinja`, and by name
    `additional_chat_templates/NAME.jinja` (or `chat_templates/NAME.jinja`). `name` chooses among
    several; without it, it is the one called default, and the one called tool_use for
    conversations with tools.

    DataError for a directory without the template, TemplateError for a template that is none.
    """
    directory = Path(path)
    found = templates(directory)
    if not found:
        raise DataError(
            f"{directory} has no chat template: neither chat_template.jinja nor a chat_template in "
            f"{TOKENIZER_CONFIG}; is it a base model?"
        )
    if (chosen := "default" if name is None else name) not in found:
        hint = did_you_mean(chosen, found)
        raise DataError(f"{directory} has no chat template called {shown(chosen)}{hint}")
    where = f"the chat template {chosen!r} of {directory}"
    tool_use = found.get("tool_use") if name is None else None
    return ChatTemplate(found[chosen], read_config(directory).named, tool_use, where, limits)


def templates(directory: str | Path) -> dict[str, str]:
    """The sources of all templates of a directory by name; a single one is called default."""
    directory = Path(directory)
    files = {"default": directory / "chat_template.jinja"}
    for room in ("chat_templates", "additional_chat_templates"):
        files |= {path.stem: path for path in sorted((directory / room).glob("*.jinja"))}
    found = {name: _source(path) for name, path in files.items() if path.is_file()}
    path = directory / TOKENIZER_CONFIG
    if found or not path.is_file():
        return found
    return read(path, TEMPLATES, DataError).get("chat_template") or {}


def _source(path: Path) -> str:
    try:
        return read_bytes(path, DataError, LARGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start})") from error


def _by_name(value: Any) -> dict[str, str]:
    """One template, or a list of named ones."""
    if type(value) is str:
        return {"default": _TEXT(value)}
    named = array(record({"name": string(most=200), "template": _TEXT}))(value)
    made = {one["name"]: one["template"] for one in named}
    if len(made) != len(named):
        raise Mismatch("has two templates of one name")
    return made


_TEXT: Schema = string(most=LARGEST)
TEMPLATES = record({}, {"chat_template": nullable(_by_name)}, others=anything)
