"""Calls of every function of fxad.nn, fxad.scipy.special and fxad.random (see jit_cases.py)."""

from __future__ import annotations

from functools import partial

import numpy as np
from jit_cases import (
    ABOVE,
    COUNT,
    CUBE,
    PLACES,
    POSITIVE,
    SPD,
    UNIT,
    V,
    X,
    Z,
    initializers,
    nn,
    random,
    special,
)

import fxad
import fxad.nn.initializers as init

nn.call(
    "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
    "log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign "
    "softmax softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh",
    X,
)
nn.call("log1mexp", POSITIVE)
nn.call("one_hot", PLACES, 4)
HEADS = CUBE.reshape(1, 3, 2, 4)
nn.call("dot_product_attention", HEADS, HEADS + 1, HEADS * 2, is_causal=True)
nn.call("linear_cross_entropy", X, CUBE.reshape(6, 4), PLACES[:3])
nn.call("linear_cross_entropy", X, CUBE.reshape(6, 4), PLACES[:3], skip_ignored=True)
nn.call("quantize", X)
nn.call("quantize", X, "int8")
CODES, SCALES = (np.asarray(part) for part in fxad.nn.quantize(X))
nn.call("dequantize", CODES, SCALES, 4)
nn.call("quantized_ragged_dot", X, CODES[None], SCALES[None], np.array([2]), 4)

KEY = np.array([7, 11], np.uint32)
SHAPE = (4, 3)


def from_key(cases: object, name: str, function: object, *arrays: object) -> None:
    cases.use(
        name, lambda bits, *rest: function(fxad.random.wrap_key_data(bits), *rest), KEY, *arrays
    )


for name in (
    "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform "
    "lecun_normal lecun_uniform normal orthogonal truncated_normal uniform xavier_normal "
    "xavier_uniform"
).split():
    from_key(initializers, name, partial(getattr(init, name)(), shape=SHAPE))
from_key(initializers, "delta_orthogonal", lambda k: init.delta_orthogonal()(k, (3, 2, 4)))
from_key(initializers, "constant", lambda k: init.constant(2.0)(k, SHAPE))
from_key(initializers, "ones", lambda k: init.ones(k, SHAPE))
from_key(initializers, "zeros", lambda k: init.zeros(k, SHAPE))
from_key(
    initializers,
    "variance_scaling",
    lambda k: init.variance_scaling(1, "fan_in", "normal")(k, SHAPE),
)

special.call(
    "dawsn erf erfc erfcx expit fresnel gammasgn i0 i0e i1 i1e j0 j1 log_expit log_ndtr "
    "log_softmax logsumexp ndtr rgamma softmax",
    X,
)
special.call(
    "digamma entr exp1 expi gamma gammaln loggamma psi sici spence y0 y1 factorial", POSITIVE
)
special.call("erfcinv erfinv logit ndtri", UNIT)
special.call(
    "beta betaln boxcox boxcox1p gammainc gammaincc kl_div owens_t rel_entr xlog1py xlogy poch "
    "iv ive",
    POSITIVE,
    ABOVE,
)
special.call("comb", ABOVE + 3, UNIT)
special.call("betainc betaincc", POSITIVE, ABOVE, UNIT)
special.call("hyp1f1", POSITIVE, ABOVE, X)
special.call("hyp2f1", POSITIVE, ABOVE, ABOVE, UNIT)
special.call("expn jn yn polygamma", 2, POSITIVE)
special.call("multigammaln", POSITIVE + 2, 2)
special.call("wofz", Z)
special.call("loggamma", Z)
special.call("bessel_jn", POSITIVE, v=3)
special.use("bernoulli", lambda x: x * fxad.scipy.special.bernoulli(3), POSITIVE)
special.use(
    "sph_harm_y", lambda n, t: fxad.scipy.special.sph_harm_y(n, -1, t, t, n_max=5), COUNT, POSITIVE
)
special.call("zeta", ABOVE, POSITIVE)

for name in (
    "bits cauchy exponential gumbel laplace logistic lognormal maxwell normal rademacher uniform"
).split():
    from_key(random, name, partial(getattr(fxad.random, name), shape=SHAPE))
r = fxad.random
from_key(random, "ball", lambda k: r.ball(k, 3, shape=(2,)))
from_key(random, "bernoulli", r.bernoulli, UNIT)
from_key(random, "beta", r.beta, POSITIVE, ABOVE)
from_key(random, "binomial", r.binomial, COUNT.astype(np.float32), UNIT)
from_key(random, "categorical", r.categorical, X)
from_key(random, "choice", lambda k, x: r.choice(k, x, (2,), replace=False), V)
from_key(random, "clone", lambda k: r.key_data(r.clone(k)))
from_key(random, "key_data", r.key_data)
from_key(random, "key_impl", lambda k: r.key_impl(k) == "threefry2x32")
from_key(random, "wrap_key_data", r.bits)
from_key(random, "fold_in", lambda k: r.key_data(r.fold_in(k, 3)))
from_key(random, "split", lambda k: r.key_data(r.split(k, 3)))
from_key(random, "dirichlet", r.dirichlet, POSITIVE)
from_key(random, "double_sided_maxwell", lambda k: r.double_sided_maxwell(k, 1.0, 2.0, SHAPE))
from_key(random, "f", r.f, POSITIVE, ABOVE)
from_key(random, "generalized_normal", lambda k: r.generalized_normal(k, 1.5, SHAPE))
from_key(random, "geometric", r.geometric, UNIT)
for name in ("chisquare", "gamma", "loggamma", "pareto", "poisson", "rayleigh", "t", "wald"):
    from_key(random, name, getattr(fxad.random, name), POSITIVE)
from_key(random, "multinomial", lambda k: r.multinomial(k, 5, np.float32([0.2, 0.3, 0.5])))
from_key(random, "multivariate_normal", r.multivariate_normal, V[:4], SPD)
from_key(random, "orthogonal", lambda k: r.orthogonal(k, 3))
from_key(random, "permutation", r.permutation, X)
from_key(random, "randint", lambda k: r.randint(k, SHAPE, 0, 9))
from_key(random, "triangular", r.triangular, UNIT - 1, UNIT, UNIT + 1)
from_key(random, "truncated_normal", lambda k, x: r.truncated_normal(k, x - 1, x + 1), X)
from_key(random, "weibull_min", lambda k: r.weibull_min(k, 1.0, 2.0, SHAPE))
random.use("key", lambda seed: r.key_data(r.key(seed)), PLACES[0, ...])
random.use("PRNGKey", lambda seed: r.PRNGKey(seed) + np.uint32(0), PLACES[0, ...])
