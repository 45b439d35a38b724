"""Where an array lies and what its type is, as JAX's arrays say it.

x.sharding, x.devices(), x.aval
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxad.core.lazy import later
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import Tracer

if TYPE_CHECKING:
    from fxad.api import placement, ported, shaped_array
else:
    placement = later("fxad.api.placement")
    ported = later("fxad.api.ported")
    shaped_array = later("fxad.api.shaped_array")


def devices(self: Array) -> set[Any]:
    """The devices that hold the elements: a set of the one there is. Raises ConcretizationError
    for traced values, which no device holds."""
    if isinstance(self, Tracer):
        raise self._needs_value("devices()")
    return set(ported.devices())


def sharding(self: Array) -> Any:
    """Where the elements are, as a sharding of the one device (`fxad.sharding`): the one that
    `device_put` was given, if any."""
    if not isinstance(self, Concrete):
        return aval(self).sharding
    given = ported.device_of(self)
    sharded = isinstance(given, placement.Sharding)
    return given if sharded else placement.SingleDeviceSharding(ported.Device())


def aval(self: Array) -> Any:
    """Shape, dtype and weakness as a ShapedArray."""
    return shaped_array.aval_of(self)


def is_fully_addressable(self: Array) -> bool:
    """Whether this process has all elements: always."""
    return True


def is_fully_replicated(self: Array) -> bool:
    """Whether every device has all elements: always."""
    return True


def committed(self: Array) -> bool:
    """Whether the array was put on a device on purpose, by `device_put`."""
    return ported.device_of(self) is not None


def addressable_shards(self: Array) -> list[Any]:
    """The array's parts by device: one, the whole."""
    whole = (slice(None),) * len(self.type.shape)
    return [placement.Shard(ported.Device(), whole, 0, self)]


def addressable_data(self: Array, index: int) -> Array:
    """The part on a device of this process: the array."""
    return self


def on_device_size_in_bytes(self: Array) -> int:
    """Bytes of the elements."""
    return self.type.nbytes


def is_ready(self: Array) -> bool:
    """Whether the elements are computed: always."""
    return True


def copy_to_host_async(self: Array) -> None:
    """Does nothing: the elements are in the host's memory."""
