"""Conversations to fine-tune on, from a file of JSON: one at a time, checked, in one form.

    for item in read_conversations(Path("chat.jsonl")):
        print(item.where, item.messages)       # chat.jsonl, line 1 [{"role": "user", ...}, ...]

| format | a record holds | becomes |
|---|---|---|
| messages | `messages`: `role`, `content`, also `tool_calls`, `weight`; `tools` | Conversation |
| sharegpt | `conversations`: objects with `from`, `value`; `system`, `tools` | Conversation |
| alpaca | `instruction`, `output`; `input`, `system`, `history` | Conversation |
| completion | `prompt`, `completion`: texts, or lists of messages | Completion, Conversation |
| preference | `chosen`, `rejected`: texts or messages; `prompt`, or they hold it | Preference |

The first record decides which format a file has, unless it is named. A file holds a record on each
line, or is one JSON array of them. Either is read record by record: memory is bounded by the
longest record, and that by `RECORD`. Whatever is wrong is a DataError that names file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxad.core.schema import (
    Limits,
    Mismatch,
    Schema,
    anything,
    array,
    mapping,
    nullable,
    one_of,
    parse,
    record,
    row,
    shown,
    string,
)
from fxad_nn.errors import ConfigError, DataError, did_you_mean
from fxad_nn.json_records import records

RECORD = Limits(size=16 << 20, values=1_000_000, depth=64)
"""What one record may hold; a line may have as many bytes."""

Message = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """Messages as a chat template takes them: dicts with `role`, `content` and what else was there.

    `untrained` are the numbers of those that are context: what the assistant says there is not
    trained.
    """

    messages: list[Message]
    tools: list[Any] | None
    where: str
    untrained: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Completion:
    """A text and how it goes on, to be trained without a chat template."""

    prompt: str
    completion: str
    where: str


@dataclass(frozen=True)
class Preference:
    """Two answers to the same prompt, of which the first is the better one."""

    chosen: Conversation | Completion
    rejected: Conversation | Completion
    where: str


Item = Conversation | Completion | Preference


def read_conversations(path: str | Path, format: str = "auto") -> Iterator[Item]:
    """The records of a file, in order.

    Raises DataError where the file is missing, no text, or holds a record that is damaged, too
    large or of another format than the first; ConfigError for an unknown name of a format.
    """
    if format not in FORMATS:
        raise ConfigError(f"unknown format {shown(format)}{did_you_mean(format, FORMATS)}")
    schema = READERS.get(format)
    for one in records(path, RECORD.size):
        where = f"{path}, line {one.line}"
        if schema is None:
            schema = READERS[_detected(one.parse(anything, path, RECORD), where)]
        yield one.parse(schema, path, RECORD)(where)


def _detected(value: Any, where: str) -> str:
    """The format of a record, by its keys."""
    if type(value) is not dict:
        raise DataError(f"{where} must be an object with a conversation, got {shown(value)}")
    keys = value.keys()
    for name, needed in KEYS.items():
        if needed <= keys:
            return name
    if "conversations" in keys:
        turns = value["conversations"]
        first = turns[0] if type(turns) is list and turns else None
        return "sharegpt" if type(first) is dict and "from" in first else "messages"
    needs = "; ".join(f"{name}: {', '.join(sorted(some))}" for name, some in KEYS.items())
    raise DataError(
        f"{where}: no format is known by the keys {shown(sorted(keys))}; expected one of {needs}; "
        "sharegpt: conversations"
    )


KEYS = {
    "preference": {"chosen", "rejected"},
    "messages": {"messages"},
    "completion": {"prompt", "completion"},
    "alpaca": {"instruction", "output"},
}
"""By which keys a format is known; `conversations` is looked into."""


# Formats: schemas that give, of a record, a function from where it stands to an item

MOST_MESSAGES = 100_000
Made = Callable[[str], Item]


def _text(value: Any) -> str:
    """A text, or a list of parts of type text, which become one."""
    if type(value) is not list:
        return TEXT(value)
    return "".join(part["text"] for part in TEXT_PARTS(value))


TEXT = string()
TEXT_PARTS = array(record({"type": one_of("text"), "text": TEXT}), most=MOST_MESSAGES)


def _arguments(value: Any) -> Any:
    """The arguments of a call as an object; OpenAI's files hold them as JSON in a text."""
    return ARGUMENTS(_parsed(value) if type(value) is str else value)


