"""Typed options: one dataclass gives command-line options, and reads its own JSON back.

@dataclass(frozen=True)
class Options:
    steps: int = option(2000, "how many steps to train")

add_options(parser, Options)                            # --steps INT
build(Options, {"stesp": 3}, "state.json")              # ConfigError: did you mean 'steps'?
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fxad.core.schema import shown
from fxad_nn.errors import ConfigError, did_you_mean

T = TypeVar("T")


def option(default: Any, help: str, choices: tuple[str, ...] = (), also: str = "") -> Any:
    """A dataclass field that is also a command-line option; `also` is another name of its flag."""
    said = {"help": help, "choices": choices, "also": also}
    return dataclasses.field(default=default, metadata=said)


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types a field accepts: `int | None` -> (int, NoneType)."""
    return get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def add_options(parser: argparse.ArgumentParser, cls: type) -> None:
    """Add `--field-name` for every field; what is not given is absent from the parsed names."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind: Any = next(k for k in _kinds(hints[field.name]) if k is not type(None))
        flags = ["--" + field.name.replace("_", "-")]
        flags += [field.metadata["also"]] if field.metadata["also"] else []
        text = field.metadata["help"]
        if field.default not in (None, ()):
            text += f" (default: {field.default})"
        common = {"dest": field.name, "default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **common)
        else:
            shown = "|".join(field.metadata["choices"]) or kind.__name__.upper()
            if get_origin(kind) is tuple:
                kind, shown = _texts, "A,B|@FILE"
            elif kind is Path:
                kind = path_of
            parser.add_argument(*flags, type=kind, metavar=shown, **common)


EMPTY = "it is empty, as a variable is that was never set"
"""Said of an option that is given as '': one that is left out means its default."""


def path_of(value: str) -> Path:
    """The path in a command line; Path("") would be the working directory."""
    if not value:
        raise argparse.ArgumentTypeError(EMPTY)
    return Path(value)


def _texts(value: str) -> tuple[str, ...]:
    """Texts between commas, or, of "@FILE", the lines of a file."""
    parts = value.split(",")
    if value.startswith("@"):
        try:
            parts = Path(value[1:]).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"{value[1:]} cannot be read: {error}") from error
    if not any(parts):
        raise argparse.ArgumentTypeError(f"{value} names nothing" if value else EMPTY)
    return tuple(part for part in parts if part)


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Parse, and for an unknown option stop with the commands that have it, or the closest one."""
    known, extra = parser.parse_known_args(arguments)
    if extra:
        name = extra[0].partition("=")[0]
        given = sys.argv[1:] if arguments is None else arguments
        hint = _hint(parser, name, given) if name.startswith("-") else ""
        parser.error(f"unknown argument {extra[0]!r}{hint}")
    return known


# What other programs call an option of ours.
OTHER_NAMES = {
    "--batch-size": "--batch",
    "--lr": "--learning-rate",
    "--max-length": "--tokens",
    "--max-new-tokens": "--tokens",
    "--max-steps": "--steps",
    "--output-dir": "--out",
}


def _hint(parser: argparse.ArgumentParser, flag: str, given: Sequence[str]) -> str:
    """What may have been meant: an option of the command that was given, if one is close."""
    by_command = _flags(parser)
    command = next((word for word in given if word in by_command), parser.prog)
    own = by_command[parser.prog] | by_command[command]
    if OTHER_NAMES.get(flag) in own:
        return f"; here it is {OTHER_NAMES[flag]}"
    owners = [command for command, flags in by_command.items() if flag in flags]
    if owners:
        return f"; it is an option of {', '.join(owners)}"
    return did_you_mean(flag, own) or did_you_mean(flag, set().union(*by_command.values()))


def _flags(parser: argparse.ArgumentParser) -> dict[str, set[str]]:
    """The flags of each command of a parser, and its own (as those of its program)."""
    flags = {parser.prog: {flag for action in parser._actions for flag in action.option_strings}}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                flags[name] = _flags(command)[command.prog]
    return flags


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make `cls` from plain values, checking names and types; errors start with `where`."""
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    checked = {}
    for name, value in values.items():
        if name not in fields:
            raise ConfigError(f"{where}: unknown key {shown(name)}{did_you_mean(name, fields)}")
        checked[name] = _convert(value, hints[name], f"{where}: {name}")
        choices = fields[name].metadata.get("choices")
        if choices and value is not None and value not in choices:
            hint = did_you_mean(str(value), choices)
            raise ConfigError(f"{where}: {name} cannot be {shown(value)}{hint}")
    return cls(**checked)


def require_types(options: Any) -> None:
    """ConfigError where a field of a dataclass is not of its type: what a `__post_init__` asks
    first, because nothing else checks `Options(steps=math.inf)`. Strings become paths where these
    are asked for."""
    hints = get_type_hints(type(options))
    for field in dataclasses.fields(options):
        value = _convert(getattr(options, field.name), hints[field.name], field.name)
        object.__setattr__(options, field.name, value)  # of a frozen dataclass, while it is made


def _convert(value: Any, hint: Any, where: str) -> Any:
    """`value` as one of the types of `hint`: ints are floats, strings paths, lists tuples, dicts
    dataclasses."""
    kinds = _kinds(hint)
    if type(value) in kinds or (isinstance(value, Path) and Path in kinds):
        return value
    if type(value) is int and float in kinds and abs(value) < 1 << 1023:
        return float(value)
    if isinstance(value, str) and Path in kinds:
        if not value:
            raise ConfigError(f"{where} must be a path: {EMPTY}")
        return Path(value)
    if isinstance(value, list | tuple):
        for kind in kinds:
            if get_origin(kind) is tuple:
                item = get_args(kind)[0]
                return tuple(_convert(x, item, f"{where}[{i}]") for i, x in enumerate(value))
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
            return build(kind, value, where)
    wanted = " or ".join(map(_named, kinds))
    raise ConfigError(f"{where} must be {wanted}, got {shown(value)}")


def _named(kind: Any) -> str:
    if kind is type(None):
        return "null"
    return "list" if get_origin(kind) is tuple else str(kind.__name__)
