"""What each module and name of JAX is in fxad: the whole alias as tables.

MODULES["jax.numpy"]               # the modules in which its names are looked up, in this order
ELSEWHERE["jax.P"]                 # a name that is somewhere else, or called otherwise
DIFFERS["jax.random.key"]          # what is the same by name and differs otherwise
why("jax.smap")                    # why a name is not here
"""

from __future__ import annotations

import re

_STATS = (
    "bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l "
    "gumbel_r laplace logistic multinomial multivariate_normal nbinom norm pareto poisson t "
    "truncnorm uniform vonmises wrapcauchy"
).split()

MODULES: dict[str, tuple[str, ...]] = {
    "jax": ("fxad.as_jax.toplevel", "fxad.as_jax.config", "fxad"),
    "jax.ad_checkpoint": ("fxad",),
    "jax.api_util": ("fxad.as_jax.api_util",),
    "jax.core": ("fxad.as_jax.core",),
    "jax.custom_batching": ("fxad.custom_batching",),
    "jax.custom_derivatives": ("fxad.custom_derivatives", "fxad.as_jax.builtin_primitives"),
    "jax.debug": ("fxad.debug",),
    "jax.dlpack": ("fxad.numpy",),
    "jax.dtypes": ("fxad.dtypes",),
    "jax.errors": ("fxad.errors",),
    "jax.example_libraries": (),
    "jax.example_libraries.optimizers": ("fxad.as_jax.optimizers",),
    "jax.example_libraries.stax": ("fxad.as_jax.stax",),
    "jax.experimental": ("fxad.debug", "fxad"),
    "jax.experimental.compilation_cache": (),
    "jax.experimental.compilation_cache.compilation_cache": ("fxad.as_jax.compilation_cache",),
    "jax.experimental.checkify": ("fxad.checkify",),
    "jax.experimental.hijax": ("fxad.as_jax.hijax",),
    "jax.experimental.layout": ("fxad.as_jax.layout",),
    "jax.experimental.mesh_utils": ("fxad.as_jax.mesh_utils",),
    "jax.experimental.multihost_utils": ("fxad.as_jax.multihost_utils",),
    "jax.experimental.ode": ("fxad.scipy.integrate",),
    "jax.experimental.pallas": (),
    "jax.experimental.pallas.tpu": (),
    "jax.experimental.pallas.triton": (),
    "jax.experimental.sparse": ("fxad.as_jax.sparse",),
    "jax.experimental.sparse.linalg": (),
    "jax.extend": (),
    "jax.extend.backend": ("fxad.as_jax.backend",),
    "jax.extend.core": ("fxad.as_jax.core",),
    "jax.extend.core.primitives": ("fxad.as_jax.builtin_primitives",),
    "jax.extend.linear_util": ("fxad.as_jax.linear_util",),
    "jax.extend.source_info_util": ("fxad.as_jax.private",),
    "jax.flatten_util": ("fxad.flatten_util",),
    "jax.image": ("fxad.image",),
    "jax.interpreters": (),
    "jax.interpreters.ad": ("fxad.as_jax.ad",),
    "jax.interpreters.batching": ("fxad.as_jax.batching",),
    "jax.interpreters.mlir": ("fxad.as_jax.mlir",),
    "jax.interpreters.partial_eval": ("fxad.as_jax.partial_eval",),
    "jax.interpreters.xla": (),
    "jax.lax": ("fxad.as_jax.lax", "fxad.lax", "fxad.as_jax.builtin_primitives"),
    "jax.lax.linalg": ("fxad.lax.linalg",),
    "jax.nn": ("fxad.nn",),
    "jax.nn.initializers": ("fxad.nn.initializers",),
    "jax.numpy": ("fxad.numpy",),
    "jax.numpy.fft": ("fxad.numpy.fft",),
    "jax.numpy.linalg": ("fxad.numpy.linalg",),
    "jax.ops": ("fxad.lax",),
    "jax.profiler": ("fxad.profiler",),
    "jax.experimental.xla_metadata": ("fxad.as_jax.xla_metadata",),
    "jax.random": ("fxad.random",),
    "jax.ref": ("fxad.as_jax.refs",),
    "jax.scipy": ("fxad.scipy",),
    "jax.scipy.cluster": ("fxad.scipy.cluster",),
    "jax.scipy.cluster.vq": ("fxad.scipy.cluster.vq",),
    "jax.scipy.fft": ("fxad.scipy.fft",),
    "jax.scipy.integrate": ("fxad.scipy.integrate", "fxad.numpy"),
    "jax.scipy.interpolate": ("fxad.scipy.interpolate",),
    "jax.scipy.linalg": ("fxad.scipy.linalg",),
    "jax.scipy.ndimage": ("fxad.scipy.ndimage",),
    "jax.scipy.optimize": ("fxad.scipy.optimize",),
    "jax.scipy.signal": ("fxad.scipy.signal",),
    "jax.scipy.sparse": ("fxad.scipy.sparse",),
    "jax.scipy.sparse.linalg": ("fxad.scipy.sparse.linalg",),
    "jax.scipy.spatial": ("fxad.scipy.spatial",),
    "jax.scipy.spatial.transform": ("fxad.scipy.spatial.transform",),
    "jax.scipy.special": ("fxad.scipy.special",),
    "jax.scipy.stats": ("fxad.scipy.stats",),
    "jax.sharding": ("fxad.sharding",),
    "jax.stages": (),
    "jax.test_util": ("fxad",),
    "jax.tree": ("fxad.tree",),
    "jax.tree_util": ("fxad.tree_util", "fxad.as_jax.tree_registry"),
    "jax.typing": ("fxad.typing",),
    "jax.version": ("fxad.as_jax.toplevel",),
    # Private modules that public packages import from.
    "jax._src": (),
    "jax._src.ad_util": ("fxad.as_jax.private",),
    "jax._src.api": ("fxad",),
    "jax._src.api_util": ("fxad.as_jax.api_util",),
    "jax._src.checkify": ("fxad.checkify",),
    "jax._src.compiler": ("fxad.as_jax.private",),
    "jax._src.core": ("fxad.as_jax.core",),
    "jax._src.dispatch": ("fxad.as_jax.private",),
    "jax._src.dtypes": ("fxad.dtypes", "fxad.as_jax.private"),
    "jax._src.flatten_util": ("fxad.flatten_util",),
    "jax._src.lax": (),
    "jax._src.lax.lax": ("fxad.as_jax.lax", "fxad.lax", "fxad.as_jax.builtin_primitives"),
    "jax._src.numpy": (),
    "jax._src.numpy.util": ("fxad.as_jax.private",),
    "jax._src.pjit": ("fxad.as_jax.builtin_primitives",),
    "jax._src.state": (),
    "jax._src.state.types": ("fxad.as_jax.refs",),
    "jax._src.traceback_util": ("fxad.as_jax.private",),
    "jax._src.tree_util": ("fxad.as_jax.tree_registry", "fxad.tree_util"),
    "jax._src.util": ("fxad.as_jax.util",),
    "jax._src.xla_bridge": ("fxad.as_jax.private",),
    "jaxlib": (),
    "jaxlib._jax": ("fxad.as_jax.private",),
    "jaxlib.xla_client": ("fxad.as_jax.private",),
}

