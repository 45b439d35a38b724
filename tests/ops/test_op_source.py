"""to_python: source that computes what the interpreter computes, bit for bit, without fxad."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import contracts, listed, samples

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import TypeMismatch
from fxad.ir.inspection.functions import Definitions
from fxad.ir.inspection.python import to_python
from fxad.ir.program import OPS, Eqn, Lit, Program, Var
from fxad.ir.rewrite import evaluate
from fxad.trace.execute import concrete
from fxad.trace.tracer import type_of

X = np.array([0.3, -1.2, 2.0], np.float32)


def runs(program: Program) -> Any:
    """The function that the program's source defines; the source does not mention fxad."""
    text = to_python(program)
    assert "fxad" not in text
    namespace: dict[str, Any] = {}
    exec(compile(text, "source", "exec"), namespace)
    return namespace[program.name]


def same_bits(program: Program, args: list[Any], **consts: Any) -> None:
    got = listed(runs(program)(*args, **consts))
    wanted = evaluate(program, args, list(consts.values()))
    assert len(got) == len(wanted)
    for g, w in zip(map(np.asarray, got), map(np.asarray, wanted), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.tobytes() == w.tobytes()


def traced(function: Any, *args: Any) -> None:
    program = fxad.make_ir(function)(*args).program.closed()
    assert len(program.inputs) == len(fxad.tree.leaves(args)), "captures something"
    same_bits(program, [concrete(v) for v in fxad.tree.leaves(args)])


DTYPES: dict[str, list[np.dtype]] = {}
for name, dtype in contracts():
    DTYPES.setdefault(name, []).append(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_every_sample_of_every_op(name: str) -> None:
    """Those of all dtypes in one program, whose definitions do not depend on the dtype."""
    op = OPS[name]
    inputs, values, eqns, outputs = [], [], [], []
    for sample in (s for dtype in DTYPES[name] for s in samples(op, dtype)):
        atoms = [a if isinstance(a, Lit) else Var(type_of(a)) for a in sample.args]
        types = listed(op.type(*[a.type for a in atoms], **sample.params))
        results = tuple(Var(t) for t in types)
        eqns.append(Eqn(op, tuple(atoms), sample.params, results))
        inputs += [a for a in atoms if isinstance(a, Var)]
        values += [concrete(a) for a in sample.args if not isinstance(a, Lit)]
        outputs += results
    same_bits(Program(inputs, eqns, outputs, "f"), values)


def test_gradients_of_elementary_functions() -> None:
    w, x = np.ones((4, 2), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    traced(fxad.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2)), w, x)
    traced(fxad.hessian(lambda x: jnp.prod(jnp.sin(x))), X)
    traced(fxad.vmap(fxad.grad(lambda x: jnp.linalg.norm(x))), x)


def looped(x: Any) -> Any:
    def step(state: Any) -> Any:
        return state[0] * 2, jnp.sin(state[1]) * state[0]

    return lax.while_loop(lambda s: s[0] < 10, step, (jnp.abs(x[0]), x))[1].sum()


def scanned(x: Any) -> Any:
    def body(c: Any, v: Any) -> Any:
        inner = lax.cond(v > 0, jnp.sin, lambda v: v * c, v)
        return c * inner, inner

    last, all_of_it = lax.scan(body, x[0], x)
    return last + all_of_it.sum()


@pytest.mark.parametrize("f", [looped, scanned])
def test_loops_branches_and_calls_forward_and_backward(f: Any) -> None:
    traced(f, X)
    traced(fxad.grad(f), X)
    traced(fxad.jit(fxad.grad(fxad.checkpoint(f))), X)
    traced(lambda x: fxad.jvp(f, (x,), (x,)), X)


def test_custom_rules_are_the_function_itself() -> None:
    @fxad.custom_vjp
    def f(x: Any) -> Any:
        return jnp.exp(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * x,))
    traced(lambda x: f(x).sum(), X)
    traced(fxad.grad(lambda x: f(x).sum()), X)


