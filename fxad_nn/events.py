"""Event files, as TensorBoard reads them: scalars of a run, in the file as soon as they are known.

    events = Events(begun=500)                      # from which step the run goes on
    events.write(directory, 510, {"loss/train": 2.1, "learning_rate": 1e-3})

A file is a row of records: length, its checksum, an Event (a protocol buffer), its checksum
(https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorboard/compat/proto/event.proto).
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path


class Events:
    """One event file for each start of a run. What earlier ones hold of later steps than `begun`
    counts no longer: those are done again."""

    def __init__(self, begun: int) -> None:
        self._done = begun
        self._name: str | None = None

    def write(self, directory: Path, step: int, scalars: Mapping[str, float]) -> None:
        """Add scalars of a step. Raises OSError; then a new file is begun with the next ones, since
        nothing is read after a record that was cut."""
        content = b""
        if self._name is None:
            stamp = time.time_ns()
            name = f"events.out.tfevents.{stamp // 10**9:010d}.fxad.{os.getpid()}.{stamp % 10**9}"
            content += record(_event(0, _text(3, b"brain.Event:2")))
            # A session starts: of earlier ones, readers drop what is of this step and later ones.
            content += record(_event(self._done + 1, _text(7, _number(1, 1))))
        else:
            name = self._name
        values = (
            _text(1, _text(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items()
        )
        content += record(_event(step, _text(5, b"".join(values))))
        self._name = None
        with open(directory / name, "ab", buffering=0) as file:
            if file.write(content) != len(content):
                raise OSError(f"{directory / name} could not be written to its end")
        self._name, self._done = name, step


def record(content: bytes) -> bytes:
    """A message framed as a record."""
    length = struct.pack("<Q", len(content))
    return length + _checksum(length) + content + _checksum(content)


_LARGEST = (2 - 2**-23) * 2.0**127  # float32's


# Protocol buffers: a key is the field's number and the kind of what follows


def _event(step: int, what: bytes) -> bytes:
    numbered = _number(2, step) if step else b""
    return _key(1, 1) + struct.pack("<d", time.time()) + numbered + what


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _float(field: int, value: float) -> bytes:
    if abs(value) > _LARGEST:
        value = math.copysign(math.inf, value)
    return _key(field, 5) + struct.pack("<f", value)


def _text(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Groups of seven bits, the lowest first, each but the last with its highest bit set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# CRC-32C (Castagnoli), bits reflected, masked as TFRecord wants it


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def _checksum(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
