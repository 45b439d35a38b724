"""Options in messages: as a caller of Python writes them, and on the command line as its flags.

    raise ConfigError(f"`learning_rate` must be positive, got {rate}")
    # from Python         `learning_rate` must be positive, got -1.0
    # on the command line --learning-rate must be positive, got -1.0

Whoever raises knows no command line: an option stands between backticks by its name, with its value
(a Python literal, or a word such as DIR) where that matters. The command line, which is the last to
see a message, shows its flags instead.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import fields

from fxad_nn.finetune_recipe import FinetuneOptions
from fxad_nn.prepare import PrepareOptions
from fxad_nn.recipe import TrainOptions

NAMES = frozenset(
    field.name for cls in (TrainOptions, FinetuneOptions, PrepareOptions) for field in fields(cls)
)

COMMANDS = {"recipe": "train", "finetune_recipe": "finetune"}
"""What makes the options of a command."""

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_OPTION = re.compile(rf"`(?:({'|'.join(COMMANDS)})\()?(\w+)(?:=({_TEXT}|[\w.+-]+))?(?(1)\))`")


def in_flags(message: str) -> str:
    """A message with the options in it as flags, as a shell reads them.

    >>> in_flags("continue it with `resume='runs/a b'`, or choose another `out`")
    "continue it with --resume 'runs/a b', or choose another --out"
    >>> in_flags("continue it with `finetune_recipe(resume='run')`")
    'continue it with python -m fxad_nn finetune --resume run'
    >>> in_flags("needs `dpo=True`, and not `tool_calls`")
    'needs --dpo, and not `tool_calls`'
    """
    return _OPTION.sub(_flag, message)


def _flag(found: re.Match[str]) -> str:
    maker, name, value = found.groups()
    if name not in NAMES:
        return found[0]
    flag = "--" + name.replace("_", "-")
    if value == "False":
        flag = "--no-" + flag.removeprefix("--")
    elif value is not None and value != "True":
        quoted = value[0] in "'\""
        flag += " " + (shlex.quote(ast.literal_eval(value)) if quoted else value)
    return f"python -m fxad_nn {COMMANDS[maker]} {flag}" if maker else flag
