"""fxad: function transformations for arrays, compiled to native code.

import fxad
import fxad.numpy as jnp

loss = lambda w, x, y: jnp.mean((x @ w - y) ** 2)
step = fxad.jit(lambda w, x, y: w - 0.1 * fxad.grad(loss)(w, x, y))
"""

from typing import TYPE_CHECKING

from fxad.core.collecting import while_importing as _while_importing

with _while_importing():
    from fxad import ops as _ops  # noqa: F401 - fills the table of ops
    from fxad.transform import rules as _rules  # noqa: F401 - hands ops the transforms

    # isort: split
    from fxad import numpy, tree, tree_util
    from fxad.api import above as _above
    from fxad.api.autodiff import grad, jvp, linear_transpose, linearize, value_and_grad, vjp
    from fxad.api.compiled import disable_jit
    from fxad.api.custom import custom_jvp, stop_gradient
    from fxad.api.custom_rules import Perturbed, SymbolicZero
    from fxad.api.custom_vjp import custom_vjp
    from fxad.api.jit import jit
    from fxad.api.machine import bits_depend_on, get_num_threads, set_num_threads
    from fxad.api.override import override
    from fxad.api.ported import NOT_HERE as _NOT_HERE
    from fxad.api.ported import (
        block_until_ready,
        default_backend,
        device_count,
        device_get,
        device_put,
        devices,
        local_device_count,
        local_devices,
        named_call,
        named_scope,
        process_count,
        process_index,
    )
    from fxad.api.retrace import no_tracing
    from fxad.api.traces import clear_caches
    from fxad.api.vectorise import vmap
    from fxad.core.config import config
    from fxad.core.dtypes import enable_x64, float0
    from fxad.core.lazy import later as _later
    from fxad.core.lazy import lazy as _lazy
    from fxad.core.precision import default_matmul_precision
    from fxad.core.tracebacks import install as _install_tracebacks
    from fxad.trace.array import Array
    from fxad.trace.leaks import checking_leaks
    from fxad.trace.tracer import ensure_compile_time_eval
    from fxad.trace.tracer import type_of as typeof

_install_tracebacks()

_above.jaxprs = _later("fxad.api.jaxpr")

if TYPE_CHECKING:
    from fxad import (
        checkify,
        custom_batching,
        custom_derivatives,
        debug,
        dtypes,
        errors,
        flatten_util,
        image,
        lax,
        nn,
        profiler,
        random,
        scipy,
        sharding,
        show,
        typing,
    )
    from fxad.api.check_grads import check_grads
    from fxad.api.checkpoint import checkpoint, checkpoint_name, checkpoint_policies
    from fxad.api.checkpoint import checkpoint as remat
    from fxad.api.closures import closure_convert, custom_gradient
    from fxad.api.curvature import gnvp, hessian_diag, hvp
    from fxad.api.derived import (
        ShapeDtypeStruct,
        eval_shape,
        hessian,
        jacfwd,
        jacobian,
        jacrev,
        make_ir,
    )
    from fxad.api.error_estimate import estimate_error
    from fxad.api.explain import explain
    from fxad.api.jaxpr import make_jaxpr
    from fxad.api.outline import outline
    from fxad.api.precision import suggest_precision
    from fxad.api.profile import profile
    from fxad.api.sparse import SparseMatrix, Sparsity, sparse_hessian, sparse_jacobian
    from fxad.api.tune import tune
    from fxad.debug import pure_callback
    from fxad.numpy.dynamic_slices import ds

# What not every program uses is loaded when it is first asked for.
if not TYPE_CHECKING:  # to a checker, what is not imported above is not there
    __getattr__, __dir__ = _lazy(
        globals(),
        {
            "ShapeDtypeStruct": "fxad.api.shape_struct",
            "SparseMatrix": "fxad.api.sparse",
            "Sparsity": "fxad.api.sparse",
            "check_grads": "fxad.api.check_grads",
            "checkpoint": "fxad.api.checkpoint",
            "checkpoint_name": "fxad.api.checkpoint",
            "checkpoint_policies": "fxad.api.checkpoint",
            "closure_convert": "fxad.api.closures",
            "custom_gradient": "fxad.api.closures",
            "ds": "fxad.numpy.dynamic_slices",
            "estimate_error": "fxad.api.error_estimate",
            "eval_shape": "fxad.api.derived",
            "explain": "fxad.api.explain",
            "gnvp": "fxad.api.curvature",
            "hessian": "fxad.api.derived",
            "hessian_diag": "fxad.api.curvature",
            "hvp": "fxad.api.curvature",
            "jacfwd": "fxad.api.derived",
            "jacobian": "fxad.api.derived",
            "jacrev": "fxad.api.derived",
            "make_ir": "fxad.api.derived",
            "make_jaxpr": "fxad.api.jaxpr",
            "outline": "fxad.api.outline",
            "profile": "fxad.api.profile",
            "pure_callback": "fxad.debug",
            "remat": "fxad.api.checkpoint:checkpoint",
            "sparse_hessian": "fxad.api.sparse",
            "sparse_jacobian": "fxad.api.sparse",
            "suggest_precision": "fxad.api.precision",
            "tune": "fxad.api.tune",
        },
        modules=(
            "checkify",
            "custom_batching",
            "custom_derivatives",
            "debug",
            "dtypes",
            "errors",
            "flatten_util",
            "image",
            "lax",
            "nn",
            "profiler",
            "random",
            "scipy",
            "sharding",
            "show",
            "typing",
        ),
        missing=_NOT_HERE,
    )

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Perturbed",
    "ShapeDtypeStruct",
    "SparseMatrix",
    "Sparsity",
    "SymbolicZero",
    "bits_depend_on",
    "block_until_ready",
    "check_grads",
    "checkify",
    "checking_leaks",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "custom_batching",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "default_backend",
    "default_matmul_precision",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "ds",
    "dtypes",
    "enable_x64",
    "ensure_compile_time_eval",
    "errors",
    "estimate_error",
    "eval_shape",
    "explain",
    "flatten_util",
    "float0",
    "get_num_threads",
    "gnvp",
    "grad",
    "hessian",
    "hessian_diag",
    "hvp",
    "image",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "local_device_count",
    "local_devices",
    "make_ir",
    "make_jaxpr",
    "named_call",
    "named_scope",
    "nn",
    "no_tracing",
    "numpy",
    "outline",
    "override",
    "process_count",
    "process_index",
    "profile",
    "profiler",
    "pure_callback",
    "random",
    "remat",
    "scipy",
    "set_num_threads",
    "sharding",
    "show",
    "sparse_hessian",
    "sparse_jacobian",
    "stop_gradient",
    "suggest_precision",
    "tree",
    "tree_util",
    "tune",
    "typeof",
    "typing",
    "value_and_grad",
    "vjp",
    "vmap",
]
