"""Conversations from files: every format, where a record begins, and what bad input is told."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fxad_nn import chat_data, json_records
from fxad_nn.chat_data import Completion, Conversation, Preference, read_conversations
from fxad_nn.errors import ConfigError, DataError

HI = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
SYSTEM = {"role": "system", "content": "Be kind."}


def written(tmp_path, *records, name="chat.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def only(tmp_path, record, format="auto"):
    [item] = read_conversations(written(tmp_path, record), format)
    return item


def failure(tmp_path, *records):
    path = records[0] if len(records) == 1 and not isinstance(records[0], dict) else None
    with pytest.raises(DataError) as caught:
        list(read_conversations(path or written(tmp_path, *records)))
    return str(caught.value).replace(str(tmp_path) + "/", "")


# Formats


def test_messages(tmp_path):
    item = only(tmp_path, {"messages": [SYSTEM, *HI], "id": 7})
    assert item == Conversation([SYSTEM, *HI], None, f"{tmp_path}/chat.jsonl, line 1")
    assert only(tmp_path, {"conversations": HI}).messages == HI
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo!"}]
    assert only(tmp_path, {"messages": [HI[0], HI[1] | {"content": parts}]}).messages == HI


def test_sharegpt(tmp_path):
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    assert only(tmp_path, {"conversations": turns}).messages == HI
    found = only(tmp_path, {"conversations": turns, "system": "Be kind.", "tools": "[]"})
    assert (found.messages, found.tools) == ([SYSTEM, *HI], None)


def test_alpaca(tmp_path):
    record = {
        "instruction": "Add.",
        "input": "1 and 2",
        "output": "3",
        "history": [["Hi", "Hello!"]],
    }
    asked = [{"role": "user", "content": "Add.\n\n1 and 2"}, {"role": "assistant", "content": "3"}]
    assert only(tmp_path, record).messages == [*HI, *asked]
    assert only(tmp_path, {"instruction": "Hi", "input": "", "output": "Hello!"}).messages == HI


def test_prompt_and_completion(tmp_path):
    where = f"{tmp_path}/chat.jsonl, line 1"
    assert only(tmp_path, {"prompt": "2+2=", "completion": "4"}) == Completion("2+2=", "4", where)
    conversation = Conversation(HI, None, where, frozenset({0}))
    assert only(tmp_path, {"prompt": HI[:1], "completion": HI[1:]}) == conversation
    assert only(tmp_path, {"prompt": "Hi", "completion": HI[1:]}) == conversation


def test_a_weight_says_whether_a_message_is_trained(tmp_path):
    """As in OpenAI's files; templates are not shown it."""
    weights = [{}, {"weight": 0}, {}, {"weight": 1}, {"weight": None}]
    messages = [HI[0], HI[1], HI[0], HI[1], HI[1]]
    pairs = zip(messages, weights, strict=True)
    found = only(tmp_path, {"messages": [message | weight for message, weight in pairs]})
    assert found.messages == messages
    assert found.untrained == {1}


def test_preference(tmp_path):
    where = f"{tmp_path}/chat.jsonl, line 1"
    rude = {"role": "assistant", "content": "What?"}
    said = [Conversation(whole, None, where, frozenset({0})) for whole in (HI, [HI[0], rude])]
    wanted = Preference(*said, where)
    assert only(tmp_path, {"prompt": HI[:1], "chosen": HI[1:], "rejected": [rude]}) == wanted
    assert only(tmp_path, {"chosen": HI, "rejected": [HI[0], rude]}) == wanted
    assert only(tmp_path, {"prompt": "Hi", "chosen": HI[1], "rejected": rude}) == wanted
    texts = only(tmp_path, {"prompt": "2+2=", "chosen": "4", "rejected": "5"})
    assert texts.rejected == Completion("2+2=", "5", where)


