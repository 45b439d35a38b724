"""Check the numba backend's kernels and plans on CUDA; run by test_numba.py under the simulator.

With a GPU:  python tests/backend/numba/numba_on_cuda.py
"""

import warnings

import numpy as np
from numba_cases import all_cases, fewer_cases, product
from numba_kernels import check
from numba_plans import sketches

from fxad.backend.numba import emit
from fxad.backend.numba.execute import execute_plan
from fxad.backend.numba.library import simulated


def main() -> None:
    warnings.simplefilter("error")
    cases = fewer_cases() if simulated() else all_cases()
    for case in cases:
        check(case, "cuda")
    emit.MANY_TILES = 1
    check(product(np.random.default_rng(2), (1, 64, 65, 17), rtol=1e-5), "cuda")
    for sketch in sketches():
        found = execute_plan(sketch.plan, sketch.arguments, "cuda")
        for got, want in zip(found, sketch.wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    print(f"{len(cases) + 1} kernels and {len(sketches())} plans agree")


if __name__ == "__main__":
    main()
