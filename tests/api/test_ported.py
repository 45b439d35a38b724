"""Names of JAX that need nothing done here."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp


def test_devices_and_scopes():
    tree = {"a": np.arange(3.0, dtype=np.float32)}
    placed = fxad.device_put(tree)
    tree["a"][:] = 9
    assert isinstance(placed["a"], fxad.Array)
    back = fxad.device_get(fxad.block_until_ready(placed))
    assert type(back["a"]) is np.ndarray
    np.testing.assert_array_equal(back["a"], [0, 1, 2])
    assert float(fxad.jit(lambda x: fxad.device_get(x) + 1)(1.0)) == 2.0  # a traced value as it is
    with fxad.named_scope("block"):
        assert float(fxad.named_call(jnp.sum, name="sum")(placed["a"])) == 3.0
    assert fxad.default_backend() == "cpu"


def test_checkpoint_policies():
    policies = fxad.checkpoint_policies
    for policy in (
        policies.dots_saveable,
        policies.checkpoint_dots,
        policies.nothing_saveable,
        policies.save_only_these_names("a", "b"),
    ):
        f = fxad.checkpoint(lambda x: jnp.sin(x @ x).sum(), policy=policy)
        got = fxad.jit(fxad.grad(f))(np.eye(2, dtype=np.float32))
        # d/dx sum(sin(x @ x)) at the identity: 2 cos(1) on the diagonal, 2 cos(0) beside it.
        np.testing.assert_allclose(got, 2 * np.cos(np.eye(2)), atol=1e-6)
    with pytest.raises(ValueError, match="known: nothing_saveable"):
        _ = policies.everything


def test_config_update():
    with fxad.enable_x64(False):
        fxad.config.update("jax_enable_x64", True)
        assert jnp.ones(1).dtype == jnp.float64
        fxad.config.update("jax_enable_x64", False)
        assert jnp.ones(1).dtype == jnp.float32


def test_errors_have_one_home_and_the_names_of_jax() -> None:
    core = importlib.import_module("fxad.core.errors")
    own = {
        n for n, v in vars(core).items() if isinstance(v, type) and v.__module__ == core.__name__
    }
    assert own <= set(fxad.errors.__all__)
    with pytest.raises(fxad.errors.TracerBoolConversionError, match="bool()"):
        fxad.jit(lambda x: 1 if x > 0 else 2)(1.0)
    with pytest.raises(fxad.errors.TracerArrayConversionError, match="fxad.numpy"):
        fxad.jit(np.sin)(np.ones(2, np.float32))
    with pytest.raises(fxad.errors.ConfigError, match="fxad.debug.nans"):
        fxad.config.update("jax_debug_nans", True)


def test_types_for_annotations() -> None:
    from fxad.typing import Array, ArrayLike

    for value in (fxad.numpy.ones(2), np.ones(2), np.float32(1), 1, 2.0, 3j, True):
        assert isinstance(value, ArrayLike)
    assert not isinstance("1", ArrayLike)
    assert Array is fxad.Array


def test_what_is_not_here_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"'pmap': there is one device.*fxad\.vmap"):
        fxad.pmap  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nonsense'$"):
        fxad.nonsense  # noqa: B018
    assert not hasattr(fxad, "shard_map")
