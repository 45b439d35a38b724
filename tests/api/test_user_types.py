"""A user's program under `mypy --strict`: every public name is exported, and has a type to use."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]
NAMESPACES = (
    "fxad",
    "fxad.custom_batching",
    "fxad.custom_derivatives",
    "fxad.debug",
    "fxad.errors",
    "fxad.flatten_util",
    "fxad.image",
    "fxad.lax",
    "fxad.lax.linalg",
    "fxad.nn",
    "fxad.nn.initializers",
    "fxad.numpy",
    "fxad.numpy.fft",
    "fxad.numpy.linalg",
    "fxad.random",
    "fxad.scipy",
    "fxad.scipy.cluster.vq",
    "fxad.scipy.fft",
    "fxad.scipy.integrate",
    "fxad.scipy.interpolate",
    "fxad.scipy.linalg",
    "fxad.scipy.ndimage",
    "fxad.scipy.optimize",
    "fxad.scipy.signal",
    "fxad.scipy.sparse.linalg",
    "fxad.scipy.spatial.transform",
    "fxad.scipy.special",
    "fxad.scipy.stats",
    "fxad.tree",
    "fxad.tree_util",
    "fxad.typing",
)
PROGRAM = """
from dataclasses import dataclass

import fxad
import fxad.numpy as jnp
from fxad import lax, nn, random, tree
from fxad.scipy import special


@tree.register_dataclass
@dataclass
class Linear:
    w: fxad.Array
    b: jnp.ndarray

    def __call__(self, x: fxad.Array) -> fxad.Array:
        return nn.relu(x @ self.w + self.b)


def init(key: fxad.Array, sizes: list[int]) -> list[Linear]:
    keys = random.split(key, len(sizes) - 1)
    return [
        Linear(random.normal(k, (n, m)) / jnp.sqrt(n), jnp.zeros(m))
        for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def loss(model: list[Linear], x: fxad.Array, y: fxad.Array) -> fxad.Array:
    for layer in model:
        x = layer(x)
    return jnp.mean((x - y) ** 2)


@fxad.jit
def step(model: list[Linear], x: fxad.Array, y: fxad.Array) -> tuple[list[Linear], fxad.Array]:
    value, grads = fxad.value_and_grad(loss)(model, x, y)
    return tree.map(lambda p, g: p - 0.1 * g, model, grads), value


def body(carry: fxad.Array, x: fxad.Array) -> tuple[fxad.Array, fxad.Array]:
    return carry + x, special.gammaln(carry)


@fxad.custom_jvp
def f(x: fxad.Array) -> fxad.Array:
    return jnp.sin(x)


@f.defjvp
def f_jvp(primals: tuple[fxad.Array], tangents: tuple[fxad.Array]) -> tuple[fxad.Array, fxad.Array]:
    return f(*primals), jnp.cos(primals[0]) * tangents[0]


model = init(random.key(0), [3, 4, 1])
x, y = jnp.ones((8, 3)), jnp.zeros((8, 1))
model, value = step(model, x, y)
total, sums = lax.scan(body, jnp.float32(1), x[:, 0])
rows: fxad.Array = fxad.vmap(fxad.grad(lambda v: jnp.sum(v**2)))(x)
leaves, structure = tree.flatten(model)
print(value, total, sums.shape, rows.dtype, len(tree.unflatten(structure, leaves)))
print(jnp.linalg.norm(x), fxad.hessian(f)(1.0))
"""


def _checked(source: str, directory: Path) -> str:
    """What mypy says of a program that imports an installed fxad."""
    path = directory / "program.py"
    path.write_text(source)
    flags = ["--strict", "--follow-imports=silent", "--no-error-summary"]
    flags.append(f"--cache-dir={os.devnull}")  # none is kept
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, str(path)],
        capture_output=True,
        text=True,
        cwd=directory,  # where no settings of ours are
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    return done.stdout + done.stderr


def _public(module: types.ModuleType) -> list[str]:
    """What a module offers: its __all__, or the functions and classes that it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    values = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    if hasattr(module, "__path__"):
        return [n for n, v in values.items() if isinstance(v, types.ModuleType)]
    return [n for n, v in values.items() if getattr(v, "__module__", None) == module.__name__]


@pytest.mark.slow
def test_a_strict_checker_sees_every_public_name(tmp_path: Path) -> None:
    """And no other one; and nothing is wrong with a program that uses what most programs use."""
    lines = [f"import {name}" for name in NAMESPACES]
    for namespace in NAMESPACES:
        names = _public(importlib.import_module(namespace))
        assert names, namespace
        lines += [f"{namespace}.{name}" for name in names]
    count = len(lines)
    missing = [f"{name}.no_such_name" for name in ("fxad", "fxad.lax", "fxad.numpy")]
    said = _checked("\n".join([*lines, *missing]) + PROGRAM, tmp_path).splitlines()
    wanted = [f"program.py:{count + i}: error: Module has no attribute" for i in (1, 2, 3)]
    assert len(said) == 3, "\n".join(said)
    assert all(w in s for w, s in zip(wanted, said, strict=True)), "\n".join(said)


def test_the_program_runs() -> None:
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, "program", "exec"), namespace)
    assert len(namespace["model"]) == 2
