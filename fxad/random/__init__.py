"""`fxad.random`: random numbers from explicit keys.

key = fxad.random.key(42)
x = fxad.random.normal(key, (2, 3))     # the same on every backend, and as in jax.random
"""

from fxad.random.bits import bits, randint, uniform
from fxad.random.choices import choice, permutation
from fxad.random.distributions import (
    bernoulli,
    categorical,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    normal,
    rademacher,
    truncated_normal,
)
from fxad.random.gammas import beta, chisquare, dirichlet, gamma, loggamma
from fxad.random.keys import PRNGKey, clone, fold_in, key, key_data, split, wrap_key_data

__all__ = [
    "PRNGKey",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "key_data",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "normal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "wrap_key_data",
]
