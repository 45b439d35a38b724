"""Hands the transforms to the ops that hold sub-programs."""

from __future__ import annotations

from fxad.ops.programs.captures import staged
from fxad.transform.batch import batch
from fxad.transform.context import hand_to_rules, run
from fxad.transform.jvp import jvp
from fxad.transform.split import split
from fxad.transform.transpose import transpose


class _All:
    """The transforms as one object: `fxad.ir.rules.Transforms`."""

    jvp = staticmethod(jvp)
    split = staticmethod(split)
    transpose = staticmethod(transpose)
    batch = staticmethod(batch)
    run = staticmethod(run)
    stage = staticmethod(staged)


hand_to_rules(_All())
