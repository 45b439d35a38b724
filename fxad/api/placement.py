"""Where arrays lie, in JAX's terms: meshes and shardings of the one device there is.

mesh = make_mesh((1,), ("batch",))
params = fxad.device_put(params, NamedSharding(mesh, PartitionSpec("batch")))

Everything here is accepted where JAX code says where an array should lie. `device_put` notes the
place it was given for `x.sharding`, `set_mesh` the mesh for `get_mesh`; nothing else changes. A
mesh of more than one device is an error when it is made.
"""

from __future__ import annotations

import copy
import enum
import math
import threading
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from fxad.api.ported import MEMORY_KINDS, Device, checked_memory_kind, devices
from fxad.core.dtypes import numerics
from fxad.core.errors import BadArgument
from fxad.core.record import record
from fxad.trace.tracer import active_levels

_ONE = "there is one device, the CPU; use fxad.vmap for lanes"


class AxisType(enum.Enum):
    """Who decides how an axis of a mesh is used. With one device they mean the same."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class PartitionSpec(tuple[Any, ...]):
    """For each axis of an array the axis of a mesh (or a tuple of them) it lies along, or None."""

    __slots__ = ()

    def __new__(cls, *partitions: Any, unreduced: Any = (), reduced: Any = ()) -> Self:
        if unreduced or reduced:
            raise BadArgument(f"PartitionSpec: nothing is left unreduced, since {_ONE}")
        return super().__new__(cls, partitions)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"


class AbstractMesh:
    """Names and lengths of the axes of a mesh, whose product is 1."""

    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None
    ) -> None:
        if len(axis_sizes) != len(axis_names):
            raise BadArgument(
                f"a mesh needs a name for each axis: shape {tuple(axis_sizes)}, "
                f"names {tuple(axis_names)}"
            )
        if math.prod(axis_sizes) != 1:
            raise BadArgument(f"a mesh of shape {tuple(axis_sizes)} needs several devices: {_ONE}")
        self.axis_sizes = tuple(axis_sizes)
        self.axis_names = tuple(axis_names)
        self.axis_types = tuple(axis_types or (AxisType.Auto,) * len(self.axis_names))
        self._hash: int | None = None

    @property
    def shape(self) -> MappingProxyType[str, int]:
        """The length of each axis by its name."""
        return MappingProxyType(dict(zip(self.axis_names, self.axis_sizes, strict=True)))

    @property
    def size(self) -> int:
        """The number of devices: 1."""
        return 1

    @property
    def empty(self) -> bool:
        """Whether the mesh has no axes."""
        return not self.axis_names

    @property
    def are_all_axes_explicit(self) -> bool:
        return not self.empty and set(self.axis_types) == {AxisType.Explicit}

    @property
    def are_all_axes_auto(self) -> bool:
        return set(self.axis_types) <= {AxisType.Auto}

    def _key(self) -> tuple[Any, ...]:
        return self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._key() == self._key()

    def __hash__(self) -> int:
        if self._hash is None:  # asked for at each eager call while it is set
            self._hash = hash(self._key())
        return self._hash

    def __repr__(self) -> str:
        sizes, names = self.axis_sizes, self.axis_names
        return (
            f"{type(self).__name__}(axis_sizes={sizes}, axis_names={names}, "
            f"axis_types={self.axis_types})"
        )


class Mesh(AbstractMesh):
    """An array of devices whose axes have names. A `with` block of it changes nothing.

    Raises BadArgument for more than one device, or without a name for each axis.
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        self.devices = _as_array(devices)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        super().__init__(self.devices.shape, names, axis_types)

    @property
    def device_ids(self) -> np.ndarray:
        return np.vectorize(lambda device: device.id, otypes=[int])(self.devices)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to undo."""


def _as_array(devices: Any) -> np.ndarray:
    found = np.asarray(devices, object)
    if not all(isinstance(device, Device) for device in found.flat):
        raise BadArgument(f"Mesh: expected devices of fxad.devices(), got {devices!r}")
    return found


class Sharding:
    """Where an array lies: on the device there is, as a whole."""

    _memory_kind: str | None = None

    @property
    def memory_kind(self) -> str:
        """The kind of memory that was asked for; there is one, which all kinds name."""
        return self._memory_kind or MEMORY_KINDS[0]

    def with_memory_kind(self, kind: str) -> Self:
        """The same with another kind of memory. Raises BadArgument for an unknown kind."""
        made = copy.copy(self)
        made._memory_kind = checked_memory_kind(kind)
        return made

    @property
    def device_set(self) -> set[Device]:
        return set(devices())

    addressable_devices = device_set

    @property
    def num_devices(self) -> int:
        return 1

    @property
    def is_fully_replicated(self) -> bool:
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return True

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a device's part: the whole."""
        return tuple(global_shape)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether arrays of `ndim` axes lie alike under both: always."""
        return isinstance(other, Sharding)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Any]:
        """The part of an array that each device holds: the whole."""
        return {device: (slice(None),) * len(global_shape) for device in devices()}

    addressable_devices_indices_map = devices_indices_map


class NamedSharding(Sharding):
    """An array over a mesh. Raises BadArgument where the spec names an axis the mesh lacks."""

    def __init__(
        self,
        mesh: AbstractMesh,
        spec: PartitionSpec | tuple[Any, ...],
        *,
        memory_kind: str | None = None,
    ) -> None:
        named = [n for part in spec for n in (part if isinstance(part, tuple) else (part,))]
        if unknown := [n for n in named if isinstance(n, str) and n not in mesh.axis_names]:
            raise BadArgument(
                f"NamedSharding: the mesh has axes {mesh.axis_names}, none called {unknown[0]!r}"
            )
        self.mesh = mesh
        self.spec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        self._memory_kind = checked_memory_kind(memory_kind)

    def update(
        self,
        *,
        mesh: AbstractMesh | None = None,
        spec: Any = None,
        memory_kind: str | None = None,
    ) -> NamedSharding:
        """The same with another mesh, spec or kind of memory."""
        return NamedSharding(
            self.mesh if mesh is None else mesh,
            self.spec if spec is None else spec,
            memory_kind=memory_kind or self._memory_kind,
        )

    def _key(self) -> tuple[Any, ...]:
        return self.mesh, self.spec, self.memory_kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind={self.memory_kind})"


class SingleDeviceSharding(Sharding):
    """An array on one device."""

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self._device = device
        self._memory_kind = checked_memory_kind(memory_kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.memory_kind == other.memory_kind

    def __hash__(self) -> int:
        return hash((SingleDeviceSharding, self.memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device}, memory_kind={self.memory_kind})"


@record
class Shard:
    """The part of an array that a device holds: the whole."""

    device: Device
    index: tuple[slice, ...]
    replica_id: int
    data: Any


NOWHERE = AbstractMesh((), ())


def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """`SingleDeviceSharding(device)`."""
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: Any = None,
    *,
    devices: Any = None,
) -> Mesh:
    """A mesh of the one device. Raises BadArgument if `axis_shapes` is not all ones."""
    axis_types = axis_types or (AxisType.Explicit,) * len(axis_shapes)
    if math.prod(axis_shapes) != 1:
        raise BadArgument(f"make_mesh: shape {tuple(axis_shapes)} needs several devices: {_ONE}")
    found = np.empty(tuple(axis_shapes), object)
    found.flat[0] = Device()
    return Mesh(found, axis_names, axis_types)


class set_mesh:
    """Sets the mesh that `get_mesh` and `get_abstract_mesh` give in this thread: from now on, or
    inside a `with` block. None sets none. Jitted functions are traced again under another mesh;
    nothing else changes.

    Raises BadArgument for what is no Mesh, and in a function that is being traced.
    """

    def __init__(self, mesh: Mesh | None) -> None:
        if not (mesh is None or isinstance(mesh, Mesh)):
            raise BadArgument(f"set_mesh: Expected mesh of type Mesh, got {type(mesh)}")
        _check_untraced("set_mesh")
        self.mesh = mesh
        self._before = _set.mesh, numerics.mesh
        _set.mesh = mesh
        numerics.set(mesh=None if mesh is None else mesh.abstract_mesh)

    def __enter__(self) -> Mesh | None:
        return self.mesh

    def __exit__(self, *_: object) -> None:
        _set.mesh, mesh = self._before
        numerics.set(mesh=mesh)


class use_abstract_mesh:
    """`with use_abstract_mesh(mesh):` sets what `get_abstract_mesh` gives, inside and in this
    thread. Raises BadArgument for what is no AbstractMesh."""

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise BadArgument(f"use_abstract_mesh: Expected an AbstractMesh, got {type(mesh)}")
        self.mesh = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
        self._before: list[AbstractMesh | None] = []

    def __enter__(self) -> AbstractMesh:
        self._before.append(numerics.mesh)
        numerics.set(mesh=self.mesh)
        return self.mesh

    def __exit__(self, *_: object) -> None:
        numerics.set(mesh=self._before.pop())


class _Set(threading.local):
    mesh: Mesh | None = None


_set = _Set()


def _check_untraced(name: str) -> None:
    if active_levels():
        raise BadArgument(
            f"`{name}` can only be used outside of functions that are traced; inside there is "
            "`get_abstract_mesh`"
        )


def get_abstract_mesh() -> AbstractMesh:
    """The mesh that is set, or one without axes."""
    return numerics.mesh or NOWHERE


def get_mesh() -> Mesh:
    """The mesh that is set, or one without axes. Raises BadArgument in a function that is being
    traced."""
    _check_untraced("get_mesh")
    return _set.mesh or make_mesh((), ())


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The tree itself. Raises BadArgument for what is no place."""
    check_places("reshard", out_shardings)
    return xs


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree itself. Raises BadArgument for what is no place."""
    check_places("with_sharding_constraint", shardings)
    return x


def check_places(name: str, places: Any) -> None:
    """Raise BadArgument unless everything in a tree says where an array may lie: a device, a
    sharding, a PartitionSpec or None."""
    match places:
        case None | Device() | Sharding() | PartitionSpec():
            return
        case dict():
            values = list(places.values())
        case tuple() | list():
            values = list(places)
        case _:
            raise BadArgument(f"{name}: expected a sharding or a device, got {places!r}")
    for value in values:
        check_places(name, value)
