"""Trees of arrays in safetensors files, checked against a spec while they are read.

write_tree(Path("model.safetensors"), params)
params = read_tree([Path("model.safetensors")], spec(config))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad_nn.errors import CheckpointError, did_you_mean
from fxad_nn.spec import Leaf, from_named, named_leaves

try:
    import safetensors
    import safetensors.numpy
except ImportError:
    safetensors = None  # type: ignore[assignment]


def require_library() -> None:
    """CheckpointError where the safetensors library is not installed."""
    if safetensors is None:
        raise CheckpointError("checkpoints need safetensors: pip install 'fxad[nn]'")


def write_tree(path: Path, tree: Any) -> None:
    """Write every leaf under its dotted name; raises OSError where the disk fails.

    The arrays are made contiguous first: safetensors writes the wrong bytes of a strided one.
    """
    require_library()
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in named_leaves(tree)}
    try:
        safetensors.numpy.save_file(arrays, path)
    except safetensors.SafetensorError as error:
        raise OSError(f"writing {path}: {error}") from error


def stored(paths: list[Path]) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """(name, reader) of every tensor in the files; unreadable files are a CheckpointError."""
    require_library()
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        try:
            file = safetensors.safe_open(path, framework="np")
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} ({path.stat().st_size} bytes) is truncated or no safetensors file: {error}"
            ) from error
        with file:
            for name in file.keys():  # noqa: SIM118 - a file, not a dict
                yield name, partial(file.get_tensor, name)


def read_tree(paths: list[Path], spec: Any) -> Any:
    """The arrays of a tree like `spec`, every name, shape and dtype checked."""
    wanted = dict(named_leaves(spec))
    where = ", ".join(map(str, paths))
    found: dict[str, Any] = {}
    for name, read in stored(paths):
        if name not in wanted:
            raise CheckpointError(
                f"{where}: {name!r} is no parameter of this model{did_you_mean(name, wanted)}"
            )
        found[name] = checked(read(), wanted[name], f"{where}: {name}")
    require_all(found, wanted, where)
    return from_named(spec, found)


def checked(array: np.ndarray, leaf: Leaf, where: str, dtype: str | None = None) -> Any:
    """`array` as an fxad array, if it has the leaf's shape and dtype (or any, made `dtype`)."""
    if array.shape != leaf.shape:
        raise CheckpointError(f"{where} has shape {array.shape}, the model needs {leaf.shape}")
    if dtype is None and str(array.dtype) != leaf.dtype:
        raise CheckpointError(f"{where} is {array.dtype}, the model needs {leaf.dtype}")
    return jnp.asarray(array, dtype)


def require_all(found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """CheckpointError naming what is missing."""
    missing = sorted(set(wanted) - set(found))
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise CheckpointError(f"{where}: {len(missing)} parameters are missing: {shown}")