def test_a_prompt_beside_whole_conversations_is_asked_once(tmp_path):
    """As in UltraFeedback's binarized form, where `prompt` repeats what the answers begin with."""
    rude = {"role": "assistant", "content": "What?"}
    whole = {"chosen": HI, "rejected": [HI[0], rude]}
    wanted = only(tmp_path, whole)
    for prompt in ("Hi", HI[:1]):
        assert only(tmp_path, {"prompt": prompt, **whole}) == wanted
    told = {name: [SYSTEM, *messages] for name, messages in whole.items()}
    assert only(tmp_path, {"prompt": "Hi", **told}) == only(tmp_path, told)
    # Where one of the two alone repeats the prompt, or is told what the system says.
    for one, other in (({"chosen": told["chosen"]}, whole), ({"rejected": rude}, told)):
        found = only(tmp_path, {"prompt": "Hi", **other, **one})
        assert found == only(tmp_path, told)
    assert only(tmp_path, {"prompt": HI[:1], "system": SYSTEM["content"], **told}) == only(
        tmp_path, told
    )
    # A question that comes again is not the prompt that was given, but one more.
    more = {"prompt": "Hello", **whole}
    assert len(only(tmp_path, more).chosen.messages) == 3


def test_tool_calls(tmp_path):
    """OpenAI's files hold arguments as JSON in a text; templates want an object."""
    function = {"name": "weather", "arguments": {"city": "Oslo"}}
    in_text = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    call = {"type": "function", "id": "1", "function": function}
    given = [
        HI[0],
        {"role": "assistant", "tool_calls": [call | {"function": in_text}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    found = only(tmp_path, {"messages": given, "tools": json.dumps([tool])})
    assert found.messages[1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert found.messages[2] == given[2]
    assert found.tools == [tool]
    turns = [
        {"from": "human", "value": "Hi"},
        {"from": "function_call", "value": json.dumps(in_text)},
        {"from": "observation", "value": "rain"},
    ]
    called = only(tmp_path, {"conversations": turns}).messages[1]
    assert called["tool_calls"] == [{"type": "function", "function": function}]


def test_an_option_names_the_format(tmp_path):
    both = {"messages": HI, "prompt": "a", "completion": "b"}
    assert isinstance(only(tmp_path, both), Conversation)
    assert isinstance(only(tmp_path, both, "completion"), Completion)
    with pytest.raises(ConfigError, match="did you mean 'sharegpt'"):
        list(read_conversations(tmp_path / "x", "shargpt"))


# Records


def test_an_array_is_read_like_lines(tmp_path):
    texts = ['quote " and \\', "[1, {2}]", "new\nline", "ünïcode", ""]
    given = [{"messages": [HI[0], {"role": "assistant", "content": text}]} for text in texts]
    lines = written(tmp_path, *given)
    wanted = [item.messages for item in read_conversations(lines)]
    for indent in (None, 1):
        path = tmp_path / "chat.json"
        path.write_text("\ufeff \n" + json.dumps(given, indent=indent) + "\n\n", "utf-8")
        assert [item.messages for item in read_conversations(path)] == wanted


JSON = st.recursive(
    st.none() | st.integers() | st.text('"\\[]{},\n ü'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\,]'), inner, max_size=3)
    ),
)


@pytest.mark.parametrize("part", [1, 2, 7, 1 << 16])
def test_an_array_is_cut_where_json_says(tmp_path, monkeypatch, part):
    monkeypatch.setattr(json_records, "_PART", part)

    # A busy machine draws slowly, which is no fault of the values.
    @settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(JSON, max_size=5), st.sampled_from([None, 0, 2]))
    def cut(values, indent):
        text = json.dumps(values, indent=indent)
        path = tmp_path / "any.json"
        path.write_text(text, "utf-8")
        found = list(json_records.records(path, 1 << 20))
        assert [json.loads(one.text) for one in found] == values
        for one in found:
            begun = text.split("\n")[one.line - 1][one.column - 1 :]
            assert begun.startswith(one.text.decode().split("\n")[0].rstrip())

    cut()


def test_memory_is_bounded_by_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_data, "RECORD", chat_data.Limits(200, 100, 8))
    long = {"messages": [HI[0], {"role": "assistant", "content": "x" * 300}]}
    assert "line 2: this record is longer than 200 bytes" in failure(
        tmp_path, {"messages": HI}, long
    )
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"messages": HI}, long], indent=0))
    assert "this record is longer than 200 bytes" in failure(tmp_path, path)
    nested = {"messages": HI, "x": [[[[[[[[1]]]]]]]]}
    assert "line 1 is damaged: is nested deeper than 8 levels" in failure(tmp_path, nested)


