"""`fxad.random`: random numbers from explicit keys.

key = fxad.random.key(42)
x = fxad.random.normal(key, (2, 3))     # the same on every backend, and as in jax.random
"""

from fxad.random.bits import bits, randint, uniform
from fxad.random.choices import choice, permutation
from fxad.random.counts import binomial, geometric, multinomial, poisson
from fxad.random.derived import (
    ball,
    double_sided_maxwell,
    f,
    generalized_normal,
    maxwell,
    multivariate_normal,
    orthogonal,
    pareto,
    rayleigh,
    t,
    triangular,
    wald,
    weibull_min,
)
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
from fxad.random.keys import PRNGKey, clone, fold_in, key, key_data, key_impl, split, wrap_key_data

__all__ = [
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]
