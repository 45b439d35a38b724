"""`jax.config` and the settings that are functions of `jax`: `with jax.debug_nans(True): ...`.

A setting that means something here changes fxad's; the others are kept and change nothing. One that
would change random numbers says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from fxad.api.compiled import interpreting, set_interpreting
from fxad.core import precision
from fxad.core.config import config as fxad_config
from fxad.core.dtypes import enable_x64, numerics, x64_enabled
from fxad.core.lazy import later
from fxad.core.promotion import set_dtype_promotion, set_rank_promotion
from fxad.trace import leaks

if TYPE_CHECKING:
    from fxad import debug
else:
    debug = later("fxad.debug")


class SettingWarning(UserWarning):
    """A setting was set to what would give other random numbers in JAX, and gives the same here."""


class _Switch:
    """A setting of fxad that is a context manager: on while it is entered."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._entered: Any = None

    def get(self) -> bool:
        return self._entered is not None

    def set(self, on: Any) -> None:
        if self._entered is not None:
            self._entered.__exit__(None, None, None)
            self._entered = None
        if on:
            self._entered = self._make()
            self._entered.__enter__()


class _Watched:
    """`jax_debug_nans` and `jax_debug_infs`: one context of fxad for both, since contexts are left
    in the order in which they were entered."""

    _on: ClassVar[set[str]] = set()
    _entered: ClassVar[Any] = None

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self) -> bool:
        return self._name in _Watched._on

    def set(self, on: Any) -> None:
        if bool(on) == self.get():
            return
        _Watched._on ^= {self._name}
        if _Watched._entered is not None:
            _Watched._entered.__exit__(None, None, None)
            _Watched._entered = None
        if _Watched._on:
            _Watched._entered = debug.nans(infinities="infs" in _Watched._on)
            _Watched._entered.__enter__()


class _Setting:
    """A setting of fxad with a function that reads it and one that changes it."""

    def __init__(self, get: Callable[[], Any], set: Callable[[Any], Any]) -> None:
        self.get, self.set = get, set


class _Kept:
    """A setting of JAX that has no meaning here: what it was set to, JAX's default at first."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    def set(self, value: Any) -> None:
        self._value = value


class _OfRandomNumbers(_Kept):
    """A setting that changes JAX's random numbers and none here, which a program that reproduces
    results must hear of. Warns (SettingWarning) when it is first set to anything but the value
    whose numbers fxad gives."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(value)
        self._name, self._only, self._warned = name, value, False

    def set(self, value: Any) -> None:
        super().set(value)
        if value != self._only and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._name}={value!r} has no effect: random numbers are those of "
                f"{self._only!r}, not those that JAX gives with {value!r} (docs/jax-names.md)",
                SettingWarning,
                stacklevel=3,
            )


def _matmul() -> Any:
    return _precision.get()


def _set_matmul(value: Any) -> None:
    precision.set_default(value)
    _precision.set(value)


def _defaults() -> dict[str, Any]:
    """All settings of JAX, by docs/read_jax.py."""
    return json.loads(files(__package__).joinpath("settings.json").read_text())


def _set_cache(on: Any) -> None:
    fxad_config.cache = bool(on)


def _set_cache_dir(path: Any) -> None:
    fxad_config.cache_dir = path


_precision = _Kept(None)
_SETTINGS: dict[str, Any] = {
    **{name: _Kept(default) for name, default in _defaults().items()},
    "jax_compilation_cache_dir": _Setting(lambda: fxad_config.cache_dir, _set_cache_dir),
    "jax_enable_compilation_cache": _Setting(lambda: fxad_config.cache, _set_cache),
    "jax_check_tracer_leaks": _Switch(leaks.checking_leaks),
    "jax_debug_infs": _Watched("infs"),
    "jax_debug_nans": _Watched("nans"),
    "jax_default_matmul_precision": _Setting(_matmul, _set_matmul),
    **{
        name: _OfRandomNumbers(name, _defaults()[name])
        for name in ("jax_default_prng_impl", "jax_threefry_partitionable")
    },
    "jax_disable_jit": _Setting(interpreting, set_interpreting),
    "jax_enable_x64": _Setting(x64_enabled, enable_x64),
    "jax_numpy_dtype_promotion": _Setting(lambda: numerics.dtype_promotion, set_dtype_promotion),
    "jax_numpy_rank_promotion": _Setting(lambda: numerics.rank_promotion, set_rank_promotion),
}


