"""Check every public function on CUDA against its eager value, one small call of each.

With a GPU:  python tests/backend/numba/functions_on_cuda.py [--gradients] [--only fxad.lax]

Nearly all of the time goes into compiling, so the calls are dealt out to several processes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "api"))


def check(share: int, of: int, given: argparse.Namespace) -> list[str]:
    """What differs or fails in every `of`-th call from the one numbered `share`."""
    from test_under_jit import ALL, DIFFERENTIABLE, gradients, same

    import fxad
    from fxad.core.config import config

    warnings.simplefilter("ignore")
    among, slack = (DIFFERENTIABLE, 4) if given.gradients else (ALL, 1)
    chosen = [(name, case) for name, case in among if re.match(given.only, name)]
    wrong = []
    with config.override(check=False):
        for name, case in chosen[share::of]:
            apply = case.apply
            if given.gradients:

                def apply(*arrays, one=(name, case)):
                    return gradients([one], [arrays])

            try:
                got = fxad.jit(apply).on(given.target)(*case.arrays)
                problem = same(name, got, apply(*case.arrays), slack)
            except Exception:
                problem = f"{name}: {traceback.format_exc(limit=-2)}"
            if problem:
                wrong.append(problem)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--gradients", action="store_true", help="instead of values")
    parser.add_argument("--only", default="", metavar="PATTERN", help="names that begin with it")
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu", "python"))
    given = parser.parse_args()
    begin, count = time.perf_counter(), 4 * given.processes
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        shares = [pool.submit(check, i, count, given) for i in range(count)]
        wrong = [problem for share in shares for problem in share.result()]
    for problem in wrong:
        print(problem)
    print(f"{len(wrong)} differ or fail; {time.perf_counter() - begin:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
