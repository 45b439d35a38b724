"""Hands the transforms to the ops that hold sub-programs."""

from __future__ import annotations

from fxad.ops.base import zeros
from fxad.ops.programs.captures import staged
from fxad.transform.batch import batch
from fxad.transform.context import run
from fxad.transform.jvp import TRANSFORMS, jvp
from fxad.transform.split import split
from fxad.transform.transpose import transpose

TRANSFORMS.jvp = jvp
TRANSFORMS.split = split
TRANSFORMS.transpose = transpose
TRANSFORMS.batch = batch
TRANSFORMS.run = run
TRANSFORMS.stage = staged
TRANSFORMS.zeros = zeros
