"""`jit(f).trace(...)`, and what is known of results before they are compiled."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.as_jax.core import eval_jaxpr
from fxad.core.errors import BadArgument, TypeMismatch

X = np.ones(3, np.float32)


def test_a_trace_knows_types_and_program():
    runs = []
    weights = jnp.arange(3.0)

    @fxad.jit(static_argnames="times", donate_argnums=0)
    def f(x, times):
        runs.append(1)
        return {"y": jnp.sin(x) * weights, "z": [x.astype("int32"), times * x[0]]}

    traced = f.trace(X, times=2)
    assert len(runs) == 1 and traced.fun_name == "f"
    info = traced.out_info
    assert {name: type(value) for name, value in info.items()} == {
        "y": fxad.ShapeDtypeStruct,
        "z": list,
    }
    assert info == fxad.eval_shape(lambda x: f(x, times=2), X)
    assert traced.out_tree == fxad.tree.structure(info)
    assert [aval.shape for aval in traced.out_avals] == [(3,), (3,), ()]
    assert traced.args_info[0][0].donated and traced.donate_argnums == (0,)
    assert traced.in_avals[0][0].shape == (3,)
    names = [eqn.primitive.name for eqn in traced.jaxpr.jaxpr.eqns]
    assert {"sin", "mul"} <= set(names)
    assert traced.jaxpr is traced.jaxpr
    y, whole, first = eval_jaxpr(traced.jaxpr.jaxpr, traced.jaxpr.consts, X)
    np.testing.assert_allclose(y, np.sin(1) * np.arange(3), rtol=1e-6)
    assert whole.tolist() == [1, 1, 1] and float(first) == 2
    lowered = traced.lower()
    assert lowered.out_info == info and lowered.out_tree == traced.out_tree
    compiled = lowered.compile()
    assert compiled.out_info == info
    np.testing.assert_allclose(compiled(X.copy())["y"], y)
    with pytest.raises(TypeMismatch, match="leave out static arguments"):
        compiled(X.copy(), times=2)
    f(X.copy(), times=2)
    assert len(runs) == 1
    assert repr(traced).startswith("<Traced f(")


def test_results_that_are_weak():
    info = fxad.jit(lambda x: x * 2).trace(1.0).out_info
    assert info.weak_type and info.shape == ()


def test_a_trace_is_lowered_for_the_platform_there_is():
    traced = fxad.jit(jnp.sin).trace(fxad.ShapeDtypeStruct((3,), "float32"))
    assert traced.lower(lowering_platforms=("cpu",)).compile()(X).shape == (3,)
    with pytest.raises(BadArgument, match="one platform, 'cpu'"):
        traced.lower(lowering_platforms=("tpu",))