def _parsed(text: str) -> Any:
    """The JSON that stands in a text of a record."""
    return parse(text, anything, "the text", Mismatch, RECORD)


ARGUMENTS = mapping(anything)
FUNCTION = record({"name": TEXT}, {"arguments": _arguments}, others=anything)


def _call(value: Any) -> dict[str, Any]:
    """A call of a function, in the form {"type": "function", "function": {...}}."""
    call = record({}, {"function": FUNCTION}, others=anything)(value)
    return call if "function" in call else {"type": "function", "function": FUNCTION(value)}


def _weight(value: Any) -> Any:
    """OpenAI's word for whether a message is trained."""
    if value not in (0, 1) or type(value) is bool:
        raise Mismatch(f"must be 0 (not trained) or 1 (trained), got {shown(value)}")
    return value


ROLE = string(r"[A-Za-z_][A-Za-z_-]{0,63}")
MESSAGE = record(
    {"role": ROLE},
    {
        "content": nullable(_text),
        "tool_calls": nullable(array(_call, most=MOST_MESSAGES)),
        "weight": nullable(_weight),
    },
    others=anything,
)


def _message(value: Any) -> Message:
    """A message with a content; only one that calls tools may be without."""
    message: Message = MESSAGE(value)
    if message.get("tool_calls") is None:
        message.pop("tool_calls", None)
    if message.get("content") is None and not message.get("tool_calls"):
        raise Mismatch("does not hold content")
    message.setdefault("content", None)
    return message


MESSAGES = array(_message, most=MOST_MESSAGES)


def _conversation(
    messages: list[Message], tools: list[Any] | None, where: str, given: int = 0
) -> Conversation:
    """A conversation of which the first `given` messages, and those of weight 0, are context; a
    template is not shown weights."""
    untrained = {at for at, message in enumerate(messages) if message.get("weight") == 0}
    shown = [{key: x for key, x in message.items() if key != "weight"} for message in messages]
    return Conversation(shown, tools, where, frozenset(untrained | set(range(given))))


def _tools(value: Any) -> list[Any] | None:
    """Descriptions of functions: a list, or a text that holds one."""
    if value is None or value == "":
        return None
    return TOOLS(_parsed(value) if type(value) is str else value) or None


TOOLS = array(ARGUMENTS, most=MOST_MESSAGES)


def _messages_record(value: Any) -> Made:
    fields = {"messages": MESSAGES, "conversations": MESSAGES, "tools": _tools}
    found = record({}, fields, others=anything)(value)
    messages = found.get("messages", found.get("conversations"))
    if messages is None:
        raise Mismatch("does not hold messages")
    return lambda where: _conversation(messages, found.get("tools"), where)


SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}
TURN = record({"from": one_of(*SHAREGPT_ROLES), "value": TEXT}, others=anything)


def _turn(value: Any) -> Message:
    turn = TURN(value)
    role = SHAREGPT_ROLES[turn["from"]]
    if turn["from"] != "function_call":
        return {"role": role, "content": turn["value"]}
    calls = _parsed(turn["value"])
    made = [_call(call) for call in (calls if type(calls) is list else [calls])]
    return {"role": role, "content": None, "tool_calls": made}


TURNS = array(_turn, most=MOST_MESSAGES)


def _sharegpt_record(value: Any) -> Made:
    optional = {"system": nullable(TEXT), "tools": _tools}
    found = record({"conversations": TURNS}, optional, others=anything)(value)
    messages = [*_system(found), *found["conversations"]]
    return lambda where: _conversation(messages, found.get("tools"), where)


def _system(found: dict[str, Any]) -> list[Message]:
    text = found.get("system")
    return [{"role": "system", "content": text}] if text else []


