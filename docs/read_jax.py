"""Write down the public names and settings of the installed JAX, which `fxad.as_jax` follows.

python docs/read_jax.py      # rewrites fxad/as_jax/public_names.txt and settings.json;
                             # then docs/generate.py
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

HERE = Path(__file__).parent.parent / "fxad" / "as_jax"
# Modules that other compilers and devices need, tools, and private parts.
LEFT_OUT = tuple(
    f"jax.{name}"
    for name in (
        "_src cloud_tpu_init collect_profile experimental.array_serialization "
        "experimental.colocated experimental.fused "
        "experimental.hijax experimental.jax2tf experimental.mosaic experimental.multihost "
        "experimental.pallas experimental.roofline experimental.scheduling_groups "
        "experimental.source_mapper experimental.topologies experimental.transfer "
        "experimental.sparse. extend.ifrt extend.mlir extend.pallas extend.xla lib tools"
    ).split()
)
# Where names come from that a module only uses itself.
BORROWED = (
    "__future__ _collections_abc _operator abc ast collections collections.abc contextlib "
    "dataclasses enum functools itertools logging operator types typing warnings weakref"
).split()
# Keywords about several devices, and of names of axes that JAX refuses: their defaults are taken.
PLACES = ("out_sharding", "sharding", "spmd_axis_name", "axis_index_groups", "reduce_axes")


def modules() -> Iterator[Any]:
    """JAX itself and its public modules."""
    yield jax
    for found in pkgutil.walk_packages(jax.__path__, "jax."):
        if found.name.startswith(LEFT_OUT) or "._" in found.name:
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:  # of libraries that are not installed
            continue


def public(module: Any) -> list[str]:
    """The names that are a module's own, or that it is meant to hand on."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    return sorted(n for n in names if _own(getattr(module, n, None), f"{module.__name__}.{n}"))


def _own(value: Any, name: str) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__ == name
    home = getattr(value, "__module__", None)
    borrowed = home in BORROWED and hasattr(importlib.import_module(home), name.rpartition(".")[2])
    return not borrowed and name.rpartition(".")[2] != "annotations"


def placed(module: Any, name: str) -> str:
    """The name, and in brackets its keywords that say where arrays lie among several devices."""
    try:
        parameters = inspect.signature(getattr(module, name)).parameters
    except (TypeError, ValueError):
        return name
    found = ",".join(keyword for keyword in PLACES if keyword in parameters)
    return f"{name}({found})" if found else name


def settings() -> dict[str, Any]:
    """The settings of `jax.config` and their defaults."""
    return {
        name: value.value if isinstance(value, enum.Enum) else value
        for name, value in sorted(jax.config.values.items())
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    lines = [f"# JAX {jax.__version__}: made by docs/read_jax.py"]
    lines += sorted(
        f"{module.__name__}: {' '.join(placed(module, n) for n in public(module))}"
        for module in modules()
    )
    names = "\n".join(line for line in lines if not line.endswith(": ")) + "\n"
    (HERE / "public_names.txt").write_text(names)
    (HERE / "settings.json").write_text(json.dumps(settings(), indent=1) + "\n")
