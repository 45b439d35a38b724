"""JSON that somebody else wrote: read within limits, and checked against a schema.

    POINT = record({"name": string(), "x": number(), "y": number(least=0)})
    point = read(Path("point.json"), POINT, CheckpointError)     # {"name": "p", "x": 1.5, "y": 2.0}

A schema is a function that returns the value or raises `Mismatch`; the functions below make the
usual ones. `read` and `parse` bound bytes, values and depth before a schema sees anything, and
raise nothing but the error they are given: for files that are not UTF-8, no JSON, too large or
nested too deep, for keys that appear twice, for NaN and numbers beyond float64, and for what the
schema does not allow.
"""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import re
import reprlib
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fxad.core.record import valued

T = TypeVar("T")
Schema = Callable[[Any], T]  # of whatever JSON holds

LONGEST_NAME = 100
"""Longer names, which only damaged files have, are compared with nothing."""


@valued
class Limits:
    """What a file may hold at most. A value takes about 100 bytes of memory."""

    size: int = 128 << 20
    values: int = 8_000_000
    depth: int = 64


LIMITS = Limits()  # of files of any kind


class Mismatch(ValueError):
    """A value that a schema does not allow; `at` leads to it, such as "model.layers[3]"."""

    def __init__(self, message: str, at: str = "") -> None:
        super().__init__(message)
        self.message, self.at = message, at

    def within(self, step: str) -> Mismatch:
        """The same, seen from one level further out."""
        joined = step + ("." if self.at and not self.at.startswith("[") else "") + self.at
        return Mismatch(self.message, joined)

    def __str__(self) -> str:
        return f"{self.at} {self.message}" if self.at else self.message


def read(path: Path, schema: Schema[T], error: type[Exception], limits: Limits = LIMITS) -> T:
    """What the JSON file at `path` holds, as `schema` returns it; `error` names the file."""
    return parse(read_bytes(path, error, limits.size), schema, str(path), error, limits)


def read_bytes(path: Path, error: type[Exception], most: int = LIMITS.size) -> bytes:
    """The contents of a regular file of at most `most` bytes; raises `error` naming the file."""
    try:
        if regular := stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(size + 1) if size <= most else b""
    except ValueError as failure:  # a name with a zero byte
        raise error(f"{path} cannot be read: {failure}") from failure
    except OSError as failure:
        missing = failure.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        why = "is missing" if missing else f"cannot be read: {failure.strerror}"
        raise error(f"{path} {why}") from failure
    if not regular:
        raise error(f"{path} is no file")
    if max(size, len(content)) > most:
        raise error(f"{path} holds {size} bytes; such a file has at most {most}")
    return content


def parse(
    content: bytes | str,
    schema: Schema[T],
    where: str,
    error: type[Exception],
    limits: Limits = LIMITS,
) -> T:
    """What a JSON text holds, as `schema` returns it; raises `error` starting with `where`."""
    try:
        value = _loads(content, limits)
        _check_depth(value, limits.depth)
    except Mismatch as mismatch:
        raise error(f"{where} is damaged: {mismatch}") from mismatch
    return check(value, schema, where, error)


def check(value: Any, schema: Schema[T], where: str, error: type[Exception]) -> T:
    """`value` as `schema` returns it; raises `error` starting with `where`."""
    try:
        return schema(value)
    except Mismatch as mismatch:
        raise error(f"{where}: {mismatch}") from mismatch


def canonical(value: Any) -> str:
    """The one JSON text of `value` that this library writes; ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n"


def _loads(content: bytes | str, limits: Limits) -> Any:
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise Mismatch(f"byte {failure.start} is not UTF-8 ({failure.reason})") from failure
    if len(text) > limits.size:
        raise Mismatch(f"holds more than {limits.size} characters")
    # Each value but the first follows one of these; those within strings only make it stricter.
    if sum(map(text.count, ",[{")) > limits.values:
        raise Mismatch(f"holds more than {limits.values} values")
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite
        )
    except RecursionError:
        raise Mismatch(f"is nested deeper than {limits.depth} levels") from None
    except Mismatch:
        raise
    except ValueError as failure:
        raise Mismatch(f"no JSON: {failure}") from failure


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise Mismatch(f"the key {shown(twice)} appears twice")
    return made


def _no_number(literal: str) -> NoReturn:
    raise Mismatch(f"{literal} is no JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise Mismatch(f"the number {shown(literal)} is beyond float64")
    return value


_NESTED = {dict, list}


def _check_depth(value: Any, depth: int) -> None:
    """Mismatch where lists and objects lie in each other deeper than `depth`."""
    level = [value] if type(value) in _NESTED else []
    for _ in range(depth):
        insides = (item if type(item) is list else item.values() for item in level)
        level = [x for inside in insides for x in inside if type(x) in _NESTED]
    if level:
        raise Mismatch(f"is nested deeper than {depth} levels")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A half sentence with the closest known name, or all of them where none is close."""
    difflib = importlib.import_module("difflib")  # only errors pay for it
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1) if len(name) < LONGEST_NAME else []
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def shown(value: Any) -> str:
    """A short form of `value` for a message, however large it is."""
    return _SHORT.repr(value)


