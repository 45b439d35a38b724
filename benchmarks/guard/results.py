"""Rows of a run: what is printed, what is kept, and tables made from what was kept.

    print(results.table(rows))
    results.write(path, about, rows)
    print(results.report("amd-avx512-bf16-l1-32k-l2-1m"))

A file `results/KIND/COMMIT.json` has times only of what ran; the table of a kind takes the others
from the newest file that has them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.guard.verdicts import Estimate, judge, threshold, visible

FOLDER = Path(__file__).parent.parent / "results"
SAME, FAILED = "same code", "failed"
Row = dict[str, Any]


def row(
    case: str,
    unit: str,
    sides: Mapping[str, float],
    found: Estimate | None,
    floor: float,
    **more: Any,
) -> Row:
    """sides: the medians of both. Changes are ratios to the base, less one."""
    made: Row = {"case": case, "unit": unit, **sides, "verdict": judge(found, floor)}
    if found is not None:
        bounds = {"change": found.median, "low": found.low, "high": found.high}
        made |= {name: math.expm1(value) for name, value in bounds.items()}
        made |= {"visible": math.expm1(visible(found, floor)), "pairs": found.pairs}
    return made | more


def heading(about: Mapping[str, Any]) -> str:
    """What was compared, where and how, and what could be seen at all."""
    with_edits = " and its edits" if about["uncommitted"] else ""
    return (
        f"tree {about['commit'][:12]}{with_edits} against base {about['base'][:12]}, on "
        f"{about['kind']}, {about['cores']} cores, {about['date']}, {about['seconds']:.0f} s\n"
        f"a side against itself differed by up to {math.expm1(about['floor']):.1%}: "
        f"flagged is what differs by more than {math.expm1(threshold(about['floor'])):.1%}\n"
    )


def table(rows: Sequence[Row]) -> str:
    """What was timed, one to a line; then what failed, and what did not have to run."""
    columns = f"{'change':>7} {'interval':>17} {'visible':>8}"
    lines = [f"{'case':62} {'base':>10} {'tree':>10}   {columns}  verdict"]
    lines += [_line(row) for row in rows if "tree" in row]
    lines += [f"{row['case']}: {row['failed']}" for row in rows if row["verdict"] == FAILED]
    same = [row["case"] for row in rows if row["verdict"] == SAME and "tree" not in row]
    if same:
        lines += ["", f"same code on both sides, not timed ({len(same)}): " + "; ".join(same)]
    return "\n".join(lines)


def _line(row: Row) -> str:
    base, tree = (amount(row.get(side), row["unit"]) for side in ("base", "tree"))
    if "change" not in row:
        return f"{row['case']:62} {base:>10} {tree:>10}   {'':34}  {row['verdict']}"
    interval = f"[{row['low']:+.1%}, {row['high']:+.1%}]"
    numbers = f"{row['change']:+7.1%} {interval:>17} {row['visible']:8.1%}"
    said = row["verdict"] + (f" ({row['note']})" if row.get("note") else "")
    return f"{row['case']:62} {base:>10} {tree:>10}   {numbers}  {said}"


def amount(value: float | None, unit: str) -> str:
    """With its unit, in the size that reads best."""
    if value is None:
        return ""
    if unit != "s":
        return f"{value:.1f} {unit}"
    scale, name = next(
        ((10.0**-p, u) for p, u in ((0, "s"), (-3, "ms")) if value >= 10.0**p), (1e6, "us")
    )
    return f"{value * (1e3 if name == 'ms' else scale):.4g} {name}"


def write(path: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Keep a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = [{name: _rounded(value) for name, value in row.items()} for row in rows]
    path.write_text(json.dumps({**about, "rows": rounded}, indent=1) + "\n")


def _rounded(value: Any) -> Any:
    """Four figures, so that files can be read and compared."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return value


def kinds(folder: Path = FOLDER) -> list[str]:
    """Those with results."""
    return sorted(path.name for path in folder.glob("*") if path.is_dir())


def report(kind: str, folder: Path = FOLDER) -> str:
    """A kind's newest figures as a Markdown table. Raises ValueError for a kind without any."""
    run = _runs(kind, folder)[0]
    return "\n".join(
        [
            f"Kind `{kind}`, commit {run['commit'][:12]}, {run['date']}: `{run['command']}`.",
            "",
            "| case | time | of ceiling | speedup | to base | when |",
            "|---|---|---|---|---|---|",
            *map(_cells, newest(kind, folder)),
        ]
    )


def newest(kind: str, folder: Path = FOLDER) -> list[Row]:
    """The rows of a kind's newest run. Where the code of a case had not changed, its figures are
    those of the newest run that timed it; `change` and `verdict` stay. `when`: the day."""
    runs = _runs(kind, folder)
    rows = []
    for shown in runs[0]["rows"]:
        found = next(((run, row) for run in runs if (row := _timed(run, shown["case"]))), None)
        if found is not None:
            run, row = found
            about = {name: shown[name] for name in ("change", "verdict") if name in shown}
            timed = {name: value for name, value in row.items() if name != "change"}
            rows.append({**timed, **about, "when": run["date"][:10]})
    return rows


def _runs(kind: str, folder: Path) -> list[dict[str, Any]]:
    """A kind's runs, the newest first."""
    runs = [json.loads(path.read_text()) for path in (folder / kind).glob("*.json")]
    if not runs:
        known = ", ".join(kinds(folder)) or "none"
        raise ValueError(f"no results of {kind!r}; there are: {known}")
    return sorted(runs, key=lambda run: run["date"], reverse=True)


def _timed(run: Mapping[str, Any], case: str) -> Row | None:
    rows = (row for row in run["rows"] if row["case"] == case and "tree" in row)
    return next(rows, None)


def _cells(row: Row) -> str:
    share = f"{row['share']:.2f} {row['ceiling']}" if "share" in row else ""
    speedup = ", ".join(f"{name} {value:.2f}" for name, value in row.get("peers", {}).items())
    change = f"{row['change']:+.1%}, " if "change" in row else ""
    time = amount(row["tree"], row["unit"])
    cells = [row["case"], time, share, speedup, f"{change}{row['verdict']}", row["when"]]
    return "| " + " | ".join(cells) + " |"
