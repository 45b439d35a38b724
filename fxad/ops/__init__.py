"""Operations: one record per op, holding everything the system knows about it."""

from fxad.ops import linalg as linalg
from fxad.ops import movement as movement
from fxad.ops import slicing as slicing
