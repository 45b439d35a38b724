"""`exp_p`, `dot_general_p` and others: fxad's ops under the names of JAX's primitives."""

from __future__ import annotations

from fxad.api.jaxpr import Primitive, by_jax_name
from fxad.as_jax import primitives

# Calls in JAX's programs. In fxad's they are `jit_p`: no equation has one of these, and to bind one
# is an error.
call_p = primitives.Primitive("call")
closed_call_p = primitives.Primitive("closed_call")


def __getattr__(name: str) -> Primitive:
    found = by_jax_name(name) if name.endswith("_p") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
