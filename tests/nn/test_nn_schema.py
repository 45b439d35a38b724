"""The reader of JSON and tensors: what it accepts, what it says, and what it takes of memory."""

import json
import math
import re
import tracemalloc

import pytest

from fxad.core.schema import (
    anything,
    array,
    boolean,
    canonical,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    parse,
    read,
    record,
    string,
)
from fxad_nn import tensors
from fxad_nn.errors import CheckpointError, ConfigError, DataError
from fxad_nn.options import build
from fxad_nn.recipe import TrainOptions, recipe


def refused(content, wanted=anything):
    with pytest.raises(DataError) as caught:
        parse(content, wanted, "t.json", DataError)
    assert str(caught.value).startswith("t.json")
    return str(caught.value).removeprefix("t.json")


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        (b"", "no JSON: Expecting value"),
        (b"{", "no JSON"),
        (b"[1] 2", "no JSON: Extra data"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' appears twice"),
        (b'[{"x": {"": 1, "": 2}}]', "the key '' appears twice"),
        (b"[NaN]", "NaN is no JSON number"),
        (b"-Infinity", "-Infinity is no JSON number"),
        (b"[1e999]", "the number '1e999' is beyond float64"),
        (b"9" * 5000, "no JSON: Exceeds the limit"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_json_is_damaged(content, saying):
    assert saying in refused(content)
    assert refused(content).startswith(" is damaged: ")


@pytest.mark.parametrize(
    ("wanted", "right", "wrong"),
    [
        (boolean, [True, False], [1, 0, "true", None]),
        (integer(), [0, 2**63 - 1], [-1, 2**63, True, 1.0, "1", None, 10**400]),
        (integer(1, 3), [1, 3], [0, 4]),
        (number(), [0, 1.5, -1e300, 7], [True, "1", None, 1e308, 10**400]),
        (number(above=0), [1e-300, 3], [0, -1, 0.0]),
        (number(least=0, most=1), [0, 1], [-0.1, 1.1]),
        (string(), ["", "\ud800"], [None, 3, ["a"]]),
        (string("[ab]+", most=3), ["a", "aba"], ["", "c", "abc", "aaaa", "a\n"]),
        (one_of(True), [True], [1, 1.0, "true", False]),
        (one_of("a", 1), ["a", 1], [True, "b", [], {}]),
        (nullable(integer()), [None, 3], [False, "3"]),
        (array(integer(), 1, 2), [[1], [1, 2]], [[], [1, 2, 3], {}, "ab", [1, "2"], None]),
        (mapping(integer(), string("[a-z]*")), [{}, {"a": 1}], [{"A": 1}, {"a": None}, [], 1]),
        (record({"a": boolean}, {"b": boolean}), [{"a": True}], [{}, {"b": True}, {"a": 1}, []]),
        (record({}, {}, others=boolean), [{"z": True}], [{"z": 1}]),
    ],
)
def test_schemas(wanted, right, wrong):
    for value in right:
        assert parse(json.dumps(value), wanted, "t.json", DataError) == value
    for value in wrong:
        assert not refused(json.dumps(value), wanted).startswith(" is damaged")


def test_a_mismatch_is_found_by_its_path():
    wanted = record({"files": array(record({"bytes": integer()})), "step": integer()})
    assert (
        refused('{"step": 1, "files": [{"bytes": 3}, {"bytes": true}]}', wanted)
        == ": files[1].bytes must be an integer, got True"
    )
    assert refused('{"stp": 1, "files": [], "step": 2}', wanted) == (
        ": unknown key 'stp'; did you mean 'step'?"
    )
    assert refused('{"step": 1}', wanted) == ": does not hold files"
    long = refused(json.dumps({"step": "y" * 10**6, "files": []}), wanted)
    assert len(long) < 200


def test_canonical_texts_come_back_and_refuse_what_is_no_json():
    deepest = json.loads("[" * 64 + "1" + "]" * 64)
    assert parse(canonical(deepest), anything, "t", DataError) == deepest
    value = {"b": [1, 2.5, None, True, "\u00e4\ud800"], "a": {"x": -1e-300}}
    assert parse(canonical(value), anything, "t", DataError) == value
    assert canonical(value) == canonical(dict(reversed(value.items())))
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical(wrong)


def test_files_that_cannot_be_read_are_named(tmp_path):
    def said(path):
        with pytest.raises(DataError) as caught:
            read(path, anything, DataError)
        return str(caught.value)

    assert said(tmp_path / "x") == f"{tmp_path / 'x'} is missing"
    assert said(tmp_path) == f"{tmp_path} is no file"
    assert "cannot be read: File name too long" in said(tmp_path / ("x" * 300))
    assert re.search("cannot be read: .*embedded null", said(tmp_path / "a\0b"))
    (tmp_path / "loop").symlink_to("loop")
    assert "loop is missing" in said(tmp_path / "loop")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", math.inf),
        ("steps", True),
        ("steps", 10.0),
        ("steps", 1 << 60),
        ("final_rate", math.inf),
        ("weight_decay", math.nan),
        ("peak", math.inf),
        ("learning_rate", True),
        ("learning_rate", 10**400),
        ("bias", 1),
        ("preset", 3),
        ("data", 3),
        ("seed", -1),
    ],
)
def test_options_of_another_kind_are_refused(name, value):
    flag = "--" + name.replace("_", "-")
    for making in (
        lambda: TrainOptions(**{name: value}),
        lambda: recipe(**{"preset": "nano", name: value}),
        lambda: build(TrainOptions, {name: value}, "state.json"),
    ):
        with pytest.raises(ConfigError, match=f"{name}|{flag}"):
            making()


