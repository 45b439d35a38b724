"""DLPack: memory shared with NumPy, copies for old consumers, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_api_same import same

import fxad
import fxad.numpy as jnp
from fxad.core.errors import (
    ConcretizationError,
    TypeMismatch,
)


@pytest.fixture(autouse=True)
def wide():
    """NumPy's default dtypes, so that dtypes can be compared."""
    with fxad.enable_x64():
        yield


def test_dlpack_to_numpy_is_shared_and_read_only():
    x = jnp.arange(3)
    seen = np.from_dlpack(x)
    assert not seen.flags.writeable and np.shares_memory(seen, np.asarray(x))
    copied = np.from_dlpack(x, copy=True)
    assert not np.shares_memory(copied, np.asarray(x))
    same(copied, np.arange(3))


def test_dlpack_of_an_old_consumer_is_a_copy():
    x = jnp.arange(3.0)

    class Old:
        def __dlpack__(self, **unused: Any) -> Any:
            return x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    seen = np.from_dlpack(Old())
    assert not np.shares_memory(seen, np.asarray(x))
    for version in (None, (0, 8), (1, 0), (2, 0)):
        for copy in (None, True, False):
            x.__dlpack__(max_version=version, copy=copy, dl_device=(1, 0))


def test_from_dlpack():
    source = np.arange(3, dtype=np.int16)
    copied, shared = jnp.from_dlpack(source), jnp.from_dlpack(source, copy=False)
    source[0] = 7
    same(copied, np.arange(3, dtype=np.int16))
    same(shared, source)
    assert jnp.from_dlpack(copied) is copied
    with pytest.raises(TypeMismatch, match="__dlpack__"):
        jnp.from_dlpack([1, 2])
    with pytest.raises(ConcretizationError):
        fxad.jit(lambda x: x.__dlpack__())(jnp.ones(2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_lacks(dtype):
    """They pass both ways, by either kind of capsule, in any layout, copied or shared."""
    x = jnp.arange(6.0).reshape(2, 3).T.astype(dtype)

    class Other:
        def __init__(self, **asked: Any) -> None:
            self.asked = asked

        def __dlpack__(self, **asked: Any) -> Any:
            return x.__dlpack__(**self.asked)

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    for asked in ({}, {"max_version": (1, 0)}):
        for copy in (None, False):
            seen = jnp.from_dlpack(Other(**asked), copy=copy)
            assert seen.dtype == dtype
            assert seen.tolist() == x.tolist()
    shared = jnp.from_dlpack(Other(max_version=(1, 0)), copy=False)
    assert np.shares_memory(np.asarray(shared), np.asarray(x))


@pytest.mark.peers
def test_dtypes_that_numpy_lacks_with_torch():
    torch = pytest.importorskip("torch")

    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        theirs = torch.arange(6.0).reshape(2, 3).to(dtype)
        ours = jnp.from_dlpack(theirs)
        assert str(dtype) == f"torch.{ours.dtype}"
        assert ours.tolist() == theirs.tolist()
        back = torch.from_dlpack(ours.T)
        assert back.dtype == dtype
        assert back.tolist() == theirs.T.tolist()