# Bad input


@pytest.mark.parametrize(
    ("second", "saying"),
    [
        ({"instruction": "a", "output": "b"}, "line 2: does not hold messages"),
        ({"messages": HI, "tools": 3}, "line 2: tools must be a list, got 3"),
        ({"messages": [{"content": "a"}]}, "line 2: messages[0] does not hold role"),
        ({"messages": [{"role": "user"}]}, "line 2: messages[0] does not hold content"),
        ({"messages": [{"role": "a b", "content": ""}]}, "messages[0].role must be a text of the"),
        (
            {"messages": [{"role": "user", "content": 3}]},
            "messages[0].content must be a text, got 3",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "does not hold text"),
        ({"messages": [HI[0], HI[1] | {"weight": 0.5}]}, "messages[1].weight must be 0 (not trai"),
        ({"messages": [HI[0], HI[1] | {"weight": True}]}, "must be 0 (not trained) or 1 (trained)"),
        ({"messages": [HI[1] | {"tool_calls": [{}]}]}, "tool_calls[0] does not hold name"),
        (
            {"messages": [HI[1] | {"tool_calls": [{"name": "f", "arguments": "{"}]}]},
            "tool_calls[0].arguments the text is damaged: no JSON",
        ),
    ],
)
def test_a_record_that_does_not_fit_names_its_line(tmp_path, second, saying):
    assert saying in failure(tmp_path, {"messages": HI}, second)


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        (b'{"messages": []}\n\n{"messages": [}\n', "line 3 is damaged: no JSON"),
        (b'{"messages": []}\n{"messages": [], "messages": []}', "line 2 is damaged: the key"),
        (
            b'{"messages": [{"role": "user", "content": "\xff"}]}',
            "line 1 is damaged: byte 43 is not UTF-8",
        ),
        (b'[\n{"messages": []},\n{"messages": 3}]', "line 3: messages must be a list"),
        (b'[{"messages": []},\n]', "line 2 is damaged: no JSON"),
        (b'[{"messages": []}\n', "line 2: the array has no end"),
        (b'[{"messages": []}]\n\n5', "something follows the array's end"),
        (b'[{"messages": []}}', "line 1: '}' closes nothing"),
        (b"5\n", "line 1 must be an object with a conversation, got 5"),
        (b'{"question": "a"}\n', "no format is known by the keys ['question']"),
        (b'{"chosen": "a", "rejected": "b"}', "line 1: does not hold prompt"),
        (
            b'{"prompt": "", "chosen": "a", "rejected": []}',
            "must both be texts or both be messages",
        ),
    ],
)
def test_a_damaged_file_names_its_line(tmp_path, content, saying):
    path = tmp_path / "chat.jsonl"
    path.write_bytes(content)
    assert saying in failure(tmp_path, path)


@pytest.mark.parametrize(
    ("content", "at", "saying"),
    [
        ('[\n{"messages": []},\n  {"messages": [],\n   "id": 1 2}]', (4, 12), "',' delimiter"),
        ('[{"messages": []}, {"ü": 1,, "messages": []}]', (1, 28), "property name"),
        ('\ufeff[{"messages": []},{"messages": []},]', (1, 36), "Expecting value"),
        ('{"messages": []}\n{"messages": []\n', (2, 16), "',' delimiter"),
        ('{"messages": []}\n{"messages', (2, 2), "string starting at column"),
        ('{"messages": []}\n {"messages": [}\n', (2, 16), "Expecting value"),
    ],
)
def test_what_is_no_json_is_named_by_line_and_column_of_the_file(tmp_path, content, at, saying):
    path = tmp_path / "chat.json"
    path.write_text(content, "utf-8")
    said, (line, column) = failure(tmp_path, path), at
    assert f"chat.json, line {line} is damaged: no JSON: " in said and saying in said
    assert said.endswith(f"at column {column}") and said.count("line ") == 1


def test_a_missing_file_and_a_directory(tmp_path):
    assert "nowhere is missing" in failure(tmp_path, tmp_path / "nowhere")
    assert "is no file" in failure(tmp_path, tmp_path)