class Config:
    """`jax.config`: settings as attributes and by name. Raises AttributeError for unknown ones."""

    def read_environment(self) -> None:
        """Set what JAX's variables of the environment say, such as JAX_ENABLE_X64."""
        for name in _SETTINGS:
            variable = name.upper()
            if variable in os.environ:
                self.update(name, _from_text(os.environ[variable], self.read(name)))

    def __getattr__(self, name: str) -> Any:
        if name == "x64_enabled":
            return x64_enabled()
        if name not in _SETTINGS:
            raise AttributeError(f"jax.config has no setting {name!r} (docs/jax-names.md)")
        return _SETTINGS[name].get()

    def __setattr__(self, name: str, value: Any) -> None:
        self.update(name, value)

    def update(self, name: str, val: Any) -> None:
        """Set by name."""
        if name not in _SETTINGS:
            raise AttributeError(f"Unrecognized config option: {name} (docs/jax-names.md)")
        _SETTINGS[name].set(val)

    def read(self, name: str) -> Any:
        """The value by name."""
        return getattr(self, name)

    @property
    def values(self) -> dict[str, Any]:
        """All settings."""
        return {name: self.read(name) for name in _SETTINGS}

    def config_with_absl(self) -> None:
        """Make every setting an absl flag of its name; `parse_flags_with_absl` reads them."""
        from absl import flags  # the caller's dependency

        for name in _SETTINGS:
            if name in flags.FLAGS:
                continue
            value, text = self.read(name), f"see jax.config.{name}"
            if isinstance(value, bool):
                flags.DEFINE_bool(name, value, text)
            elif isinstance(value, str) or value is None:
                flags.DEFINE_string(name, value, text)

    def parse_flags_with_absl(self) -> None:
        """Set what absl's flags were given on the command line."""
        from absl import flags

        self.config_with_absl()
        flags.FLAGS(sys.argv, known_only=True)
        for name in _SETTINGS:
            if name in flags.FLAGS and flags.FLAGS[name].present:
                self.update(name, flags.FLAGS[name].value)


def _from_text(text: str, now: Any) -> Any:
    """What a variable of the environment says, where the setting is `now`; words as JAX takes."""
    on, off = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
    if isinstance(now, bool) and text.lower() in (*on, *off):
        return text.lower() in on
    if isinstance(now, int | float) and not isinstance(now, bool):
        with contextlib.suppress(ValueError):
            return type(now)(text)
    return text


class State:
    """A setting as a function of `jax`, which changes it inside a `with` block."""

    def __init__(self, name: str) -> None:
        self.name = f"jax_{name}"
        self.__doc__ = f"`with jax.{name}(value):` sets `jax.config.{self.name}` inside."

    @property
    def value(self) -> Any:
        return config.read(self.name)

    def __call__(self, new_val: Any = True) -> contextlib.AbstractContextManager[None]:
        return self._set(new_val)

    @contextlib.contextmanager
    def _set(self, new_val: Any) -> Any:
        before = config.read(self.name)
        config.update(self.name, new_val)
        try:
            yield
        finally:
            config.update(self.name, before)


config = Config()
STATES = (
    "allow_f16_reductions array_garbage_collection_guard check_tracer_leaks debug_infs "
    "debug_key_reuse debug_nans default_device default_prng_impl enable_checks "
    "enable_custom_prng explain_cache_misses legacy_prng_key log_compiles numpy_dtype_promotion "
    "numpy_rank_promotion remove_size_one_mesh_axis_from_type softmax_custom_jvp thread_guard "
    "threefry_partitionable transfer_guard transfer_guard_device_to_device "
    "transfer_guard_device_to_host transfer_guard_host_to_device"
).split()


def __getattr__(name: str) -> State:
    """The settings in STATES as functions."""
    if name in STATES:
        return State(name)
    raise AttributeError(name)
