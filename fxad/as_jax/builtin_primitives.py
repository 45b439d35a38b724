"""`exp_p`, `dot_general_p` and others: fxad's ops under the names of JAX's primitives."""

from __future__ import annotations

from fxad.api.jaxpr import Primitive, by_jax_name


def __getattr__(name: str) -> Primitive:
    found = by_jax_name(name) if name.endswith("_p") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
