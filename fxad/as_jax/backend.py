"""Names of `jax.extend.backend`: the one backend, which is the CPU's.

get_backend().platform      # "cpu"
"""

from __future__ import annotations

from fxad.api.ported import Device, default_backend, device_count, devices, process_index

__all__ = ["backends", "get_backend", "get_default_device"]


class Client:
    """What runs compiled functions. Of JAX's it has what packages ask."""

    platform = platform_version = default_backend()

    def devices(self) -> list[Device]:
        return devices()

    local_devices = devices

    def device_count(self) -> int:
        return device_count()

    local_device_count = device_count

    def process_index(self) -> int:
        return process_index()


_CLIENT = Client()


def get_backend(platform: str | None = None) -> Client:
    """The backend. Raises DeviceError for a platform other than "cpu"."""
    devices(platform)
    return _CLIENT


def backends() -> dict[str, Client]:
    """The backend by its platform."""
    return {_CLIENT.platform: _CLIENT}


def get_default_device() -> Device:
    """The one device there is."""
    return devices()[0]
