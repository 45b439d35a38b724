"""Under the alias, results have JAX's dtypes, weak types and shapes: function by function, beside
an installed JAX (`result_types.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "result_types.py"
ROOT = SCRIPT.parent.parent.parent

NUMBERS = "results of a Python number, or of a number of integers, are weak in JAX by its history"
INTEGERS = "activations of integers are weakly typed floats in JAX; here floats"
DIFFERENT = {
    "lax.random_gamma_grad": "in JAX the first argument alone gives the dtype, never weak",
    "nn.celu": INTEGERS,
    "nn.elu": INTEGERS,
    "nn.hard_sigmoid": INTEGERS,
    "nn.hard_silu": INTEGERS,
    "nn.hard_swish": INTEGERS,
    "nn.leaky_relu": INTEGERS + " (of two integers an integer in JAX)",
    "nn.mish": INTEGERS,
    "nn.relu6": INTEGERS,
    "nn.selu": INTEGERS,
    "nn.soft_sign": INTEGERS,
    "nn.softplus": INTEGERS,
    "nn.sparse_plus": INTEGERS,
    "nn.sparse_sigmoid": INTEGERS,
    "nn.squareplus": INTEGERS,
    "numpy.angle": NUMBERS,
    "numpy.argpartition": "positions are never weak here",
    "numpy.cumulative_prod": "widens small integers, as cumulative_sum does",
    "numpy.from_dlpack": "an Array is handed back as it is",
    "numpy.gradient": NUMBERS + "; spacings do not widen bfloat16",
    "numpy.polydiv": NUMBERS,
    "numpy.rint": NUMBERS,
    "scipy.special.owens_t": "bfloat16 beside a weak number stays bfloat16",
    "lax.dot": "of bfloat16 and float32, which JAX does not convert, is bfloat16 here",
}
FAILS = {
    "lax.axis_index": "needs the axis of a vmap",
    "lax.cumlogsumexp": "of integers, which JAX answers with integers",
    "lax.dce_sink": "absent",
    "lax.integer_pow": "of an exponent that is no integer",
    "lax.reshape": "the shape is a sequence",
    "lax.rng_bit_generator": "the key is an array of words",
    "lax.shape_as_value": "absent",
    "lax.stage": "absent",
    "numpy.array_split": "of 1.5 sections",
    "numpy.frombuffer": "takes bytes",
    "numpy.hsplit": "of 1.5 sections",
    "numpy.iscomplexobj": "of a list",
    "numpy.isrealobj": "of a list",
    "numpy.lexsort": "of one vector, whose elements are no keys",
    "numpy.pad": "of a width that is no integer",
    "numpy.roots": "of a number",
    "numpy.split": "of 1.5 sections",
    "numpy.unravel_index": "of floats",
    "numpy.vsplit": "of 1.5 sections",
    "scipy.special.expn": "the order is a Python integer",
    "scipy.special.log_ndtr": "of a list",
    "scipy.special.multigammaln": "of a dimension that is no integer",
    "scipy.special.ndtr": "of a list",
    "scipy.special.spence": "of a list",
}


def answers(*command: str) -> dict[str, list | None]:
    """What the script prints in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = (sys.executable, *command, str(SCRIPT))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found: dict[str, list | None] = json.loads(done.stdout)
    return found


@pytest.mark.peers
def test_results_have_jaxs_types() -> None:
    pytest.importorskip("jax")
    jaxs, ours = answers(), answers("-m", "fxad.as_jax")
    compared = {case: types for case, types in jaxs.items() if types is not None}
    assert len(compared) > 3000
    different, failing = set(), set()
    for case, types in compared.items():
        if ours.get(case) is None:
            failing.add(case.partition("(")[0])
        elif ours[case] != types:
            different.add(case.partition("(")[0])
    assert different == DIFFERENT.keys()
    assert failing == FAILS.keys()
