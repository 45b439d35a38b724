"""Every scalar function has code in every backend for what its record says, and none has more."""

from __future__ import annotations

from types import ModuleType

import pytest

from fxad.backend.llvm.elements import prims as llvm
from fxad.backend.numba import prims as numba
from fxad.backend.numba.library import library
from fxad.ir.prims import FUNCTION, PRIMS

KINDS = {"bool", "int", "float", "complex"}


def gaps(backend: ModuleType) -> list[str]:
    """What a backend's tables lack, and what they have beside the records."""
    wanted = {(kind, name) for name, f in PRIMS.items() for kind in f.dtypes.split()}
    found = {(kind, name) for kind, table in backend.CODE.items() for name in table}
    unsigned = {("int", name) for name in backend.UNSIGNED}
    special = {(kind, name) for kind, name in wanted if name in backend.OF_DTYPES}
    lacking = [f"{name} of {kind}: no code" for kind, name in wanted - found - special]
    lacking += [f"{name} of {kind}: no record" for kind, name in found - wanted]
    lacking += [f"{name} of {kind}: written twice" for kind, name in found & special]
    lacking += [f"{name}: no record" for name in set(backend.OF_DTYPES) - set(PRIMS)]
    ints = {(kind, name) for kind, name in found if kind == "int"}
    lacking += [f"{name}: not signed and unsigned" for _, name in ints ^ unsigned]
    return sorted(lacking)


@pytest.mark.parametrize("backend", [llvm, numba], ids=["llvm", "numba"])
def test_tables_are_complete(backend, monkeypatch):
    assert gaps(backend) == []
    monkeypatch.delitem(backend.CODE["float"], "exp")
    assert gaps(backend) == ["exp of float: no code"]
    monkeypatch.setitem(backend.CODE["complex"], "erf", backend.CODE["complex"]["exp"])
    assert gaps(backend) == ["erf of complex: no record", "exp of float: no code"]
    monkeypatch.setitem(backend.OF_DTYPES, "nought", None)
    assert "nought: no record" in gaps(backend)
    monkeypatch.delitem(backend.UNSIGNED, "add")
    assert "add: not signed and unsigned" in gaps(backend)


def test_a_record_without_code_is_seen(monkeypatch):
    monkeypatch.setitem(PRIMS, "new", PRIMS["cbrt"])
    assert gaps(llvm) == gaps(numba) == ["new of float: no code"]


def test_records_agree_with_themselves():
    for function in PRIMS.values():
        assert set(function.dtypes.split()) <= KINDS
        assert function.instructions in (1, FUNCTION)
        assert not function.chain or function.instructions > 1


def test_what_numba_calls_by_name_is_there():
    names = library("python")
    assert {*numba.CALLS, *(f"c{name}" for name in numba.COMPLEX_CALLS)} <= set(names)
