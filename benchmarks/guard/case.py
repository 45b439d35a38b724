"""What a case is: something to call again and again, and its program.

Case(lambda: jitted(jnp.exp, normal(1 << 17)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp

Run = Callable[[], object]


@dataclass(frozen=True)
class Built:
    """A case ready to run. lowered: its program before it is compiled, None where there is none."""

    run: Run
    lowered: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Case:
    """amount: operations or bytes of a call, and ceiling what they are a share of: "reading"; the
    dtype of the factors, for multiply-adds of such on registers; or "". peers: name -> builds a
    call that does the same."""

    build: Callable[[], Built]
    ceiling: str = ""
    amount: float = 0.0
    peers: Mapping[str, Callable[[], Run]] = field(default_factory=dict)


def jitted(function: Callable[..., Any], *args: Any) -> Built:
    """Calls of a jitted function with the same arguments."""
    compiled = fxad.jit(function)
    return Built(lambda: compiled(*args), lambda: compiled.lower(*args))


def normal(*shape: int, dtype: str = "float32") -> Any:
    """Standard normal numbers, the same every time; large arrays repeat the first million."""
    size = int(np.prod(shape))
    drawn = np.random.default_rng(0).standard_normal(min(size, 1_000_003), dtype=np.float32)
    return jnp.asarray(np.resize(drawn, shape)).astype(dtype)


def uniform(low: float, high: float, *shape: int) -> Any:
    """Numbers between two, the same every time."""
    return jnp.asarray(np.random.default_rng(0).uniform(low, high, shape).astype(np.float32))
