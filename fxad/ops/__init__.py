"""Operations: one record per op, holding everything the system knows about it."""

from fxad.ops import control as control
from fxad.ops import dynamic as dynamic
from fxad.ops import elementwise as elementwise
from fxad.ops import gather as gather
from fxad.ops import indexing as indexing
from fxad.ops import linalg as linalg
from fxad.ops import loops as loops
from fxad.ops import movement as movement
from fxad.ops import slicing as slicing