# Sizes --------------------------------------------------------------------------------------------


def peak(error, reading):
    """The message of the error that `reading` raises, and the bytes it took at most."""
    tracemalloc.start()
    try:
        with pytest.raises(error) as caught:
            reading()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_huge_file_is_refused_unread(tmp_path):
    with open(tmp_path / "x.json", "wb") as file:
        file.truncate(1 << 40)  # a hole: takes no space
    said, most = peak(DataError, lambda: read(tmp_path / "x.json", anything, DataError))
    assert "holds 1099511627776 bytes; such a file has at most 134217728" in said
    assert most < 1 << 20
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    said, most = peak(DataError, lambda: read(tmp_path / "tokenizer.json", anything, DataError))
    assert "is no file" in said
    assert most < 1 << 20


def test_many_small_values_are_refused_before_they_are_made():
    content = b"[" + b"[]," * (4 << 20) + b"[]]"  # 12 MB of text, 240 MB of lists
    said, most = peak(DataError, lambda: parse(content, anything, "x", DataError))
    assert "holds more than 8000000 values" in said
    assert most < 3 * len(content)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [65, 900, 1_000_000])
def test_deep_nesting_is_refused(opening, depth):
    for content in (opening * depth, opening * depth + "1" + {"[": "]"}.get(opening, "}") * depth):
        said, most = peak(DataError, lambda: parse(content, anything, "x", DataError))
        assert "nested deeper than 64" in said or "no JSON" in said
        assert most < 20 << 20


def test_huge_declared_sizes_of_tensors_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"

    def said_of(header, length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes((length or len(text)).to_bytes(8, "little") + text + bytes(64))
        said, most = peak(CheckpointError, lambda: list(tensors.stored([path])))
        assert str(path) in said
        assert most < 1 << 20
        return said

    def tensor(shape, end, dtype="F32"):
        return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}

    assert "a header of 18446744073709551615 bytes" in said_of(b"{}", (1 << 64) - 1)
    assert "a header of" in said_of(b"{}", 1 << 30)
    assert "lies at 0 to 64, not at 0 to 4398046511104" in said_of(tensor([1 << 40], 64))
    assert "tensors up to byte" in said_of(tensor([1 << 40], 4 << 40))
    assert "tensors up to byte" in said_of({})
    assert "tensors up to byte" in said_of(tensor([4], 16))
    assert "got 'F8_E4M3'" in said_of(tensor([64], 64, "F8_E4M3"))
    assert "must be a list" in said_of(tensor(16, 64))
    assert "must be an integer" in said_of(tensor([True], 64))
    assert "appears twice" in said_of(b'{"x": {}, "x": {}}')
    overlapping = {**tensor([16], 64), "y": tensor([16], 64)["x"]}
    assert "not at 64 to 128" in said_of(overlapping)
