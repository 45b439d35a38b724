"""The records: a line of digests and sizes for every case, in a file for every instruction set.

    tables = computed(CASES.values(), targets.NAMES)
    for change in differences(read(RECORDS), tables): ...

records/plans.txt      program, kernels and plan, which most instruction sets have in common
records/plans-amx.txt  the few cases that are planned otherwise there
records/avx512.txt     LLVM IR and the words of the interpreter
records/zen5.txt       the cases that differ there from avx512.txt
records/texts/         all stages of a few small cases, to be read in reviews
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from fxad.core.record import valued
from tests.recorded import stages
from tests.recorded.catalogue import CASES, Case

RECORDS = Path(__file__).parent / "records"
RUNTIME = "runtime"  # beside the cases: what every program runs on
MOST = 20  # cases of a stage that a report names
_DIGITS = 12
_PLANNED = (*stages.PLANNED, "equations", "kernels", "steps", "arena bytes")
_WRITTEN = (*stages.WRITTEN, "functions", "instructions")
LIKE = dict.fromkeys(("avx512-bf16", "zen4", "zen5", "amx", "amx-float32"), "avx512")

Line = tuple[str, ...]
Table = dict[str, Line]  # of a file: case -> digests and sizes
Tables = dict[str, Table]  # file -> its lines

# Small cases of many kinds whose texts are recorded whole.
SHOWN = {
    "avx512": (
        *("elements/add-one", "elements/outer", "elements/iota", "elements/concatenate"),
        *("elements/round-f32-to-bf16", "elements/transpose-bytes"),
        *("rows/sum-rows", "rows/sum-rows-of-3", "rows/sum-columns", "rows/argmax-rows"),
        *("rows/softmax", "products/nn-2", "products/nn-8", "products/nn-rows-1"),
        *("indexing/embedding", "indexing/dynamic-update-in-place", "indexing/scatter-add"),
        *("indexing/sort-8", "indexing/cumsum-1000", "models/momentum-update"),
        *("loops/fori", "loops/scan-reverse", "loops/scan-scalar", "loops/while"),
    ),
    "zen5": ("products/bf16-one-row",),
    "amx": ("products/bf16-rows",),
    "avx2": ("elements/add-one", "rows/sum-rows", "products/nn-2", "indexing/sort-8"),
    "neon": (
        *("elements/add-one", "elements/iota", "rows/sum-rows", "rows/sum-rows-of-3"),
        *("products/nn-2", "products/nn-rows-1", "indexing/sort-8", "indexing/scatter-add"),
    ),
    "generic": ("elements/round-f32-to-bf16", "rows/sum-columns"),
}


@valued
class Change:
    """A stage of a case that is not as recorded. stage: one of `STAGES`, "new" or "gone"."""

    case: str
    target: str
    stage: str


# ---------------------------------------------------------------- making


def computed(cases: Iterable[Case], names: Sequence[str], jobs: int = 1) -> Tables:
    """The tables of these cases for these targets, and of the runtime."""
    tables = {"plans": Table(), **{name: Table() for name in names}}
    for name in names:
        text = stages.runtime_text(name)
        tables[name][RUNTIME] = (_digest(text), "-", *_sizes(text))
    listed = list(cases)
    for part in _each(listed, names, jobs):
        for file, lines in part.items():
            tables.setdefault(file, {}).update(lines)
    return tables


def _each(cases: list[Case], names: Sequence[str], jobs: int) -> Iterator[Tables]:
    if jobs == 1:
        yield from (_of_case(case.name, names) for case in cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        wanted = [case.name for case in cases]
        yield from pool.map(_of_case, wanted, [names] * len(wanted), chunksize=8)


def _of_case(name: str, names: Sequence[str]) -> Tables:
    case = CASES[name]
    tables: Tables = {}
    for target in names:
        file = "plans" if stages.is_shared(case, target) else f"plans-{target}"
        for at, made in (
            (file, stages.planned_for(case, target)),
            (target, stages.written_for(case, target)),
        ):
            digests = [_digest(text) for text in made.texts.values()]
            tables.setdefault(at, {})[name] = (*digests, *map(str, made.counts.values()))
    return tables


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _sizes(text: str) -> tuple[str, str]:
    functions, count = stages.sizes(text).values()
    return str(functions), str(count)


def merged(old: Tables, new: Tables, cases: Sequence[str], names: Sequence[str]) -> Tables:
    """The old tables with new lines for some cases and targets, without cases that are gone."""
    tables: Tables = {}
    for file, table in old.items():
        anew = set(cases) if file.removeprefix("plans-") in names else set()
        kept = {RUNTIME, *CASES} - anew
        tables[file] = {name: line for name, line in table.items() if name in kept}
    for file, table in new.items():
        tables.setdefault(file, {}).update(table)
    return {file: table for file, table in tables.items() if table}


# ---------------------------------------------------------------- comparing


def differences(
    old: Tables, new: Tables, cases: Iterable[str], names: Sequence[str]
) -> list[Change]:
    """What changed in these cases for these targets, by case. A change of what targets have in
    common is said once, for the first of them."""
    found: dict[Change, None] = {}
    for case in cases:
        seen: set[tuple[Line | None, Line | None]] = set()
        for target in names:
            pair = _planned_line(old, case, target), _planned_line(new, case, target)
            changes = list(_changed(pair, stages.PLANNED)) if pair not in seen else []
            seen.add(pair)
            written = old.get(target, {}).get(case), new.get(target, {}).get(case)
            changes += [s for s in _changed(written, stages.WRITTEN) if s not in changes]
            found |= {Change(case, target, stage): None for stage in changes}
    return list(found)


def _planned_line(tables: Tables, case: str, target: str) -> Line | None:
    own = tables.get(f"plans-{target}", {}).get(case)
    return own or tables.get("plans", {}).get(case)


def _changed(pair: tuple[Line | None, Line | None], names: Sequence[str]) -> Iterator[str]:
    old, new = pair
    if old is None and new is None:
        return
    if old is None or new is None:
        yield "new" if old is None else "gone"
        return
    yield from (name for name, a, b in zip(names, old, new, strict=False) if a != b)


def report(changes: Sequence[Change]) -> str:
    """Which cases changed in which stage; "" if none did."""
    lines: list[str] = []
    for stage in (*stages.STAGES, "new", "gone"):
        found: dict[str, list[str]] = {}
        for change in changes:
            if change.stage == stage:
                found.setdefault(change.case, []).append(change.target)
        if found:
            lines.append(f"{stage}: {len(found)} case{'s' * (len(found) > 1)}")
            lines += [f"    {case}  ({', '.join(names)})" for case, names in found.items()][:MOST]
        if len(found) > MOST:
            lines.append(f"    and {len(found) - MOST} more")
    return "\n".join(lines)


def advice(changes: Sequence[Change]) -> str:
    """What to do where records do not hold."""
    seen = ""
    if changes:
        one = changes[0]
        seen = f" To see how:\n    python -m tests.recorded diff --base HEAD {one.case} "
        seen += f"--targets {one.target}"
    return (
        f"What is compiled is not what tests/recorded/records holds.{seen}\n"
        "If all of it is meant:\n    python -m tests.recorded write"
    )


# ---------------------------------------------------------------- files


def read(folder: Path) -> Tables:
    """The recorded tables; none where nothing is recorded."""
    tables = {path.stem: _parsed(path.read_text()) for path in sorted(folder.glob("*.txt"))}
    return {file: tables.get(LIKE.get(file, ""), {}) | own for file, own in tables.items()}


def _parsed(text: str) -> Table:
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {name: tuple(rest) for name, *rest in lines}


def write(tables: Mapping[str, Table], folder: Path) -> None:
    """Replace the files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in set(folder.glob("*.txt")) - {folder / f"{file}.txt" for file in tables}:
        path.unlink()
    for file, table in sorted(tables.items()):
        columns = _PLANNED if file.startswith("plans") else _WRITTEN
        like = LIKE.get(file, "")
        own = sorted(table.items() - tables.get(like, {}).items())
        lines = [f"{name:<44} {' '.join(line)}" for name, line in own]
        head = f"# case, {', '.join(columns)}" + f"; all else as in {like}.txt" * bool(like)
        (folder / f"{file}.txt").write_text("\n".join([head, *lines, ""]))


def shown() -> Iterator[tuple[str, str, Path]]:
    """Case, target and file of every text that is recorded whole."""
    for target, cases in SHOWN.items():
        for case in cases:
            yield case, target, RECORDS / "texts" / f"{case.replace('/', '-')}.{target}.txt"


def whole_text(case: str, target: str) -> str:
    """All stages of a case, each under its name."""
    texts = stages.texts(CASES[case], target)
    return "\n".join(f"======== {stage}\n\n{text}" for stage, text in texts.items())


def stale_texts() -> list[Path]:
    """Files of texts that are not what is compiled now."""
    return [p for c, t, p in shown() if not p.exists() or p.read_text() != whole_text(c, t)]


def write_texts() -> None:
    """Replace the texts that are recorded whole."""
    folder = RECORDS / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for case, target, path in shown():
        path.write_text(whole_text(case, target))
