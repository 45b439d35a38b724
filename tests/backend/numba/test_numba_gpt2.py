"""One training step of a toy GPT-2 (one layer, width 8) from the same Kernels on other targets.

The CUDA simulator has to be chosen before numba is imported, so they run in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

STEP = """
import sys
import numpy as np
import fxad
from fxad.backend.numba import emit
from fxad_nn import models, optim, spec
from fxad_nn.step import train_step

# The simulator watches its threads in a loop, which held Python for 5 ms of every turn.
sys.setswitchinterval(1e-4)
emit.TILE_SIDE = 4  # the simulator starts a thread of Python for each of the 256 otherwise
config = models.preset("tiny", layers=1, heads=2, width=8, hidden=16, vocab=11, context=2)
tree = models.family(config).spec(config)
params = spec.init_params(tree, fxad.random.key(0))
# A large epsilon: the bias of keys has no gradient but noise, which Adam would make full steps of.
optimiser = optim.adamw(1e-2, epsilon=1e-5)
state = optimiser.init(params)
step = train_step(config, optimiser, clip=1.0)
tokens = np.random.default_rng(0).integers(0, 11, (2, 3)).astype(np.int32)
x, y = tokens[:, :-1].copy(), tokens[:, 1:].copy()
found = {target: step.on(target)(params, state, x, y) for target in ("python", "cuda")}
native = step(params, state, x, y)  # last: it takes the memory of its arguments
for target, other in found.items():
    for ours, wanted in zip(fxad.tree.leaves(other), fxad.tree.leaves(native), strict=True):
        ours, wanted = np.asarray(ours), np.asarray(wanted)
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=2e-6, err_msg=target)
before = float(native[2])
assert 2.0 < before < 3.0, before
print("same", len(fxad.tree.leaves(native)))
"""


@pytest.mark.slow
def test_training_step() -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", STEP],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.stdout.startswith("same"), done.stdout + done.stderr
