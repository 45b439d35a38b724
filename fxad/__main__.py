"""`python -m fxad doctor`: what was detected of this machine, what was chosen for it and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fxad import __version__
from fxad.compiler import native


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m fxad")
    parser.add_argument("--version", action="version", version=f"fxad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="what was detected here, and chosen, and why")
    doctor.add_argument("--no-measure", action="store_true", help="leave out what takes a second")
    args = parser.parse_args(arguments)
    print(native().diagnosis(measure=not args.no_measure))
    return 0


if __name__ == "__main__":
    sys.exit(main())