def _asked(question: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


ALPACA = record(
    {"instruction": TEXT, "output": TEXT},
    {
        "input": nullable(TEXT),
        "system": nullable(TEXT),
        "history": nullable(array(row(TEXT, TEXT), most=MOST_MESSAGES)),
    },
    others=anything,
)


def _alpaca_record(value: Any) -> Made:
    found = ALPACA(value)
    messages = _system(found)
    for question, answer in found.get("history") or ():
        messages += _asked(question, answer)
    asked = "\n\n".join(filter(None, [found["instruction"], found.get("input")]))
    messages += _asked(asked, found["output"])
    return lambda where: _conversation(messages, None, where)


def _text_or_messages(value: Any) -> str | list[Message]:
    """A text, a list of messages, or one message."""
    if type(value) is str:
        return value
    return MESSAGES([value] if type(value) is dict else value)


COMPLETION = record(
    {"prompt": _text_or_messages, "completion": _text_or_messages},
    {"tools": _tools},
    others=anything,
)


def _completion_record(value: Any) -> Made:
    found = COMPLETION(value)
    prompt, completion, tools = found["prompt"], found["completion"], found.get("tools")
    return lambda where: _answered(prompt, completion, tools, where)


def _answered(
    prompt: str | list[Message], answer: str | list[Message], tools: list[Any] | None, where: str
) -> Conversation | Completion:
    """A prompt with one of its answers; where either is messages, both are."""
    if type(prompt) is str and type(answer) is str:
        return Completion(prompt, answer, where)
    before = _as_messages(prompt, "user")
    return _conversation([*before, *_as_messages(answer, "assistant")], tools, where, len(before))


def _as_messages(value: str | list[Message], role: str) -> list[Message]:
    return [{"role": role, "content": value}] if isinstance(value, str) else value


PREFERENCE = record(
    {"chosen": _text_or_messages, "rejected": _text_or_messages},
    {"prompt": nullable(_text_or_messages), "system": nullable(TEXT), "tools": _tools},
    others=anything,
)


def _preference_record(value: Any) -> Made:
    found = PREFERENCE(value)
    prompt, tools = found.get("prompt"), found.get("tools")
    answers: list[Any] = [found["chosen"], found["rejected"]]
    if type(answers[0]) is not type(answers[1]):
        raise Mismatch("chosen and rejected must both be texts or both be messages")
    if prompt is None:
        if type(answers[0]) is str:
            raise Mismatch("does not hold prompt; only two whole lists of messages need none")
        prompt, answers = _apart(*answers)
    elif type(answers[0]) is not str:
        prompt = _as_messages(prompt, "user")
        parts = [_after(prompt, answer) for answer in answers]
        prompt, answers = max((begin for begin, _ in parts), key=len), [rest for _, rest in parts]
    if _system(found) and (type(prompt) is str or prompt[:1] != _system(found)):
        prompt = [*_system(found), *_as_messages(prompt, "user")]
    chosen, rejected = answers

    def made(where: str) -> Preference:
        return Preference(
            _answered(prompt, chosen, tools, where),
            _answered(prompt, rejected, tools, where),
            where,
        )

    return made


def _after(prompt: list[Message], answer: list[Message]) -> tuple[list[Message], list[Message]]:
    """A prompt, and an answer without it: some are whole conversations, which begin with the
    prompt. What the system says may stand before it in one of them, or in both."""
    asked, said = (
        [m for m in messages if m["role"] != "system"] for messages in (prompt, answer[:-1])
    )
    if not asked or said[: len(asked)] != asked:
        return prompt, answer
    begin = answer.index(asked[-1]) + 1
    while [m for m in answer[:begin] if m["role"] != "system"] != asked:
        begin += 1
    return max(prompt, answer[:begin], key=len), answer[begin:]


def _apart(
    chosen: list[Message], rejected: list[Message]
) -> tuple[list[Message], list[list[Message]]]:
    """What two conversations begin with, and how each goes on: at least by its last message."""
    most = min(len(chosen), len(rejected)) - 1
    same = 0
    while same < most and chosen[same] == rejected[same]:
        same += 1
    if same == 0:
        raise Mismatch(
            "does not hold prompt, and chosen and rejected begin with different messages"
        )
    return chosen[:same], [chosen[same:], rejected[same:]]


READERS: dict[str, Schema] = {
    "messages": _messages_record,
    "sharegpt": _sharegpt_record,
    "alpaca": _alpaca_record,
    "completion": _completion_record,
    "preference": _preference_record,
}
FORMATS = ("auto", *READERS)
