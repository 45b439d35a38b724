"""`fxad.scipy.stats`: densities and distribution functions under SciPy's names.

from fxad.scipy import stats
stats.norm.logpdf(x, loc, scale)    stats.t.cdf(x, df)    stats.poisson.logpmf(k, mu)
"""

from fxad.scipy.stats import dirichlet, multinomial, multivariate_normal
from fxad.scipy.stats.continuous import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    gennorm,
    gumbel_l,
    gumbel_r,
    halfnorm,
    laplace,
    logistic,
    lognorm,
    norm,
    pareto,
    t,
    truncnorm,
    uniform,
    vonmises,
    weibull_min,
    wrapcauchy,
)
from fxad.scipy.stats.discrete import bernoulli, betabinom, binom, geom, nbinom, poisson
from fxad.scipy.stats.kernel_density import gaussian_kde
from fxad.scipy.stats.summaries import entropy, mode, rankdata, sem

__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "entropy",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "halfnorm",
    "laplace",
    "logistic",
    "lognorm",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "weibull_min",
    "wrapcauchy",
]
