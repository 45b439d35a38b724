"""`fxad.scipy.special`: special functions under SciPy's names, with derivatives.

from fxad.scipy import special
special.gammaln(2.5)    special.betainc(2.0, 3.0, x)    special.ndtri(1e-10)

All are made of fxad's own operations: they compile, batch and differentiate like any other code.
"""

from fxad.scipy.special.bessel import i0, i0e, i1, i1e, j0, j1, y0, y1
from fxad.scipy.special.bessel_orders import bessel_jn, iv, ive, jn, yn
from fxad.scipy.special.elementary import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    log_expit,
    log_softmax,
    logit,
    logsumexp,
    rel_entr,
    softmax,
    xlog1py,
    xlogy,
)
from fxad.scipy.special.exponential import exp1, expi, expn
from fxad.scipy.special.faddeeva import wofz
from fxad.scipy.special.gammas import (
    bernoulli,
    beta,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammaln,
    gammasgn,
    multigammaln,
    poch,
    polygamma,
    psi,
    rgamma,
    zeta,
)
from fxad.scipy.special.harmonics import sph_harm_y
from fxad.scipy.special.hypergeometric import hyp1f1, hyp2f1
from fxad.scipy.special.incomplete import betainc, betaincc, gammainc, gammaincc
from fxad.scipy.special.integrals import dawsn, erfcx, fresnel, owens_t, sici, spence
from fxad.scipy.special.loggammas import loggamma
from fxad.scipy.special.normal import erf, erfc, erfcinv, erfinv, log_ndtr, ndtr, ndtri

__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaincc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "kl_div",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "psi",
    "rel_entr",
    "rgamma",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "zeta",
]
