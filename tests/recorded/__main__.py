"""Commands on the records of compiled code, see `python -m tests.recorded --help`."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.recorded import base, store, targets
from tests.recorded.catalogue import CASES


def _chosen(patterns: Sequence[str], lenient: bool = False) -> list[str]:
    """The names of cases that match; all where nothing is asked for."""
    if not patterns:
        return list(CASES)
    found = {p: fnmatch.filter(CASES, p) for p in patterns}
    missing = [p for p, names in found.items() if not names]
    if missing and not lenient:
        kinds = sorted({name.split("/")[0] for name in CASES})
        raise SystemExit(f"no case is called {missing[0]!r}; there are {'/*, '.join(kinds)}/*")
    return list(dict.fromkeys(name for names in found.values() for name in names))


def check(args: argparse.Namespace) -> int:
    """Compare what is compiled now with the records."""
    cases, old = _chosen(args.cases), store.read(store.RECORDS)
    new = store.computed([CASES[name] for name in cases], args.targets, args.jobs)
    compared = [store.RUNTIME, *cases]
    if not args.cases:
        compared += sorted({case for table in old.values() for case in table} - set(compared))
    changes = store.differences(old, new, compared, args.targets)
    stale = [] if args.cases else store.stale_texts()
    if not changes and not stale:
        print(f"{len(cases)} cases are compiled as recorded")
        return 0
    print(store.report(changes))
    for path in stale:
        print(f"{path.relative_to(store.RECORDS)} is not what is compiled now")
    print(store.advice(changes))
    return 1


def write(args: argparse.Namespace) -> int:
    """Record what is compiled now; of some cases or targets, beside what is recorded of others."""
    names = _chosen(args.cases, lenient=args.to is not None)
    tables = store.computed([CASES[name] for name in names], args.targets, args.jobs)
    if args.to is None:
        tables = store.merged(store.read(store.RECORDS), tables, names, args.targets)
        store.write_texts()
    store.write(tables, args.to or store.RECORDS)
    print(f"{len(names)} cases for {', '.join(args.targets)} in {args.to or store.RECORDS}")
    return 0


def show(args: argparse.Namespace) -> int:
    """Print the stages of one case."""
    (case,) = _chosen([args.case])
    print(store.whole_text(case, args.target))
    return 0


def diff(args: argparse.Namespace) -> int:
    """Compare what is compiled now with what another commit compiles."""
    return base.diff(args.base, _chosen(args.cases), args.targets, args.jobs, args.limit)


def texts(args: argparse.Namespace) -> int:
    """Write all stages of `case@target`s into a folder."""
    base.write_texts(args.pairs, args.to)
    return 0


def _targets(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in targets.NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(targets.NAMES)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.recorded", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(function: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        made = commands.add_parser(function.__name__, help=function.__doc__)
        made.set_defaults(run=function)
        return made

    def options(made: argparse.ArgumentParser) -> None:
        made.add_argument("cases", nargs="*", help="names or patterns, such as 'rows/*'")
        made.add_argument("--targets", type=_targets, default=targets.NAMES, metavar="A,B")
        made.add_argument("--jobs", type=int, default=os.cpu_count() or 1)

    options(command(check))
    options(writing := command(write))
    writing.add_argument(
        "--to", type=Path, help="another folder; cases it does not know are left out"
    )
    showing = command(show)
    showing.add_argument("case")
    showing.add_argument("target", choices=targets.NAMES)
    options(comparing := command(diff))
    comparing.add_argument("--base", required=True, help="a commit, such as HEAD~1")
    comparing.add_argument("--limit", type=int, default=5, help="diffs that are printed")
    writing_texts = command(texts)
    writing_texts.add_argument("pairs", nargs="+")
    writing_texts.add_argument("--to", type=Path, required=True)
    return parser


def main(words: Sequence[str]) -> int:
    """Run a command; its exit status."""
    arguments = _parser().parse_args(words)
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
