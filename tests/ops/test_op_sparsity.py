"""Sparse Jacobians of every op against its dense one: no entry may be missed."""

from __future__ import annotations

import numpy as np
import pytest
from contract import contracts, differentiable, listed, smooth

import fxad
from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.trace.execute import concrete
from fxad.trace.tracer import bind, type_of

# Elements of a result that depend on far fewer elements of the operand than all.
SPARSE = ("add", "mul", "sin", "select", "slice", "pad", "concatenate", "transpose", "gather")


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize("name", [n for n, d in contracts(dt.float64) if OPS[n].jvp])
def test_sparse_jacobians_are_the_dense_ones(name: str) -> None:
    op = OPS[name]
    for sample in smooth(op, dt.float64):
        for place in differentiable(sample.args):

            def f(x, place=place, sample=sample):
                args = [x if i == place else a for i, a in enumerate(sample.args)]
                outs = listed(bind(op, *args, **sample.params))
                return [o for o in outs if dt.is_differentiable(type_of(o).dtype)]

            x = concrete(sample.args[place])
            found = fxad.sparse_jacobian(f)(x)
            pairs = zip(f(x), fxad.jacfwd(f)(x), strict=True)
            dense = [np.asarray(j).reshape(o.size, x.size) for o, j in pairs]
            wanted = np.concatenate(dense) if dense else np.zeros((0, x.size))
            np.testing.assert_allclose(found.todense(), wanted, rtol=1e-12, atol=1e-12)
            if name in SPARSE and found.shape[0] > 1 and x.size > 1:
                assert len(found.rows) <= max(found.shape)
