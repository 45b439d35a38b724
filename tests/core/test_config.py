"""Configuration: reading the environment, checked writes, fuel."""

from __future__ import annotations

import os
import threading
import warnings

import pytest

from fxad.core.config import Config, ConfigError, ConfigWarning


def test_defaults_and_environment():
    empty = Config({"PATH": "x"})
    assert (empty.check, empty.show, empty.fuel, empty.num_threads) == (
        False,
        frozenset(),
        None,
        None,
    )
    full = Config(
        {"FXAD_CHECK": "1", "FXAD_SHOW": "Plan, llvm,", "FXAD_FUEL": "7", "FXAD_NUM_THREADS": "2"}
    )
    assert full.check is True and full.show == {"plan", "llvm"}
    assert (full.fuel, full.num_threads) == (7, 2)
    assert repr(empty).startswith("Config(check=False")
    spelled = Config({"FXAD_ISA": "AVX2", "FXAD_CACHE_DIR": "~/compiled"})
    assert (spelled.isa, spelled.cache_dir) == ("avx2", os.path.expanduser("~/compiled"))


def test_bad_environment_values_are_errors():
    for variable, text in [
        ("FXAD_CHECK", "maybe"),
        ("FXAD_FUEL", "-1"),
        ("FXAD_FUEL", "many"),
        ("FXAD_NUM_THREADS", "0"),
        ("FXAD_NUM_THREADS", "1.5"),
    ]:
        with pytest.raises(ConfigError, match=rf"{variable}: expected .*got '{text}'"):
            Config({variable: text})


def test_unknown_names_get_the_closest():
    with pytest.warns(ConfigWarning, match="FXAD_CHEK; did you mean FXAD_CHECK"):
        Config({"FXAD_CHEK": "1"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config({"FXAD_CHECK": "0", "OTHER": "1"})
    settings = Config({})
    with pytest.raises(ConfigError, match="config.chek; did you mean check"):
        settings.chek = True
    with pytest.raises(AttributeError, match="did you mean fuel"):
        _ = settings.fule
    with pytest.raises(ConfigError, match="known: check, show"):
        settings.zzz = 1


def test_writes_are_checked():
    settings = Config({})
    settings.show = ["plan"]
    settings.check = 1
    assert settings.show == {"plan"} and settings.check is True
    for name, value in [("fuel", -1), ("fuel", 1.5), ("num_threads", 0), ("check", 2), ("show", 3)]:
        with pytest.raises(ConfigError, match=f"config.{name}"):
            setattr(settings, name, value)


def test_override_restores():
    settings = Config({"FXAD_FUEL": "5"})
    with pytest.raises(RuntimeError), settings.override(check=True, fuel=1):
        assert settings.check and settings.spend_fuel() and not settings.spend_fuel()
        raise RuntimeError
    assert not settings.check and settings.fuel == 5
    with (
        pytest.raises(ConfigError, match="did you mean fuel"),
        settings.override(check=True, fuell=1),
    ):
        pass
    assert not settings.check


def test_fuel_is_spent_once_by_many_threads():
    settings = Config({})
    assert all(settings.spend_fuel() for _ in range(10))
    settings.fuel = 500
    spent = []
    threads = [
        threading.Thread(target=lambda: spent.extend(settings.spend_fuel() for _ in range(200)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(spent), len(spent), settings.fuel) == (500, 800, 0)
