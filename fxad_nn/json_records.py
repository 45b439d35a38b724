"""The JSON records of a file, one at a time: lines of JSON, or the elements of one array.

    for record in records(Path("chat.jsonl"), most=1 << 20):
        value = record.parse(anything, "chat.jsonl", Limits(size=1 << 20))

Nothing is parsed to find them: an array is cut by its brackets and commas, and what is between them
is for the parser to judge. So memory is bounded by the longest record, however long the file is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from fxad.core.schema import Limits, Schema, parse
from fxad_nn.errors import DataError

T = TypeVar("T")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what some editors put before UTF-8


@dataclass(frozen=True)
class Record:
    """The text of a record, and the line and the column of its file where it begins, from 1."""

    line: int
    column: int
    text: bytes

    def parse(self, schema: Schema[T], path: str | Path, limits: Limits) -> T:
        """What the record of the file `path` holds, as `schema` returns it; DataError with the
        line, and the column where it is no JSON."""
        try:
            text = self.text.rstrip()  # an error at its end is on its last line, not on the next
            return parse(text, schema, f"{path}, line {self.line}", DataError, limits)
        except DataError as error:
            failure = error.__cause__ and error.__cause__.__cause__
            if not isinstance(failure, json.JSONDecodeError):
                raise
            line = self.line + failure.lineno - 1
            column = failure.colno + (self.column - 1 if failure.lineno == 1 else 0)
            said = f"{failure.msg.removesuffix(' at')} at column {column}"
            raise DataError(f"{path}, line {line} is damaged: no JSON: {said}") from error


def records(path: str | Path, most: int) -> Iterator[Record]:
    """Every record; blank lines are passed over.

    Raises DataError, with the line, where a record is longer than `most` bytes or an array has no
    end, and where the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} {'is no file' if path.exists() else 'is missing'}")
    try:
        with open(path, "rb") as file:
            start = len(BYTE_ORDER_MARK) if file.read(3) == BYTE_ORDER_MARK else 0
            file.seek(start)
            if _is_array(file):
                yield from _elements(file, path, most)
            else:
                file.seek(start)
                yield from _lines(file, path, most)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _is_array(file: BinaryIO) -> bool:
    """Whether an array begins here; leaves the file after its bracket, or anywhere."""
    while (byte := file.read(1)).isspace():
        pass
    return byte == b"["


def _lines(file: BinaryIO, path: Path, most: int) -> Iterator[Record]:
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise _too_long(path, number, most)
        if not line.isspace():
            yield Record(number, 1, line)


def _too_long(path: Path, line: int, most: int) -> DataError:
    return DataError(f"{path}, line {line}: this record is longer than {most} bytes")


def _elements(file: BinaryIO, path: Path, most: int) -> Iterator[Record]:
    """The elements of an array whose bracket was read just now."""
    found = bytearray()  # what of an element was read, without white space before it
    line, column = begun = _place((1, 1), _before(file))
    any_element = False
    for piece, end in _pieces(file):
        if not found:
            content = piece.lstrip()
            begun = _place((line, column), piece[: len(piece) - len(content)])
            found += content
        else:
            found += piece
        line, column = _place((line, column), piece + end)
        if len(found) > most:
            raise _too_long(path, begun[0], most)
        if end == b"," or (end == b"]" and (found or any_element)):
            yield Record(*begun, bytes(found))
            any_element = True
            found.clear()
    if end != b"]":
        seen = "'}' closes nothing" if end else "the array has no end"
        raise DataError(f"{path}, line {line}: {seen}")
    while part := file.read(_PART):
        if part.strip():
            raise DataError(f"{path}, line {line}: something follows the array's end")


def _before(file: BinaryIO) -> bytes:
    """What comes before the position of the file, without its byte order mark."""
    position = file.tell()
    file.seek(0)
    return file.read(position).removeprefix(BYTE_ORDER_MARK)


_WITHIN = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that continue a character


def _place(place: tuple[int, int], text: bytes) -> tuple[int, int]:
    """The line and the column after a text that begins at such a place."""
    breaks, (line, column) = text.count(b"\n"), place
    characters = len(text[text.rfind(b"\n") + 1 :].translate(None, _WITHIN))
    return line + breaks, characters + (1 if breaks else column)


_PART = 1 << 16
_SIGNS = re.compile(rb'\\.?|["{}\[\],]', re.DOTALL)


def _pieces(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """(bytes, what ends them) up to the end of an array: a comma between two elements, the closing
    bracket, or nothing where only a part of the file ends. Leaves the file after the bracket."""
    depth, quoted, escaped = 0, False, False
    while part := file.read(_PART):
        start, first = 0, 1 if escaped else 0
        escaped = False
        for match in _SIGNS.finditer(part, first):
            sign = match[0]
            if sign.startswith(b"\\"):
                escaped = len(sign) == 1
            elif sign == b'"':
                quoted = not quoted
            elif quoted:
                continue
            elif sign == b"," and depth == 0:
                yield part[start : match.start()], sign
                start = match.end()
            elif sign in b"]}" and depth == 0:
                file.seek(match.end() - len(part), 1)
                yield part[start : match.start()], sign
                return
            else:
                depth += (sign in b"{[") - (sign in b"]}")
        yield part[start:], b""
    yield b"", b""
