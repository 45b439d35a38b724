"""Parameters of equations under JAX's names: `y` of integer_pow, `slice_sizes` of dynamic_slice.

viewed("integer_pow", {"n": 3})    # {"y": 3}
plain("integer_pow", {"y": 3})     # {"n": 3}

What is not in these tables is fxad's own in name and form. JAX's parameters that have no meaning
here (`precision`, `unroll`, `sharding`) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By op: fxad's name and JAX's, for what is the same otherwise.
RENAMED: dict[str, dict[str, str]] = {
    "bitcast": {"dtype": "new_dtype"},
    "broadcast": {"axes": "broadcast_dimensions"},
    "call": {"program": "jaxpr"},
    "checkpoint": {"program": "jaxpr"},
    "concatenate": {"axis": "dimension"},
    "convert": {"dtype": "new_dtype"},
    "custom_jvp": {"program": "call_jaxpr"},
    "custom_vjp": {"program": "call_jaxpr"},
    "custom_vmap": {"program": "call"},
    "dynamic_slice": {"sizes": "slice_sizes"},
    "integer_pow": {"n": "y"},
    "iota": {"axis": "dimension"},
    "qr": {"complete": "full_matrices"},
    "reshape": {"shape": "new_sizes"},
    "reverse": {"axes": "dimensions"},
    "scan": {"body": "jaxpr", "consts": "num_consts", "carry": "num_carry"},
    "slice": {"start": "start_indices", "stop": "limit_indices", "step": "strides"},
    "sort": {"axis": "dimension", "keys": "num_keys"},
    "while": {
        "cond": "cond_jaxpr",
        "body": "body_jaxpr",
        "cond_consts": "cond_nconsts",
        "body_consts": "body_nconsts",
    },
}
_BACK = {op: {theirs: own for own, theirs in names.items()} for op, names in RENAMED.items()}


def viewed(op: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an op of this name as JAX has them."""
    found = dict(params)
    match op:
        case "dot":
            found["dimension_numbers"] = found.pop("contract"), found.pop("batch")
            found["preferred_element_type"] = found.pop("dtype")
        case "pad":
            found["padding_config"] = tuple(
                zip(found.pop("low"), found.pop("high"), found.pop("interior"), strict=True)
            )
        case "argmax" | "argmin":
            found["axes"], found["index_dtype"] = (found.pop("axis"),), found.pop("dtype")
        case "slice":
            found["step"] = None if set(found["step"]) <= {1} else found["step"]
    names = RENAMED.get(op, {})
    return {names.get(name, name): value for name, value in found.items()}


def plain(op: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The other way around. fxad's own names may be given as well."""
    names = _BACK.get(op, {})
    found = {names.get(name, name): value for name, value in params.items()}
    if op == "dot" and "dimension_numbers" in found:
        found["contract"], found["batch"] = found.pop("dimension_numbers")
        found["dtype"] = found.pop("preferred_element_type")
    elif op == "pad" and "padding_config" in found:
        config = found.pop("padding_config")
        found["low"], found["high"], found["interior"] = (
            tuple(c[i] for c in config) for i in range(3)
        )
    elif op in ("argmax", "argmin") and "axes" in found:
        (found["axis"],), found["dtype"] = found.pop("axes"), found.pop("index_dtype")
    elif op == "call":
        found.pop("name", None)  # that of its program
    elif op == "slice" and found["step"] is None:
        found["step"] = (1,) * len(found["start"])
    return found
