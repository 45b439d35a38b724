"""Event files: the bytes that others write, and what a run puts there."""

import struct

import pytest
from short_run import options

from fxad_nn import events
from fxad_nn.events import Events, record
from fxad_nn.run import resumed_options
from fxad_nn.train import train


def records(path):
    """The messages of a file, each proved by framing it again."""
    content, found = path.read_bytes(), []
    while content:
        [length] = struct.unpack("<Q", content[:8])
        message = content[12 : 12 + length]
        assert record(message) == content[: 16 + length]
        found.append(message)
        content = content[16 + length :]
    return found


def test_the_checksum_is_that_of_rfc_3720():
    """Its test vectors, appendix B.4; and the mask undone."""
    for content, wanted in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)):
        [masked] = struct.unpack("<I", events._checksum(content))
        crc = (masked - 0xA282EAD8) & 0xFFFFFFFF
        assert (crc >> 17 | crc << 15) & 0xFFFFFFFF == wanted


def test_a_file_is_what_tensorboardx_would_write(tmp_path, monkeypatch):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    monkeypatch.setattr(events.time, "time", lambda: 12.5)
    Events(300).write(tmp_path, 1000, {"loss/train": 0.1, "rate": 2.0})
    [path] = tmp_path.iterdir()
    found = [event_pb2.Event.FromString(message) for message in records(path)]
    assert [event.SerializeToString() for event in found] == records(path)
    assert [event.step for event in found] == [0, 301, 1000]
    assert found[0].file_version == "brain.Event:2"
    assert found[1].session_log.status == event_pb2.SessionLog.START
    assert found[2].wall_time == 12.5
    values = {value.tag: value.simple_value for value in found[2].summary.value}
    assert values == pytest.approx({"loss/train": 0.1, "rate": 2.0})


@pytest.mark.slow
def test_every_start_of_a_run_has_a_file(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 60)
    train(options(tmp_path, text, steps=4))
    assert not list((tmp_path / "run").glob("events.*"))
    train(resumed_options(tmp_path / "run", steps=6, events=True))
    [path] = (tmp_path / "run").glob("events.out.tfevents.*")
    found = b"".join(records(path))
    for tag in (b"loss/train", b"loss/val", b"learning_rate", b"tokens_per_second"):
        assert tag in found


def test_after_a_write_that_failed_another_file_is_begun(tmp_path):
    made = Events(0)
    made.write(tmp_path, 1, {"x": 1.0})
    with pytest.raises(OSError, match="No such file"):
        made.write(tmp_path / "none", 2, {"x": 1.0})
    made.write(tmp_path, 3, {"x": 1.0})
    assert [len(records(path)) for path in tmp_path.iterdir()] == [3, 3]
