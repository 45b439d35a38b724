"""Names that code written for JAX expects and that need nothing done here: one device, the host.

params = device_put(params)
with named_scope("attention"): ...
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numpy as np

from fxad.api.naming import wraps
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, DeviceError, TypeMismatch
from fxad.core.record import record
from fxad.trace import location
from fxad.trace.array import Concrete, kept
from fxad.trace.convert import to_value

_ONE = "there is one device, the CPU, and `fxad.vmap` for lanes"
_LIST = "docs/from-jax.md lists what is missing"
NOT_HERE = {  # names of `jax`, and what to do without them
    "default_device": _ONE,
    "experimental": _LIST,
    "export": _LIST,
    "image": _LIST,
    "log_compiles": "`fxad.debug.explain_retrace(f)(*args)` says why f is traced again",
    "pmap": _ONE,
    "shard_map": _ONE,
}

F = TypeVar("F", bound=Callable[..., Any])


def device_put(
    x: Any,
    device: Any = None,
    *,
    src: Any = None,
    donate: bool = False,
    may_alias: bool | None = None,
) -> Any:
    """The tree with its leaves as Arrays (copied from NumPy arrays).

    `device` may be what `devices()` gives or a sharding (`fxad.sharding`), for all leaves or a
    tree with one for each: arrays say so as `x.sharding`. The others are hints. Raises BadArgument
    for the name of a device, and DonatedError for an array whose memory was given away.

    >>> import numpy as np
    >>> fxad.device_put({"a": np.ones(2, np.float32)})
    {'a': Array([1., 1.], dtype=float32)}
    """
    for place in (device, src):
        if isinstance(place, str):
            raise BadArgument(f"device_put: expected a device, got {place!r}; see fxad.devices()")
    leaves, tree = pytree.flatten(x)
    given = pytree.broadcast_prefix(device, x, is_leaf=_is_device)
    return tree.unflatten([_put(leaf, to) for leaf, to in zip(leaves, given, strict=True)])


def _is_device(device: Any) -> bool:
    return device is None or isinstance(device, Device) or hasattr(device, "device_set")


def _put(leaf: Any, device: Any) -> Any:
    if not _is_device(device):
        raise BadArgument(f"device_put: expected a device or a sharding, got {device!r}")
    value = to_value(leaf)
    if not isinstance(value, Concrete):
        return kept(value)
    data = value.data  # raises if it is gone
    made = kept(value)
    if device is None:
        return made
    if made is leaf:  # the same memory, under a device of its own
        made = Concrete.of(data, made.type, made.weak)
    key = id(made)
    _devices[key] = weakref.ref(made, lambda _: _devices.pop(key, None)), device
    return made


# What arrays were put on, by their id: they have no attribute for it.
_devices: dict[int, tuple[weakref.ref[Any], Any]] = {}


def device_of(array: Any) -> Any:
    """The device or sharding that `device_put` was given for an array, or None."""
    return _devices.get(id(array), (None, None))[1]


def device_get(x: Any) -> Any:
    """The tree with its Arrays as read-only NumPy arrays; traced values and typed random keys as
    they are.

    >>> type(fxad.device_get(jnp.ones(2)))
    <class 'numpy.ndarray'>
    """

    def got(leaf: Any) -> Any:
        return np.asarray(leaf) if isinstance(leaf, Concrete) and leaf.dtype != dt.key else leaf

    return pytree.map(got, x)


def block_until_ready(x: Any) -> Any:
    """The tree itself: results are ready when a call returns.

    >>> fxad.block_until_ready({"a": jnp.ones(2)})
    {'a': Array([1., 1.], dtype=float32)}
    """
    return x


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Inside, equations are said to be in this scope, and so are their derivatives: a section of a
    program's text, and a part of the place that profiles and messages give
    (`model.py:12 in attention`). Raises TypeMismatch for a name that is no string.

    >>> def f(x):
    ...     with fxad.named_scope("scale"):
    ...         return 2 * x
    >>> "scale" in str(fxad.make_ir(f)(1.0))
    True
    """
    if not isinstance(name, str):
        raise TypeMismatch(f"named_scope: the name must be a string, not {name!r}")
    with location.scope(name):
        yield


def named_call(fun: F, *, name: str | None = None) -> F:
    """The function in a `named_scope` of its name, or of this one.

    >>> halve = fxad.named_call(lambda x: x / 2, name="halve")
    >>> halve(3.0)
    1.5
    """
    scope = getattr(fun, "__name__", "f") if name is None else name

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return cast(F, wrapped)


def default_backend() -> str:
    """The platform results live on.

    >>> fxad.default_backend()
    'cpu'
    """
    return "cpu"


MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # the first by default


def checked_memory_kind(kind: str | None) -> str | None:
    """The kind. Raises BadArgument for one that there is not."""
    if kind is None or kind in MEMORY_KINDS:
        return kind
    raise BadArgument(f"memory kind {kind!r}: the CPU has {', '.join(MEMORY_KINDS)}")


@record
class Memory:
    """A kind of memory of the device: all are the machine's."""

    kind: str


class Device:
    """The device that results live on. No tuple: NumPy makes an array of devices of a list."""

    __slots__ = ()
    id = 0
    platform = "cpu"
    device_kind = "cpu"
    process_index = 0
    host_id = 0

    def addressable_memories(self) -> list[Memory]:
        return [Memory(kind) for kind in MEMORY_KINDS]

    def default_memory(self) -> Memory:
        return Memory(MEMORY_KINDS[0])

    def memory(self, kind: str) -> Memory:
        """Raises BadArgument for a kind that there is not."""
        return Memory(checked_memory_kind(kind) or MEMORY_KINDS[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return hash(Device)

    def __str__(self) -> str:
        return "cpu:0"

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"


def devices(backend: str | None = None) -> list[Device]:
    """The one device there is. Raises DeviceError for a backend other than "cpu".

    >>> fxad.devices()
    [CpuDevice(id=0)]
    """
    if backend not in (None, "cpu"):
        raise DeviceError(f"devices: Unknown backend {backend!r}; there is 'cpu'")
    return [Device()]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: None = None
) -> list[Device]:
    """The one device there is. Raises BadArgument for another process, DeviceError for
    another backend.

    >>> fxad.local_devices()
    [CpuDevice(id=0)]
    """
    if process_index not in (None, 0) or host_id is not None:
        raise BadArgument("local_devices: there is one process, of number 0")
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """1.

    >>> fxad.device_count()
    1
    """
    return len(devices(backend))


local_device_count = device_count


def process_index(backend: str | None = None) -> int:
    """0: there is one process.

    >>> fxad.process_index()
    0
    """
    return 0


def process_count(backend: str | None = None) -> int:
    """1.

    >>> fxad.process_count()
    1
    """
    return 1
