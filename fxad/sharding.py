"""Meshes and shardings of the one device there is, under the names of `jax.sharding`.

>>> from fxad.sharding import NamedSharding, PartitionSpec, make_mesh
>>> NamedSharding(make_mesh((1,), ("batch",)), PartitionSpec("batch")).is_fully_replicated
True
"""

from fxad.api.placement import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    make_single_device_sharding,
    reshard,
    set_mesh,
    use_abstract_mesh,
    with_sharding_constraint,
)

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
    "with_sharding_constraint",
]
