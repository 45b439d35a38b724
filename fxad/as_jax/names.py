"""What each module and name of JAX is in fxad: the whole alias as tables.

MODULES["jax.numpy"]               # the modules in which its names are looked up, in this order
ELSEWHERE["jax.P"]                 # a name that is somewhere else, or called otherwise
ABSENT["jax.pmap"]                 # why a name is not here
"""

from __future__ import annotations

_STATS = (
    "bernoulli beta binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace "
    "logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform "
    "vonmises wrapcauchy"
).split()

MODULES: dict[str, tuple[str, ...]] = {
    "jax": ("fxad.as_jax.toplevel", "fxad.as_jax.config", "fxad"),
    "jax.ad_checkpoint": ("fxad",),
    "jax.api_util": ("fxad.as_jax.api_util",),
    "jax.core": ("fxad.as_jax.core",),
    "jax.custom_batching": ("fxad.custom_batching",),
    "jax.custom_derivatives": ("fxad.custom_derivatives",),
    "jax.debug": ("fxad.debug",),
    "jax.dlpack": ("fxad.numpy",),
    "jax.dtypes": ("fxad.dtypes",),
    "jax.errors": ("fxad.errors",),
    "jax.experimental": ("fxad.debug", "fxad"),
    "jax.experimental.ode": ("fxad.scipy.integrate",),
    "jax.extend": (),
    "jax.extend.core": ("fxad.as_jax.core",),
    "jax.extend.linear_util": (),
    "jax.flatten_util": ("fxad.flatten_util",),
    "jax.interpreters": (),
    "jax.lax": ("fxad.lax",),
    "jax.lax.linalg": ("fxad.lax.linalg",),
    "jax.nn": ("fxad.nn",),
    "jax.nn.initializers": ("fxad.nn.initializers",),
    "jax.numpy": ("fxad.numpy",),
    "jax.numpy.fft": ("fxad.numpy.fft",),
    "jax.numpy.linalg": ("fxad.numpy.linalg",),
    "jax.ops": ("fxad.lax",),
    "jax.profiler": (),
    "jax.random": ("fxad.random",),
    "jax.scipy": ("fxad.scipy",),
    "jax.scipy.integrate": ("fxad.scipy.integrate", "fxad.numpy"),
    "jax.scipy.linalg": ("fxad.scipy.linalg",),
    "jax.scipy.signal": ("fxad.scipy.signal",),
    "jax.scipy.sparse": ("fxad.scipy.sparse",),
    "jax.scipy.sparse.linalg": ("fxad.scipy.sparse.linalg",),
    "jax.scipy.special": ("fxad.scipy.special",),
    "jax.scipy.stats": ("fxad.scipy.stats",),
    "jax.sharding": ("fxad.sharding",),
    "jax.stages": (),
    "jax.test_util": ("fxad",),
    "jax.tree": ("fxad.tree",),
    "jax.tree_util": ("fxad.tree_util",),
    "jax.typing": ("fxad.typing",),
    "jax.version": ("fxad.as_jax.toplevel",),
    # Private modules that public packages import from.
    "jax._src": (),
    "jax._src.compiler": ("fxad.as_jax.private",),
    "jax._src.xla_bridge": ("fxad.as_jax.private",),
}

MODULES |= {f"jax.scipy.stats.{name}": (f"fxad.scipy.stats:{name}",) for name in _STATS}

ELSEWHERE: dict[str, str] = {
    "jax.__version__": "fxad.as_jax.toplevel:__version__",
    "jax.__version_info__": "fxad.as_jax.toplevel:__version_info__",
    "jax.Device": "fxad.api.ported:Device",
    "jax.NamedSharding": "fxad.sharding:NamedSharding",
    "jax.P": "fxad.sharding:PartitionSpec",
    "jax.make_mesh": "fxad.sharding:make_mesh",
    "jax.set_mesh": "fxad.sharding:set_mesh",
}

ABSENT: dict[str, str] = {}
ABSENT_MODULES: dict[str, str] = {}
