"""Settings read from the environment once, and changeable in code.

>>> config.check = True  # like FXAD_CHECK=1
>>> with config.override(fuel=2):
...     [spend_fuel() for _ in range(3)]
[True, True, False]

| setting       | environment        | meaning                                              |
|---------------|--------------------|------------------------------------------------------|
| `check`       | `FXAD_CHECK`       | re-derive every type after each transform and pass   |
| `show`        | `FXAD_SHOW`        | stages to print, comma-separated; also kernels, plan |
| `fuel`        | `FXAD_FUEL`        | stop rewriting after this many rewrites (bisecting)  |
| `num_threads` | `FXAD_NUM_THREADS` | threads of compiled code; none: one for each core    |
| `isa`         | `FXAD_ISA`         | amx, avx512, avx2, neon, generic; none: best here    |
| `max_traces`  | `FXAD_MAX_TRACES`  | RetraceError at more signatures per jitted function  |
| `recognise`   | `FXAD_RECOGNISE`   | what is traced from now on: find attention, ...      |
| `cache`       | `FXAD_CACHE`       | keep compiled programs on disk                       |
| `cache_dir`   | `FXAD_CACHE_DIR`   | where; none: the user's directory for caches         |
| `calibrate`   | `FXAD_CALIBRATE`   | measure a processor of no known kind, once, for 2 s  |
| `traceback`   | `FXAD_TRACEBACK`   | user: without frames of fxad; full: with them        |

and, for values that `checkpoint` puts on disk, `offload_memory` (`FXAD_OFFLOAD_MEMORY`): bytes of
memory that the newest of them may take, "256MiB" by default, and `offload_directory`
(`FXAD_OFFLOAD_DIRECTORY`): where the file is made; none: the system's directory for such files.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fxad.core import system
from fxad.core.dtypes import enable_x64
from fxad.core.errors import FxadError
from fxad.core.precision import set_default
from fxad.core.sizes import parse_bytes


class ConfigError(FxadError, ValueError, AttributeError):
    """An unknown setting, or a value it cannot take.

    >>> fxad.config.max_tracs = 3
    Traceback (most recent call last):
    ...
    fxad.core.config.ConfigError: unknown setting config.max_tracs; did you mean max_traces? ...
    """


class ConfigWarning(UserWarning):
    """An environment variable that starts with FXAD_ but means nothing."""


def _parse_bool(value: Any) -> bool:
    words = {
        "1": True,
        "true": True,
        "on": True,
        "0": False,
        "false": False,
        "off": False,
        "": False,
    }
    word = str(value).strip().lower()
    if word not in words:
        raise ValueError("expected 1 or 0 (also true, false, on, off)")
    return words[word]


def _parse_names(value: Any) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    return frozenset(name.strip().lower() for name in names if name.strip())


def _parse_count(least: int) -> Callable[[Any], int | None]:
    def parse(value: Any) -> int | None:
        if value is None or value == "":
            return None
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if number < least or isinstance(value, float):
            raise ValueError(f"expected an integer >= {least}")
        return number

    return parse


def _parse_isa(value: Any) -> str | None:
    known = ("amx", "avx512", "avx2", "neon", "generic")
    if not value:
        return None
    if str(value).lower() not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return str(value).lower()


def _parse_traceback(value: Any) -> str:
    if value not in ("user", "full"):
        raise ValueError("expected user or full")
    return str(value)


def _parse_size(value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    return parse_bytes(number, "a size")


def _parse_directory(value: Any) -> str | None:
    """A path, of which `~` is the home directory: not only shells set it."""
    return os.path.expanduser(os.fspath(value)) if value else None


# Setting -> (parser, default).
_SETTINGS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "check": (_parse_bool, False),
    "show": (_parse_names, frozenset()),
    "fuel": (_parse_count(0), None),
    "num_threads": (_parse_count(1), None),
    "isa": (_parse_isa, None),
    "max_traces": (_parse_count(1), None),
    "recognise": (_parse_bool, True),
    "cache": (_parse_bool, True),
    "cache_dir": (_parse_directory, None),
    "calibrate": (_parse_bool, True),
    "traceback": (_parse_traceback, "user"),
    "offload_memory": (_parse_size, 1 << 28),
    "offload_directory": (_parse_directory, None),
}


class Config:
    """The settings of this process. Reads are plain attribute loads; writes are checked."""

    check: bool
    show: frozenset[str]
    fuel: int | None
    num_threads: int | None
    isa: str | None
    max_traces: int | None
    recognise: bool
    cache: bool
    cache_dir: str | None
    calibrate: bool
    traceback: str
    offload_memory: int
    offload_directory: str | None

    def __init__(self, environ: Mapping[str, str]) -> None:
        object.__setattr__(self, "_lock", system.free_in_children(threading.Lock()))
        for name, (_, default) in _SETTINGS.items():
            object.__setattr__(self, name, default)
        for variable in sorted(environ):
            if variable.startswith("FXAD_"):
                self._read_variable(variable, environ[variable])

    def _read_variable(self, variable: str, text: str) -> None:
        name = variable.removeprefix("FXAD_").lower()
        if name in _SETTINGS and variable == variable.upper():
            object.__setattr__(self, name, _parsed(name, text, shown_as=variable))
            return
        known = [f"FXAD_{setting.upper()}" for setting in _SETTINGS]
        warnings.warn(
            f"unknown environment variable {variable}{_closest(variable.upper(), known)}",
            ConfigWarning,
            stacklevel=2,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        parsed = _parsed(name, value, shown_as=f"config.{name}")
        with self._lock:
            object.__setattr__(self, name, parsed)

    def __getattr__(self, name: str) -> Any:  # reached only when normal lookup has failed
        if name.startswith("__"):
            raise AttributeError(name)
        raise _unknown(name)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in _SETTINGS)})"

    def update(self, name: str, value: Any) -> None:
        """Set by name, as code for JAX does; "jax_enable_x64" is `fxad.enable_x64(value)`, and
        "jax_default_matmul_precision" is `fxad.default_matmul_precision` from now on."""
        if name in ("jax_enable_x64", "enable_x64"):
            enable_x64(value)
        elif name == "jax_default_matmul_precision":
            set_default(value)
        elif name in ("jax_debug_nans", "jax_debug_infs"):
            raise ConfigError(f"config.update: {name} is `with fxad.debug.nans():` here")
        else:
            setattr(self, name, value)

    @contextlib.contextmanager
    def override(self, **settings: Any) -> Iterator[Config]:
        """Change settings inside a `with` block. They are the process's, not the thread's."""
        parsed = {name: _parsed(name, v, f"config.{name}") for name, v in settings.items()}
        before = {name: getattr(self, name) for name in parsed}
        try:
            for name, value in parsed.items():
                setattr(self, name, value)
            yield self
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def spend_fuel(self) -> bool:
        """Take one unit of fuel. False if none is left; always True when fuel is unlimited."""
        if self.fuel is None:
            return True
        with self._lock:
            if self.fuel is None or self.fuel == 0:
                return self.fuel is None
            object.__setattr__(self, "fuel", self.fuel - 1)
            return True


def _parsed(name: str, value: Any, shown_as: str) -> Any:
    if name not in _SETTINGS:
        raise _unknown(name)
    try:
        return _SETTINGS[name][0](value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{shown_as}: {error}, got {value!r}") from None


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"unknown setting config.{name}{_closest(name, list(_SETTINGS))}")


def _closest(name: str, known: list[str]) -> str:
    difflib = importlib.import_module("difflib")  # only errors pay for it
    match = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {match[0]}?" if match else ""
    return f"{hint} (known: {', '.join(known)})"


config = Config(os.environ)
spend_fuel = config.spend_fuel
