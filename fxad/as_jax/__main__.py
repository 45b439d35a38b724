"""`python -m fxad.as_jax script.py [args]`, or `-m module [args]`: run it with fxad as JAX."""

from __future__ import annotations

import os
import runpy
import sys

from fxad.as_jax import install

USAGE = "usage: python -m fxad.as_jax (script.py | -m module) [args]"


def main(args: list[str]) -> None:
    """Run the program that the arguments name as Python itself would."""
    if not args or args[0] in ("-h", "--help") or args == ["-m"]:
        print(USAGE)
        raise SystemExit(0 if args and args[0] != "-m" else 2)
    install()
    if args[0] == "-m":
        sys.argv = args[1:]
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = args
    sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
    runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