def test_captured_arrays_and_callbacks_are_keyword_arguments() -> None:
    table = jnp.asarray(X)
    program = fxad.make_ir(lambda x: x * table)(X).program
    same_bits(program, [X], b=X)

    def noisy(x: Any) -> Any:
        fxad.debug.callback(seen.append, x)
        return x * 2

    seen: list[Any] = []
    function = runs(fxad.make_ir(noisy)(X).program)
    function(X, append=lambda x: seen.append(x) or ())
    np.testing.assert_array_equal(seen, [X])


def test_numbers_of_every_kind_survive() -> None:
    traced(lambda x: (x + np.inf, x * np.nan, x - 0.1, x + (1e-45), jnp.where(x > 1, x, -0.0)), X)
    traced(lambda x: x * (1 + 2j), X)
    traced(lambda x: jnp.asarray(x, "bfloat16") * 3.1, X)


def test_long_programs_have_names_that_collide_with_nothing() -> None:
    def f(x: Any) -> Any:
        for _ in range(900):  # a, ..., do, if, dot, eq: some are ops, some are keywords
            x = x * 1.01
        return jnp.dot(x, x) + jnp.exp(x).sum()

    traced(f, X)


def test_the_module_runs_where_fxad_is_not_installed(tmp_path: Path) -> None:
    printed = fxad.make_ir(fxad.grad(lambda x: jnp.sum(jnp.tanh(x))))(X)
    program = f"{printed.to_python()}\nprint(grad_f(np.array({X.tolist()}, np.float32)).tolist())"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(evaluate(printed.program, [X])[0].tolist())


def test_captured_arrays_are_defaults() -> None:
    known = [
        np.array([[1.5, np.nan], [-0.0, np.inf]], np.float32),
        np.array([1 + 2j, complex(np.inf, -0.0)], np.complex64),
        np.array([True, False]),
        np.asarray(jnp.asarray([0.1, 3.0], "bfloat16")),
        np.arange(1001.0, dtype=np.float32),
    ]

    def f(x: Any) -> Any:
        return [x[0] + jnp.asarray(v) for v in known]

    printed = fxad.make_ir(f)(X)
    namespace: dict[str, Any] = {}
    exec(printed.to_python(), namespace)
    large = [v for v in printed.captured if v.size > 1000]
    function = namespace["f"]
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "a"]
    (name,) = [p.name for p in parameters if p.default is p.empty]
    assert len(parameters) == len(known)
    got = function(X, **{name: np.asarray(large[0])})
    for g, w in zip(got, evaluate(printed.program, [X], list(printed.captured)), strict=True):
        assert np.asarray(g).tobytes() == np.asarray(w).tobytes()


def test_a_value_without_source_is_an_error_that_says_so() -> None:
    op = OPS["exp"]
    broken = type(op)("broken", type=op.type, numpy=[object()])
    x = Var(type_of(X))
    with pytest.raises(TypeMismatch, match="has no source"):
        to_python(Program([x], [Eqn(broken, (x,), {}, (Var(x.type),))], [x]))


def test_optimised_programs_and_offloaded_values() -> None:
    policy = fxad.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    w = np.linspace(-1, 1, 128 * 128, dtype=np.float32).reshape(128, 128)

    def f(x: Any) -> Any:
        return jnp.sum(fxad.checkpoint(lambda x: jnp.sin(jnp.tanh(x @ x)), policy=policy)(x))

    lowered = fxad.jit(fxad.grad(f)).lower(w)
    assert {"put", "take"} <= {e.op.name for e in lowered.program.eqns}
    [wanted] = evaluate(lowered.traced, [w])
    np.testing.assert_array_equal(runs(lowered.program)(w), wanted)


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_can_be_written(name: str) -> None:
    if name in ("put", "take", "captured"):  # the first two are tested above
        return
    assert Definitions().name(OPS[name].numpy, name)


def test_functions_may_have_names_of_pythons_own() -> None:
    for function, name in ((jnp.sum, "sum_"), (jnp.max, "max_"), (jnp.exp, "exp")):
        program = fxad.make_ir(function)(X).program
        namespace: dict[str, Any] = {}
        exec(to_python(program), namespace)
        np.testing.assert_array_equal(namespace[name](X), evaluate(program, [X])[0])
