"""The Python array API beside its functions: what this namespace offers, devices, DLPack.

info = fxad.numpy.__array_namespace_info__()
info.default_dtypes()["real floating"]        # float32, or float64 under enable_x64
from_dlpack(torch_tensor)                     # a copy; copy=False shares the memory

There is one device, "cpu": it holds every Array between calls.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ConcretizationError, TypeMismatch
from fxad.core.lazy import later
from fxad.numpy.core import check_device
from fxad.numpy.data_types import isdtype
from fxad.numpy.dlpack_types import exported, imported
from fxad.trace.array import Array, Concrete

if TYPE_CHECKING:
    from fxad.api import ported
else:
    ported = later("fxad.api.ported")

__all__ = ["can_cast", "from_dlpack"]

VERSION = "2025.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)

# ---------------------------------------------------------------- methods of arrays


def array_namespace(self: Array, /, *, api_version: str | None = None) -> Any:
    """`fxad.numpy`. Raises BadArgument for a version of the standard it does not know."""
    if api_version not in (None, *_VERSIONS):
        raise BadArgument(
            f"__array_namespace__: unknown version {api_version!r} of the array API; known: "
            f"{', '.join(_VERSIONS)}"
        )
    return sys.modules[__package__]


def device(self: Array) -> ported.Device:
    """Where the elements are: the only device."""
    return ported.devices()[0]


def to_device(self: Array, device: Any, /, *, stream: Any = None) -> Array:
    """The array itself: there is one device. Raises BadArgument for another one."""
    check_device(device, "to_device")
    if stream is not None:
        raise BadArgument(f"to_device: the cpu has no streams, got stream={stream!r}")
    return self


def dlpack_device(self: Array) -> tuple[int, int]:
    """DLPack's number of the device: (1, 0), the CPU."""
    return 1, 0


def dlpack(
    self: Array,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule for `from_dlpack` of another library.

    Arrays are immutable, and only consumers of version 1.0 and later know read-only memory: others
    get a copy, or, if they ask for copy=False, memory that they must not write to. Raises
    BufferError for dtypes that DLPack does not have and for another device.
    """
    if not isinstance(self, Concrete):
        raise ConcretizationError.during("__dlpack__()", str(self.type))
    versioned = max_version is not None and max_version[0] >= 1
    data = np.asarray(self) if versioned else self.data
    if copy or (copy is None and not versioned):
        data = data.copy()
    return exported(data, stream=stream, max_version=max_version, dl_device=dl_device)


# ---------------------------------------------------------------- functions


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The array of another library, in its own dtype.

    Its memory is copied, since others may write to it; copy=False shares it.

    >>> import numpy as np
    >>> jnp.from_dlpack(np.arange(3, dtype=np.float32))
    Array([0., 1., 2.], dtype=float32)
    """
    check_device(device, "from_dlpack")
    if isinstance(x, Array):
        return Concrete(np.array(np.asarray(x)), x.weak) if copy else x
    if not hasattr(x, "__dlpack__"):
        raise TypeMismatch(
            f"from_dlpack: {type(x).__name__} has no __dlpack__ method; try fxad.numpy.asarray"
        )
    data = imported(x)
    dt.canonicalize(data.dtype, explicit=True)
    return Concrete(data if copy is False else data.copy())


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether every value of a dtype (or of an array's) can be held by another (NumPy's table).

    >>> jnp.can_cast(jnp.int32, jnp.int64), jnp.can_cast(jnp.float32, jnp.int32)
    (True, False)
    """
    source, target = (
        dt.canonicalize(d if isinstance(d, type) else getattr(d, "dtype", d), explicit=True)
        for d in (from_, to)
    )
    kind: Any = casting
    return bool(np.can_cast(source, target, kind))


class NamespaceInfo:
    """What `__array_namespace_info__()` returns (array API)."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """What depends on values works outside `jit`, where they are known."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> ported.Device:
        """The one device."""
        return ported.devices()[0]

    def devices(self) -> list[ported.Device]:
        """All devices."""
        return ported.devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of results of which nothing else is said: 32-bit, 64-bit under x64."""
        check_device(device, "default_dtypes")
        return {
            "real floating": dt.default_float(),
            "complex floating": dt.default_complex(),
            "integral": dt.default_int(),
            "indexing": dt.default_int(),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The standard's dtypes by name, all or of a kind (see `isdtype`)."""
        check_device(device, "dtypes")
        return {
            name: dtype for name, dtype in _STANDARD.items() if kind is None or isdtype(dtype, kind)
        }


_STANDARD = {
    d.name: d
    for d in dt.all_dtypes
    if not dt.is_float(d) or d in (dt.float32, dt.float64)  # the standard knows no narrow floats
}


def namespace_info() -> NamespaceInfo:
    """What this namespace offers: devices, dtypes and capabilities (array API)."""
    return NamespaceInfo()
