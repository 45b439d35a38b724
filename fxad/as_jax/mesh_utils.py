"""Names of `jax.experimental.mesh_utils`: arrays of devices, of which there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.api.ported import devices as all_devices
from fxad.core.errors import BadArgument

__all__ = ["create_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """The one device as an array of a shape. Raises BadArgument if that is not all ones."""
    found = list(all_devices() if devices is None else devices)
    if math.prod(mesh_shape) != len(found):
        raise BadArgument(
            f"Number of devices {len(found)} must equal the product of mesh_shape "
            f"{tuple(mesh_shape)}"
        )
    mesh = np.empty(tuple(mesh_shape), object)
    mesh.flat[:] = found
    return mesh
