"""Garbage collection is off inside blocks that may overlap, and on again after the last."""

from __future__ import annotations

import gc
import threading

import pytest

import fxad
from fxad.core.collecting import FEW, while_importing, without_collection


def test_off_inside_and_back_after_errors():
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        assert not gc.isenabled()
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_who_turned_it_off_keeps_it_off():
    gc.disable()
    try:
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_of_threads_overlap():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with without_collection():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with without_collection():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_what_an_import_made_is_old() -> None:
    gc.unfreeze()  # what is frozen would stay so, and nothing else be moved
    gc.collect()
    with while_importing():
        made = [[] for _ in range(5000)]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() < FEW
    young = {id(v) for generation in (0, 1) for v in gc.get_objects(generation)}
    assert young.isdisjoint(map(id, made))


def test_what_was_frozen_stays_so() -> None:
    kept = [[] for _ in range(1000)]
    gc.freeze()
    try:
        with while_importing():
            pass
        assert gc.get_freeze_count() >= len(kept)
    finally:
        gc.unfreeze()


def test_tracing_is_without_collection_and_leaves_the_setting_as_it_was():
    seen = []

    @fxad.jit
    def fails(x):
        seen.append(gc.isenabled())
        raise KeyError(x.shape)

    with pytest.raises(KeyError):
        fails(1.0)
    assert seen == [False] and gc.isenabled()
    gc.disable()
    try:
        assert float(fxad.jit(lambda x: x + 1)(1.0)) == 2.0
        assert not gc.isenabled()
    finally:
        gc.enable()
