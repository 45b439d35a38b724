"""Every call that JAX's signatures allow is allowed here: the parameters of every public function
beside those of the installed JAX (peers)."""

from __future__ import annotations

import importlib
import inspect

import pytest

MODULES = [
    "",
    "custom_batching",
    "custom_derivatives",
    "debug",
    "dtypes",
    "experimental.checkify",
    "flatten_util",
    "image",
    "lax",
    "lax.linalg",
    "nn",
    "nn.initializers",
    "numpy",
    "numpy.fft",
    "numpy.linalg",
    "profiler",
    "random",
    "scipy",
    "scipy.cluster.vq",
    "scipy.fft",
    "scipy.integrate",
    "scipy.interpolate",
    "scipy.linalg",
    "scipy.ndimage",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse.linalg",
    "scipy.spatial.transform",
    "scipy.special",
    "scipy.stats",
    "sharding",
    "tree",
    "tree_util",
]

ONE_DEVICE = "arrays lie on the only device"
# Parameters of JAX that no function here takes, and why: a TypeError names the keyword.
NOWHERE = {
    "abstract_device": ONE_DEVICE,
    "accuracy": "functions have one accuracy",
    "axis_index_groups": "lanes of vmap are one group",
    "concrete": "JAX refuses it",
    "is_ref": "there are no mutable arrays",
    "manual_axis_type": ONE_DEVICE,
    "out_sharding": ONE_DEVICE,
    "reduce_axes": "JAX takes () alone",
    "sharding": ONE_DEVICE,
    "spmd_axis_name": ONE_DEVICE,
    "sum_match": ONE_DEVICE,
    "to": ONE_DEVICE,
}
UFUNC = "two arrays; JAX refuses out= and where= when it is called"
# Functions that differ otherwise, and why.
DIFFERENT = {
    "checkpoint": "static arguments are named by number",
    "experimental.checkify.Error": "its fields are its own",
    "lax.conv_transpose": "padding by name counts a dilated kernel at its full length",
    "lax.random_gamma_grad": "JAX shows (*args)",
    "lax.polygamma": "one function with scipy.special.polygamma, whose order is called n",
    "no_tracing": "a block in which jitted functions may not be traced; JAX's is a switch",
    "numpy.array": "JAX shows (*args, **kwargs)",
    "numpy.fromfile": "JAX refuses to read files",
    "numpy.set_printoptions": "NumPy's own",
    "numpy.ufunc": "frompyfunc makes them; JAX's takes the functions of its own folds",
    **{
        f"numpy.{name}": UFUNC
        for name in (
            "add bitwise_and bitwise_or bitwise_xor logaddexp logaddexp2 logical_and logical_or "
            "logical_xor maximum minimum multiply negative subtract"
        ).split()
    },
}


def modules():
    pytest.importorskip("jax")
    for name in MODULES:
        own = name.removeprefix("experimental.")
        ours = importlib.import_module(f"fxad.{own}".rstrip("."))
        yield name, ours, importlib.import_module(f"jax.{name}".rstrip("."))


def public(module):
    names = getattr(module, "__all__", None) or dir(module)
    return [n for n in names if not n.startswith("_") and callable(getattr(module, n, None))]


def signature(function):
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some classes and C functions have none
        return None


def differences(ours, theirs):
    """What calls of the one signature the other would not bind alike."""
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    mine, wanted = list(ours.parameters.values()), list(theirs.parameters.values())
    rest = {p.kind for p in mine}
    found = []
    places = [p for p in mine if p.kind in positional]
    names = {p.name for p in mine if p.kind not in (positional[0], p.VAR_POSITIONAL)}
    for i, p in enumerate(p for p in wanted if p.kind in positional):
        if p.name in NOWHERE:
            continue
        if i >= len(places):
            if p.VAR_POSITIONAL not in rest:
                found.append(f"{p.name} at place {i} is missing")
        elif p.kind is positional[1] and places[i].name != p.name:
            found.append(f"{p.name} at place {i} is {places[i].name}")
    for p in wanted:
        named = p.kind in (positional[1], p.KEYWORD_ONLY) and p.VAR_KEYWORD not in rest
        if named and p.name not in NOWHERE and p.name not in names:
            found.append(f"{p.name}= is missing")
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.kind not in rest:
            found.append(f"*{p.name} is missing")
    return found


def compared():
    for name, ours, theirs in modules():
        for member in public(ours):
            other = getattr(theirs, member, None)
            a, b = signature(getattr(ours, member)), signature(other) if callable(other) else None
            if a is not None and b is not None:
                yield f"{name}.{member}".lstrip("."), differences(a, b)


@pytest.mark.peers
def test_signatures_are_those_of_jax():
    wrong = {name: found for name, found in compared() if found and name not in DIFFERENT}
    assert not wrong, "\n".join(f"{n}: {'; '.join(found)}" for n, found in wrong.items())


@pytest.mark.peers
def test_the_table_of_differences_holds_nothing_else():
    found = {name for name, what in compared() if what}
    assert set(DIFFERENT) <= found
