"""The types of results of JAX's functions, weak types among them, as JSON.

    python tests/as_jax/result_types.py                     # of JAX
    python -m fxad.as_jax tests/as_jax/result_types.py      # of fxad

Every public function of a few modules is called with the same few arguments: those that it takes
say something about promotion.
"""

import json
import sys
import warnings

import jax
import jax.nn
import jax.numpy as jnp
import jax.scipy.special
from jax import lax

warnings.simplefilter("ignore")
MODULES = {
    "numpy": jnp,
    "numpy.linalg": jnp.linalg,
    "nn": jax.nn,
    "scipy.special": jax.scipy.special,
    "lax": lax,
}
# They read or write files, or take no arrays.
LEFT_OUT = {"load", "save", "savez", "set_printoptions", "printoptions", "fromfile", "fromstring"}

weak, weak_int, weak_matrix = jnp.full(4, 0.5), jnp.full(4, 2), jnp.full((4, 4), 0.5)
strong, half = jnp.ones(4), jnp.ones(4, "bfloat16")
ARGUMENTS = {
    "weak": (weak,),
    "weak int": (weak_int,),
    "weak matrix": (weak_matrix,),
    "weak, weak": (weak, weak),
    "weak int, weak": (weak_int, weak),
    "weak int, weak int": (weak_int, weak_int),
    "weak, strong": (weak, strong),
    "half, weak": (half, weak),
    "weak, 2": (weak, 2),
    "[weak, weak]": ([weak, weak],),
    "2.0": (2.0,),
    "2": (2,),
    "2.0, 3.0": (2.0, 3.0),
    "int8": (jnp.array([1, 2, 1, 0], "int8"),),
    "bool": (jnp.array([True, False]),),
    "half": (half,),
    "int8 matrix": (jnp.array([[2, 1], [1, 3]], "int8"),),
    "int8, int8": (jnp.array([1, 2], "int8"), jnp.array([1, 2], "int8")),
    "half, float32": (half, strong),
    "int8, 1.5": (jnp.array([1, 2], "int8"), 1.5),
}
w = weak
PROGRAMS = {
    "x[0]": lambda: w[0],
    "x[:2]": lambda: w[:2],
    "x[i]": lambda: w[jnp.array([0, 1])],
    "x[None].T": lambda: w[None].T,
    "iteration": lambda: list(w),
    "at.set": lambda: w.at[0].set(1.0),
    "at.set of a strong number": lambda: w.at[0].set(strong[0]),
    "at.add": lambda: w.at[jnp.array([0, 0])].add(2.0),
    "at[mask]": lambda: w.at[w > 0].set(1.0),
    "astype": lambda: w.astype(jnp.float32),
    "full": lambda: jnp.full(3, 1.0),
    "zeros_like": lambda: jnp.zeros_like(w),
    "full_like": lambda: (jnp.full_like(w, 2.0), jnp.full_like(w, strong[0])),
    "where": lambda: (jnp.where(w > 0, w, 0), jnp.where(w > 0, strong, 0.0)),
    "products": lambda: (weak_matrix @ w, w @ strong, jnp.einsum("ij->ji", weak_matrix)),
    "grad": lambda: jax.grad(lambda x: x * x)(1.0),
    "grad of weak": lambda: jax.value_and_grad(lambda x: (x * x).sum())(w),
    "grad of strong": lambda: jax.grad(lambda x: (x * 2.0).sum())(strong),
    "vjp": lambda: jax.vjp(lambda x: x * x, 1.0)[1](1.0),
    "jvp": lambda: jax.jvp(lambda x: jnp.sin(x) * x, (w,), (w,)),
    "linearize": lambda: jax.linearize(lambda x: jnp.sin(x) * x, w)[1](w),
    "jacobians": lambda: (jax.jacfwd(jnp.sin)(w), jax.jacrev(jnp.sin)(w)),
    "hessian": lambda: jax.hessian(lambda x: (x * x).sum())(w),
    "second derivative": lambda: jax.jvp(jax.grad(lambda x: x**3), (2.0,), (1.0,)),
    "vmap": lambda: jax.vmap(lambda x: (x * 2, x.sum()))(weak_matrix),
    "jit": lambda: jax.jit(lambda x: (x, x * 2, x.reshape(2, 2), 1.0))(w),
    "checkpoint": lambda: jax.checkpoint(lambda x: x * 2)(w),
    "custom_vjp": lambda: doubled(w),
    "scan": lambda: lax.scan(lambda c, x: (c + x, c), 0.0, w),
    "scan over strong": lambda: lax.scan(lambda c, x: (c + x, c), 0.0, strong),
    "fori_loop": lambda: lax.fori_loop(0, 3, lambda i, c: c * 2, w),
    "while_loop": lambda: lax.while_loop(lambda c: c < 3, lambda c: c * 2, 1.0),
    "cond": lambda: lax.cond(True, lambda x: x, lambda x: x * strong[0], 1.0),
    "sort of two": lambda: lax.sort((w, strong), num_keys=1),
    "reduce": lambda: (lax.reduce(w, 0.0, lax.add, (0,)), lax.reduce_max(w, (0,))),
    "ravel_pytree": lambda: jax.flatten_util.ravel_pytree({"a": 1.0, "b": w})[0],
    "callback": lambda: jax.pure_callback(lambda x: x, w, w),
    "folds": lambda: (jnp.add.reduce(w), jnp.add.outer(w, w), jnp.maximum.accumulate(strong)),
}


@jax.custom_vjp
def doubled(x):
    return x * 2


doubled.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 2,))


def types(function, *args):
    """Dtype, weakness and shape of each result; None where the function fails."""
    try:
        leaves = jax.tree_util.tree_leaves(jax.eval_shape(lambda: function(*args)))
        return [[str(v.dtype), v.weak_type, list(v.shape)] for v in leaves]
    except Exception:  # whatever it does not take, or no arrays
        return None


def all_types():
    found = {}
    for module_name, module in MODULES.items():
        for name in dir(module):
            function = getattr(module, name, None)
            known = not name.startswith("_") and name not in LEFT_OUT and name[0].islower()
            if not known or not callable(function) or isinstance(function, type):
                continue
            for what, args in ARGUMENTS.items():
                found[f"{module_name}.{name}({what})"] = types(function, *args)
    for name, program in PROGRAMS.items():
        found[name] = types(program)
        found[f"jit: {name}"] = types(jax.jit(program))
    return found


if __name__ == "__main__":
    import jax.flatten_util

    json.dump(all_types(), sys.stdout)