MODULES |= {f"jax.scipy.stats.{name}": (f"fxad.scipy.stats:{name}",) for name in _STATS}

ELSEWHERE: dict[str, str] = {
    "jax.__version__": "fxad.as_jax.toplevel:__version__",
    "jax.__version_info__": "fxad.as_jax.toplevel:__version_info__",
    "jax.Shard": "fxad.api.placement:Shard",
    "jax.Device": "fxad.api.ported:Device",
    "jax.NamedSharding": "fxad.sharding:NamedSharding",
    "jax.Ref": "fxad.as_jax.refs:Ref",
    "jax.experimental.cur_qdd": "fxad.as_jax.hijax:cur_qdd",
    "jax.new_ref": "fxad.as_jax.refs:new_ref",
    "jax.P": "fxad.sharding:PartitionSpec",
    "jax.ad_checkpoint.print_saved_residuals": "fxad.debug:print_saved_residuals",
    "jax.test_util.check_jvp": "fxad.api.check_grads:check_jvp",
    "jax.test_util.check_vjp": "fxad.api.check_grads:check_vjp",
    "jax.errors.JAXIndexError": "fxad.errors:IndexOutOfRange",
    "jax.errors.JAXTypeError": "fxad.errors:TypeMismatch",
    "jax.errors.JaxRuntimeError": "fxad.errors:FxadError",
    "jax.interpreters.partial_eval.DynamicJaxprTracer": "fxad.trace.tracer:Tracer",
    "jax.interpreters.batching.moveaxis": "fxad.numpy:moveaxis",
    "jax.interpreters.batching.not_mapped": "fxad.as_jax.batching:not_mapped",
    "jax.core.pytype_aval_mappings": "fxad.as_jax.private:pytype_aval_mappings",
    "jax.interpreters.xla.canonicalize_dtype_handlers": (
        "fxad.as_jax.private:canonicalize_dtype_handlers"
    ),
    "jaxlib.__version__": "fxad.as_jax.toplevel:__version__",
    "jax.interpreters.xla.apply_primitive": "fxad.as_jax.primitives:apply_primitive",
    "jax.lax.dtype": "fxad.as_jax.toplevel:dtype_of",
    "jax.version.__version__": "fxad.as_jax.toplevel:__version__",
    "jax.version.__version_info__": "fxad.as_jax.toplevel:__version_info__",
    "jax.lax.empty": "fxad.numpy:zeros",
    "jax.lax.with_sharding_constraint": "fxad.sharding:with_sharding_constraint",
    "jax.profiler.ProfileOptions": "fxad.as_jax.toplevel:ProfileOptions",
    "jax.make_mesh": "fxad.sharding:make_mesh",
    "jax.numpy.ComplexWarning": "numpy.exceptions:ComplexWarning",
    "jax.numpy.character": "numpy:character",
    "jax.numpy.flexible": "numpy:flexible",
    "jax.numpy.float8_e4m3fnuz": "ml_dtypes:float8_e4m3fnuz",
    "jax.numpy.float8_e5m2fnuz": "ml_dtypes:float8_e5m2fnuz",
    "jax.numpy.i0": "fxad.scipy.special:i0",
    "jax.numpy.object_": "numpy:object_",
    "jax.reshard": "fxad.sharding:reshard",
    "jax.set_mesh": "fxad.sharding:set_mesh",
    "jax.stages.Compiled": "fxad.api.stages:Compiled",
    "jax.stages.Lowered": "fxad.api.stages:Lowered",
    "jax.stages.ArgInfo": "fxad.api.stages:ArgInfo",
    "jax.stages.Traced": "fxad.api.stages:Traced",
    "jax.stages.Wrapped": "fxad.api.jit:Jit",
}

