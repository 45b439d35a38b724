"""The names of `jax.tree_util`, all of them from `fxad.tree`, so that imports can be kept.

>>> from fxad.tree_util import Partial, tree_map
"""

from fxad.tree import *  # noqa: F403
from fxad.tree import __all__ as __all__
