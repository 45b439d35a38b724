"""The losses of a run as lines of JSON, appended as they come, so that a kill loses none of them.

{"from": 0}
{"step": 10, "train": 3.31}
{"step": 10, "norm": 0.83}
{"step": 250, "val": 2.71}
{"from": 250}                       a resumed run: what follows step 250 above counts no longer

    append(path, [point("train", 10, 3.31)])
    history = read_losses(path)     # {"train": [[10, 3.31]], "norm": ..., "val": [[250, 2.71]]}

"train" and "val" are losses, "norm" is the global norm of the gradient before it is clipped, a mean
over the steps since the last report as "train" is.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fxad.core.schema import integer, number, parse, record
from fxad_nn.errors import DataError
from fxad_nn.files import replacing

LOSSES, TABLE = "losses.jsonl", "losses.csv"
LONGEST = 256  # bytes of a line
KINDS = ("train", "val", "norm")
LINE = record({}, {"from": integer(), "step": integer(), **dict.fromkeys(KINDS, number())})

History = dict[str, list[list[float]]]
"""{"train": [[step, loss], ...], "val": [[step, loss], ...], "norm": [[step, norm], ...]}"""
Line = dict[str, Any]


def empty_history() -> History:
    """No losses yet."""
    return {kind: [] for kind in KINDS}


def point(kind: str, step: int, value: float) -> Line:
    """The line of one number; kind is one of KINDS."""
    return {"step": step, kind: value}


def begun(step: int) -> Line:
    """The line that starts a run, or starts it again from a checkpoint at `step`."""
    return {"from": step}


def lines_of(history: History) -> list[Line]:
    """A whole history as lines."""
    return [begun(0)] + [point(kind, int(s), x) for kind in history for s, x in history[kind]]


def append(path: str | Path, lines: Iterable[Line]) -> None:
    """Add lines in one write, after whatever line a killed process left unfinished."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    with open(handle, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(handle, 1, size - 1) != b"\n":
            text = b"\n" + text
        done = 0
        while done < len(text):
            done += file.write(text[done:])


def read_losses(path: str | Path) -> History:
    """The history in a file, each step once; lines that are not whole are passed over."""
    path = Path(path)
    found: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
    if not path.is_file():
        raise DataError(f"there is no file {path}; training writes it with its first report")
    with open(path, "rb") as file:
        while text := file.readline(LONGEST):
            line = _parsed(text)
            if "from" in line:
                for kind, points in found.items():
                    found[kind] = {s: x for s, x in points.items() if s <= line["from"]}
            for kind in line.keys() & found.keys():
                found[kind][line["step"]] = line[kind]
    return {kind: [[s, x] for s, x in sorted(points.items())] for kind, points in found.items()}


def write_table(history: History, path: str | Path) -> None:
    """The history as CSV, a line for each step that has a number: step,train,val,norm.

    Raises OSError.
    """
    path = Path(path)
    rows: dict[int, dict[str, float]] = {}
    for kind, points in history.items():
        for step, loss in points:
            rows.setdefault(int(step), {})[kind] = loss
    with replacing(path) as temporary, open(temporary, "w", newline="") as file:
        table = csv.DictWriter(file, ["step", *KINDS], restval="")
        table.writeheader()
        table.writerows({"step": step, **rows[step]} for step in sorted(rows))


def _parsed(text: bytes) -> Line:
    """A line's contents, or nothing where they are not those of a whole line."""
    try:
        line: Line = parse(text, LINE, LOSSES, DataError) if text.endswith(b"\n") else {}
    except DataError:
        return {}
    whole = ({"from"}, *({"step", kind} for kind in KINDS))
    return line if line.keys() in whole else {}