# Names that were in `jax.core` before they moved to `jax.extend.core`: older code has them there.
_MOVED = (
    "ClosedJaxpr DebugInfo DropVar Effect Effects Jaxpr JaxprEqn Literal Primitive Var gensym "
    "jaxpr_as_fun jaxprs_in_params mapped_aval new_jaxpr_eqn no_effects subjaxprs unmapped_aval "
    "unsafe_get_axis_names_DO_NOT_USE"
).split()
ELSEWHERE |= {f"jax.core.{name}": f"fxad.as_jax.core:{name}" for name in _MOVED}

# What is the same by name and differs otherwise. Signatures: tests/api/test_signatures.py.
DIFFERS: dict[str, str] = {
    **dict.fromkeys(
        ("jax.Ref", "jax.ref.AbstractRef", "jax.ref.Ref"),
        "for `isinstance`: there are no mutable arrays, to make one is an error",
    ),
    **dict.fromkeys(
        ("jax.new_ref", "jax.ref.new_ref"), "an error when called: there are no mutable arrays"
    ),
    "jax.experimental.cur_qdd": "an error when called: there are no values of hijax types",
    **dict.fromkeys(
        [f"jax.experimental.sparse.{name}" for name in ("BCOO", "BCSR", "JAXSparse")],
        "for `isinstance`: there are no sparse arrays, to make one is an error",
    ),
    "jax.experimental.sparse.sparsify": "the function itself: there are no sparse arrays",
    "jax.interpreters.partial_eval.DynamicJaxprTracer": "the class of all tracers",
    "jax._src.source_info_util.user_context": "accepted, without effect",
    "jax.interpreters.batching.register_vmappable": (
        "without effect: `vmap` takes values of the class as the pytrees they are"
    ),
    "jax.interpreters.mlir.LoweringRuleContext": "never made: no rule that builds MLIR is called",
    "jax.interpreters.xla.canonicalize_dtype_handlers": (
        "written to without effect: what has `__jax_array__` is taken as an array"
    ),
    "jax.experimental.layout.Layout": "row after row; another is an error when made",
    "jax.experimental.mesh_utils.create_device_mesh": "of one device",
    "jax.experimental.checkify.check": "compiled outside `checkify` it raises when it runs",
    "jax.experimental.checkify.checkify": "of failures of several kinds the first in time counts",
    "jax.experimental.checkify.index_checks": "what a `mode=` says of indices is no failure",
    "jax.custom_batching.custom_vmap": "has a reverse mode: that of the function",
    "jax.custom_vjp": "has a forward mode: the function's, or its `defjvp`",
    "jax.debug_key_reuse": "accepted, without effect",
    "jax.default_prng_impl": "without effect, which a warning says: keys are threefry2x32",
    "jax.explain_cache_misses": "accepted, without effect; see `fxad.debug.explain_retrace`",
    "jax.jit": "several devices are an error",
    "jax.lax.cond": "under vmap lanes run one by one where a branch holds a loop or an effect",
    "jax.lax.while_loop": "has a reverse mode",
    "jax.threefry_partitionable": "False is without effect, which a warning says",
    "jax.log_compiles": "accepted, without effect; see `fxad.debug.explain_retrace`",
    "jax.make_jaxpr": "equations are those of fxad's ops; those of JAX have its names",
    "jax.numpy.floor_divide": "an integer divided by 0 is 0",
    "jax.numpy.fromfile": "reads a file, into memory that the array keeps; JAX raises",
    "jax.numpy.histogram": "counts are integers unless weighted",
    "jax.numpy.linalg.norm": "the slope at 0 is 0, not NaN",
    "jax.numpy.std": "the slope at 0 is 0, not NaN",
    "jax.lax.reduce_window": "equal elements of a maximum share the gradient",
    "jax.pmap": "of one device: the mapped axis has length 1",
    "jax.shard_map": "of one device: axes of the mesh have length 1",
    "jax.profiler.ProfileOptions": "accepted, without effect",
    "jax.stages.Compiled": "costs are a dictionary, of floating-point operations",
    "jax.stages.Lowered": "there is no HLO: `as_text` gives fxad's program",
}

