"""The gradient of a whole model as NumPy source."""

from __future__ import annotations

import numpy as np

import fxad
from fxad.ir.inspection.python import to_python
from fxad.ir.program import equations_within
from fxad.ir.rewrite import evaluate
from fxad_nn import gpt2, models
from fxad_nn.spec import init_params


def test_the_gradient_of_gpt2_nano_as_source_has_the_interpreters_bits() -> None:
    config = models.preset("nano")
    params = init_params(gpt2.spec(config), fxad.random.key(0))
    tokens = np.arange(16, dtype=np.int32).reshape(2, 8) % 60
    batch = (tokens[:, :-1], tokens[:, 1:])
    program = fxad.make_ir(
        lambda p, x, y: fxad.value_and_grad(lambda p: gpt2.loss(p, (x, y), config))(p)
    )(params, *batch).program
    assert not program.consts
    assert sum(map(equations_within, program.eqns)) > 300
    namespace: dict = {}
    exec(compile(to_python(program), "source", "exec"), namespace)
    args = [np.asarray(v) for v in fxad.tree.leaves((params, *batch))]
    found = namespace[program.name](*args)
    for got, wanted in zip(found, evaluate(program, args), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(wanted).tobytes()
