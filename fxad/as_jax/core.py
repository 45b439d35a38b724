"""Names of `jax.core` and `jax.extend.core`."""

from __future__ import annotations

from fxad.api.shaped_array import AbstractValue, ShapedArray
from fxad.api.shaped_array import aval_of as get_aval
from fxad.trace.tracer import Tracer, ensure_compile_time_eval

__all__ = ["AbstractValue", "ShapedArray", "Tracer", "ensure_compile_time_eval", "get_aval"]
