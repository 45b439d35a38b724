"""Operations: one record per op, holding everything the system knows about it."""

from fxad.ir.program import OPS
from fxad.ops import attention as attention
from fxad.ops import checkpoint as checkpoint
from fxad.ops import collective as collective
from fxad.ops import cond as cond
from fxad.ops import control as control
from fxad.ops import cumulative as cumulative
from fxad.ops import custom as custom
from fxad.ops import custom_vmap as custom_vmap
from fxad.ops import dynamic as dynamic
from fxad.ops import eigen as eigen
from fxad.ops import elementwise as elementwise
from fxad.ops import factor as factor
from fxad.ops import fft as fft
from fxad.ops import gather as gather
from fxad.ops import head_loss as head_loss
from fxad.ops import host as host
from fxad.ops import indexing as indexing
from fxad.ops import linalg as linalg
from fxad.ops import linear_solve as linear_solve
from fxad.ops import lu as lu
from fxad.ops import movement as movement
from fxad.ops import offload as offload
from fxad.ops import random as random
from fxad.ops import reduce as reduce
from fxad.ops import scan as scan
from fxad.ops import slicing as slicing
from fxad.ops import sorting as sorting
from fxad.ops import spectral as spectral
from fxad.ops import tape as tape
from fxad.ops import while_linear as while_linear
from fxad.ops import while_loop as while_loop

OWN = frozenset(OPS)  # names of the ops this package defines