_DEVICES = "there is one device, the CPU; `jax.vmap` maps lanes"
_PROGRAMS = "programs are `fxad.ir` Programs; an op is a record (docs/add-an-op.md)"
_TRACES = "what records, differentiates and batches is fxad's own"
_REFS = "there are no mutable arrays"
_XLA = "there is no XLA: kernels are compiled by fxad itself"
_HELPER = "a helper of JAX's own code"
UNWRITTEN = "not written"
# Why a name is not here: the first pattern that matches the whole name.
ABSENT: tuple[tuple[str, str], ...] = (
    (r"jax\.(smap|distributed.*|make_array_from_single.*|auto_pcast)", _DEVICES),
    (r"jax\.(Ref|ref|ref\..*|new_ref|empty_ref|free_ref|freeze)", _REFS),
    (r"jax\.(ffi.*|lib|export.*|print_environment_info|memory)", _XLA),
    (r"jax\.experimental\.pallas.*", "kernels cannot be written by hand: fxad generates them"),
    (r"jax\.experimental\.(shard.*|mesh_utils.*|layout.*|custom_partitioning.*)", _DEVICES),
    (r"jax\.experimental\.(compute_on|control_deps|serialize_exec|xla|buffer|comp|mos).*", _XLA),
    (r"jax\.lax\.(pbroadcast|pcast|precv|psend|ragged_all_to_all|all_gather_.*)", _DEVICES),
    (r"jax\.lax\.(after_all|create_token|composite|dce_sink|stage|shape_as_value)", _XLA),
    (r"jax\.lax\.(rng_.*|RandomAlgorithm)", "the generator is Threefry"),
    (r"jax\.lax\.(AccuracyMode|Tolerance)", "functions have one accuracy"),
    (r".*_p", _PROGRAMS),
    (r"jax\.interpreters\.mlir\..*", _XLA),
    (r"jax\.(core|extend|interpreters)(\..*)?", _TRACES),
    (r"jax\.debug\.(visualize|inspect).*", _DEVICES),
    (r"jax\.(sharding|dlpack)\..*", _DEVICES),
    (r"jax\.numpy\.(u?int[124]|float[468]_.*)", "arrays have no element of this width"),
    (r"jax\.numpy\.from.*", "call NumPy's, outside traced functions"),
    (r"jax\.monitoring.*", "`fxad.debug.explain_retrace` says why a function is traced"),
    (r"jax\.profiler\..*memory.*", "`jit(f).lower(x).memory()` says what a run takes"),
    (r"jax\.profiler.*|jax\.experimental\.profiler.*", "`trace` writes a file; there is no server"),
    (r"jax\.experimental\.sparse.*", "`fxad.sparse_jacobian` has a format of its own"),
    (r"jax\.example_libraries\..*\.(map|zip|safe_map|safe_zip|unzip2)", _HELPER),
    (r"jax\.experimental\.ode\..*", "a part of the solver; `odeint` is here"),
)


def why(full: str) -> str:
    """Why a name of JAX ("jax.smap") is not in fxad."""
    return next((why for pattern, why in ABSENT if re.fullmatch(pattern, full)), UNWRITTEN)