def anything(value: Any) -> Any:
    """Whatever JSON can hold."""
    return value


def boolean(value: Any) -> bool:
    """true or false."""
    return value if type(value) is bool else _wanted("true or false", value)


def integer(least: int = 0, most: int = (1 << 63) - 1) -> Schema[int]:
    """A whole number within bounds; neither true nor 1.0."""

    def checked(value: Any) -> int:
        if type(value) is not int:
            _wanted("an integer", value)
        if not least <= value <= most:
            _wanted(f"an integer from {least} to {most}", value)
        return value

    return checked


def number(
    least: float = -math.inf, most: float = math.inf, above: float = -math.inf
) -> Schema[float]:
    """A finite number within bounds and greater than `above`; not true."""

    def checked(value: Any) -> float:
        if type(value) is not int and type(value) is not float:
            _wanted("a number", value)
        if not (least <= value <= most and value > above and abs(value) < 1e308):
            low = f"above {above}" if above > least else f"from {least}"
            _wanted(f"a number {low} to {most}", value)
        return value

    return checked


def string(pattern: str = "", most: int = LIMITS.size) -> Schema[str]:
    """A string of at most `most` characters that matches `pattern` as a whole, if given."""
    compiled = re.compile(pattern)

    def checked(value: Any) -> str:
        if type(value) is not str:
            _wanted("a text", value)
        if len(value) > most:
            _wanted(f"a text of at most {most} characters", value)
        if pattern and not compiled.fullmatch(value):
            _wanted(f"a text of the form {pattern}", value)
        return value

    return checked


def one_of(*allowed: T) -> Schema[T]:
    """One of a few values, of the same type: true is not 1."""

    def checked(value: Any) -> T:
        if any(type(value) is type(known) and value == known for known in allowed):
            found: T = value
            return found
        hint = ""
        if type(value) is str and all(type(known) is str for known in allowed):
            hint = did_you_mean(value, map(str, allowed))
        names = " or ".join(json.dumps(known) for known in allowed)
        raise Mismatch(f"must be {names}, got {shown(value)}{hint}")

    return checked


def nullable(schema: Schema[T]) -> Schema[T | None]:
    """null, or what `schema` allows."""
    return lambda value: None if value is None else schema(value)


def array(schema: Schema[T], least: int = 0, most: int = LIMITS.values) -> Schema[list[T]]:
    """A list of `least` to `most` values that `schema` allows."""

    def checked(value: Any) -> list[T]:
        if type(value) is not list:
            _wanted("a list", value)
        if not least <= len(value) <= most:
            raise Mismatch(f"must hold {least} to {most} values, got {len(value)}")
        if schema is anything:  # of plans, tens of thousands
            return value
        return list(_each(((f"[{i}]", item) for i, item in enumerate(value)), schema))

    return checked


def row(*schemas: Schema[Any]) -> Schema[list[Any]]:
    """A list with one value for each schema, in this order."""

    def checked(value: Any) -> list[Any]:
        if type(value) is not list:
            _wanted("a list", value)
        if len(value) != len(schemas):
            raise Mismatch(f"must hold {len(schemas)} values, got {len(value)}")
        made: list[Any] = []
        for i, (item, schema) in enumerate(zip(value, schemas, strict=True)):
            made += _each([(f"[{i}]", item)], schema)
        return made

    return checked


def mapping(
    schema: Schema[T], key: Schema[Any] = anything, most: int = LIMITS.values
) -> Schema[dict[str, T]]:
    """An object of any keys that `key` allows, with values that `schema` allows."""

    def checked(value: Any) -> dict[str, T]:
        if type(value) is not dict:
            _wanted("an object", value)
        if len(value) > most:
            raise Mismatch(f"must hold at most {most} keys, got {len(value)}")
        for name in value:
            key(name)
        return dict(zip(value, _each(value.items(), schema), strict=True))

    return checked


def _each(items: Iterable[tuple[str, Any]], schema: Schema[T]) -> Iterable[T]:
    for step, item in items:
        try:
            yield schema(item)
        except Mismatch as mismatch:
            raise mismatch.within(_short(step)) from None


def record(
    required: Mapping[str, Schema[Any]],
    optional: Mapping[str, Schema[Any]] | None = None,
    others: Schema[Any] | None = None,
) -> Schema[dict[str, Any]]:
    """An object with these keys; others are an error unless `others` says what they may hold."""
    known = {**required, **(optional or {})}

    def checked(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            _wanted("an object", value)
        missing = sorted(required.keys() - value.keys())
        if missing:
            raise Mismatch(f"does not hold {', '.join(missing)}")
        made = {}
        for name, item in value.items():
            schema = known.get(name, others)
            if schema is None:
                raise Mismatch(f"unknown key {shown(name)}{did_you_mean(name, known)}")
            [made[name]] = _each([(name, item)], schema)
        return made

    return checked


def _short(step: str) -> str:
    return step if len(step) <= 100 else step[:100] + "..."


def _wanted(what: str, value: Any) -> NoReturn:
    raise Mismatch(f"must be {what}, got {shown(value)}")
