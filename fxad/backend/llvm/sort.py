"""Stable sorting of the values along one axis, by merging."""

from __future__ import annotations

from fxad.backend.llvm.stages import Stages


class Sorting(Stages):
    """Stages with Sort."""

    scratch_bytes = 0
