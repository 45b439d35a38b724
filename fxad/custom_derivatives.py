"""Functions with derivatives of their own, under the names of `jax.custom_derivatives`.

>>> from fxad.custom_derivatives import custom_vjp, zero_from_primal
"""

from fxad.api.closures import closure_convert, custom_gradient, linear_call
from fxad.api.custom import custom_jvp
from fxad.api.custom_rules import Perturbed, SymbolicZero, primal_values, zero_from_primal
from fxad.api.custom_vjp import custom_vjp

CustomVJPPrimal = Perturbed
custom_vjp_primal_tree_values = primal_values

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]
