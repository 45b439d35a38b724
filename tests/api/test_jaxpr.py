"""Jaxprs as interpreters see them: every public function's, walked as on JAX's page about them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from jit_cases import Case
from test_under_jit import ALL, _quiet_and_unchecked, batches, same, together  # noqa: F401

import fxad
import fxad.numpy as jnp
from fxad.api.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, eval_jaxpr, jaxpr_as_fun
from fxad.as_jax.builtin_primitives import mul_p, select_n_p
from fxad.ir.program import Opaque
from fxad.tree import leaves

X = np.linspace(0.1, 0.9, 5, dtype=np.float32)


def walked(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """The loop of "Writing custom Jaxpr interpreters in JAX", which believes multiple_results."""
    values: dict[Var, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if type(atom) is Literal else values[atom]

    values.update(zip(jaxpr.invars, args, strict=True))
    values.update(zip(jaxpr.constvars, consts, strict=True))
    for eqn in jaxpr.eqns:
        out = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        out = out if eqn.primitive.multiple_results else [out]
        values.update(zip(eqn.outvars, out, strict=True))
    return [*map(read, jaxpr.outvars)]


def rebuilt(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same from copies of its equations, and of those of the Jaxprs in their parameters."""

    def copied(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return rebuilt(value)
        return tuple(map(copied, value)) if type(value) is tuple else value

    def copy(eqn: JaxprEqn) -> JaxprEqn:
        return eqn.replace(params={k: copied(v) for k, v in eqn.params.items()})

    return closed.map_jaxpr(lambda jaxpr: jaxpr.replace(eqns=[*map(copy, jaxpr.eqns)]))


@pytest.mark.parametrize("batch", batches(ALL), ids=lambda b: b[0][0])
def test_every_functions_equations_can_be_bound_again(batch: list[tuple[str, Case]]) -> None:
    flat = [a for _, case in batch for a in case.arrays]

    def all_of(*given: Any) -> list[Any]:
        rest = iter(given)
        return leaves(together(batch, [tuple(next(rest) for _ in c.arrays) for _, c in batch]))

    closed = fxad.make_jaxpr(all_of)(*flat)
    again = rebuilt(closed)
    assert again.program.key() == closed.program.key()
    # Not compiled: what compiled programs give is in test_under_jit.py.
    wanted = all_of(*flat)
    assert not same(batch[0][0], walked(closed.jaxpr, closed.consts, *flat), wanted)
    traced = fxad.make_jaxpr(lambda *given: walked(closed.jaxpr, closed.consts, *given))(*flat)
    assert not same(batch[0][0], eval_jaxpr(traced.jaxpr, traced.consts, *flat), wanted)


def _both(f: Any, *args: Any) -> None:
    closed = fxad.make_jaxpr(f)(*args)
    given, wanted = leaves(args), leaves(f(*args))
    for found in (
        walked(closed.jaxpr, closed.consts, *given),
        fxad.jit(lambda *g: walked(closed.jaxpr, closed.consts, *g))(*given),
        eval_jaxpr(rebuilt(closed).jaxpr, closed.consts, *given),
    ):
        assert not same("f", found, wanted)


@fxad.custom_vjp
def _doubled(x):
    return jnp.sin(x)


_doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fxad.jit(jnp.sin)(x) * 2,
        lambda x: fxad.jit(lambda x: (jnp.sin(x), x))(x),
        lambda x: fxad.lax.scan(lambda c, t: (c + t, c * t), 0.0, x),
        lambda x: fxad.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        lambda x: fxad.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
        lambda x: fxad.grad(lambda x: fxad.lax.fori_loop(0, 3, lambda i, c: c * x, x).sum())(x),
        lambda x: fxad.vmap(fxad.grad(lambda x: jnp.where(x > 0.5, x * x, jnp.sin(x))))(x),
        lambda x: fxad.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x),
        lambda x: _doubled(x),
        lambda x: fxad.pure_callback(np.sin, fxad.ShapeDtypeStruct(x.shape, x.dtype), x),
        lambda x: fxad.lax.custom_linear_solve(lambda v: v * x, x, lambda mv, b: b / x),
    ],
)
def test_equations_with_programs_or_several_results(f: Any) -> None:
    _both(f, X)


@pytest.mark.parametrize("x", [0.5, np.float64(0.5), np.array(0.5), np.float32(0.5)], ids=repr)
def test_numbers_have_the_dtype_they_have_elsewhere(x: Any) -> None:
    closed = fxad.make_jaxpr(lambda x: jnp.exp(x) + 1.0)(0.5)
    for found in (eval_jaxpr(closed.jaxpr, [], x), jaxpr_as_fun(closed)(x)):
        assert found[0].dtype == np.float32
    if type(x) is not np.float64:  # a Literal has the dtype that is meant
        assert walked(closed.jaxpr, [], x)[0].dtype == np.float32
    (two,) = walked(fxad.make_jaxpr(lambda i: i + 1)(1).jaxpr, [], 1)
    assert two.dtype == np.int32


def test_derivatives_of_custom_rules_survive_a_walk() -> None:
    closed = fxad.make_jaxpr(_doubled)(X)
    slope = fxad.grad(lambda x: walked(closed.jaxpr, closed.consts, x)[0].sum())(X)
    np.testing.assert_allclose(slope, 2 * np.cos(X), rtol=1e-6)


def test_parameters_have_jaxs_names() -> None:
    def params(f: Any, *args: Any) -> dict[str, Any]:
        return fxad.make_jaxpr(f)(*args).eqns[-1].params

    a = np.ones((2, 3), "f4")
    assert params(lambda x: x**3, X) == {"y": 3}
    assert params(lambda x: x.astype("int32"), X) == {"new_dtype": np.dtype("int32")}
    assert params(lambda x: x[1:4:2], X) == {
        "start_indices": (1,),
        "limit_indices": (4,),
        "strides": (2,),
    }
    dot = params(lambda a, b: a @ b, a, a.T)
    assert dot["dimension_numbers"] == (((1,), (0,)), ((), ()))
    assert params(lambda x: fxad.lax.pad(x, 0.0, [(1, 2, 0)]), X) == {
        "padding_config": ((1, 2, 0),)
    }
    assert params(lambda a: jnp.argmax(a, axis=1), a)["axes"] == (1,)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fxad.jit(lambda x: jnp.exp(jnp.tanh(x)))(x),
        lambda x: fxad.checkpoint(lambda x: jnp.exp(jnp.tanh(x)))(x),
        lambda x: fxad.jit(lambda x: jnp.exp(fxad.jit(jnp.tanh)(x)))(x),
    ],
)
def test_an_interpreter_goes_into_calls_as_into_jaxs(f: Any) -> None:
    inverses = {"exp": jnp.log, "tanh": jnp.arctanh}

    def back(jaxpr: Jaxpr, y: Any) -> Any:
        known = dict(zip(jaxpr.outvars, [y], strict=True))
        for eqn in reversed(jaxpr.eqns):
            out = known[eqn.outvars[0]]
            match eqn.primitive.name:
                case "jit":
                    found = back(eqn.params["jaxpr"].jaxpr, out)
                case "remat":
                    found = back(eqn.params["jaxpr"], out)
                case name:
                    found = inverses[name](out)
            known[eqn.invars[0]] = found
        return known[jaxpr.invars[0]]

    inverse = lambda y: back(fxad.make_jaxpr(f)(y).jaxpr, y)  # noqa: E731
    np.testing.assert_allclose(inverse(f(X)), X, rtol=1e-5)
    slopes = fxad.vmap(fxad.grad(inverse))(f(X))
    np.testing.assert_allclose(slopes, 1 / fxad.vmap(fxad.grad(f))(X), rtol=1e-4)


def evaluated(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """An interpreter that goes into calls, branches and loops, as those written for JAX do."""
    lax, values = (
        fxad.lax,
        dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True)),
    )

    def inner(closed: ClosedJaxpr) -> Any:
        return lambda *given: evaluated(closed.jaxpr, closed.consts, *given)

    def applied(eqn: JaxprEqn, given: list[Any]) -> list[Any]:
        params = eqn.params
        match eqn.primitive.name:
            case "jit":
                assert params["name"]
                return inner(params["jaxpr"])(*given)
            case "remat":
                return evaluated(params["jaxpr"], (), *given)
            case "custom_jvp_call" | "custom_vjp_call":
                return inner(params["call_jaxpr"])(*given)
            case "cond":
                return lax.switch(given[0], [*map(inner, params["branches"])], *given[1:])
            case "while":
                test, body = inner(params["cond_jaxpr"]), inner(params["body_jaxpr"])
                n = params["cond_nconsts"]
                m = n + params["body_nconsts"]
                return lax.while_loop(
                    lambda state: test(*given[:n], *state)[0],
                    lambda state: body(*given[n:m], *state),
                    given[m:],
                )
            case "scan":
                n = params["num_consts"]
                m, body = params["num_carry"], inner(params["jaxpr"])

                def step(state: Any, xs: Any) -> Any:
                    out = body(*given[:n], *state, *xs)
                    return out[:m], out[m:]

                how = {name: params[name] for name in ("length", "reverse")}
                state, ys = lax.scan(step, given[n : n + m], given[n + m :], **how)
                return [*state, *ys]
        out = eqn.primitive.bind(*given, **params)
        return out if eqn.primitive.multiple_results else [out]

    def read(atom: Any) -> Any:
        return atom.val if type(atom) is Literal else values[atom]

    for eqn in jaxpr.eqns:
        values.update(zip(eqn.outvars, applied(eqn, [*map(read, eqn.invars)]), strict=True))
    return [*map(read, jaxpr.outvars)]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fxad.lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, x),
        lambda x: fxad.lax.switch(x.argmax(), [jnp.sin, jnp.cos, jnp.exp], x),
        lambda x: fxad.lax.while_loop(
            lambda s: s[0] < x[1], lambda s: (s[0] + x[0], s[1] * x), (0.0, x)
        )[1],
        lambda x: fxad.lax.scan(lambda c, t: (c * t + x[0], c + x), x, x, reverse=True),
        lambda x: fxad.grad(
            lambda x: fxad.lax.scan(lambda c, t: (jnp.sin(c * t), t), x, x)[0].sum()
        )(x),
        lambda x: fxad.checkpoint(lambda x: fxad.jit(jnp.sin)(_doubled(x)))(x),
    ],
)
def test_an_interpreter_goes_into_branches_and_loops_as_into_jaxs(f: Any) -> None:
    closed = fxad.make_jaxpr(f)(X)
    wanted = leaves(f(X))
    assert not same("f", evaluated(closed.jaxpr, closed.consts, X), wanted)
    again = fxad.jit(lambda x: evaluated(closed.jaxpr, closed.consts, x))
    assert not same("f", again(X), wanted)


def test_the_cases_of_select_n_are_in_jaxs_order() -> None:
    """`lax.select_n(which, on_false, on_true)`, in equations and where its primitive is bound."""
    closed = fxad.make_jaxpr(lambda t, x, y: jnp.where(t, x, y))(X > 0.5, X, -X)
    (eqn,) = closed.eqns
    assert eqn.primitive is select_n_p
    _, x, y = closed.jaxpr.invars
    assert eqn.invars[1:] == [y, x]
    np.testing.assert_array_equal(select_n_p.bind(X > 0.5, X, -X), np.where(X > 0.5, -X, X))
    other = closed.jaxpr.replace(eqns=[eqn.replace(invars=[eqn.invars[0], x, y])])
    np.testing.assert_array_equal(
        eval_jaxpr(other, [], X > 0.5, X, -X)[0], np.where(X > 0.5, -X, X)
    )


def test_a_jaxpr_with_consts_can_be_put_into_a_parameter() -> None:
    closed = fxad.make_jaxpr(lambda x: fxad.jit(jnp.sin)(x))(X)
    (eqn,) = closed.eqns
    inner = fxad.make_jaxpr(lambda x: x + X)(X)
    assert inner.consts
    (name,) = [k for k, v in eqn.params.items() if isinstance(v, ClosedJaxpr)]
    other = closed.jaxpr.replace(eqns=[eqn.replace(params={**eqn.params, name: inner})])
    np.testing.assert_allclose(eval_jaxpr(other, [], X)[0], 2 * X, rtol=1e-6)
    np.testing.assert_allclose(fxad.jit(lambda x: eval_jaxpr(other, [], x)[0])(X), 2 * X, rtol=1e-6)


def test_opaque_parameters_differ_where_their_objects_do() -> None:
    same_ = [((1, "a"), (1, "a")), (2.5, 2.5), (float("nan"), float("nan")), (mul_p, mul_p)]
    for one, other in same_:
        assert Opaque(one) == Opaque(other)
        assert hash(Opaque(one)) == hash(Opaque(other))
    kinds = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), (True,), np.float32(1), np.float64(1), [1], {}]
    for i, one in enumerate(kinds):
        for j, other in enumerate(kinds):
            assert (Opaque(one) == Opaque(other)) == (i == j), (one, other)
    assert Opaque([1]) != Opaque([1])  # no hash: either may change
    kept = Opaque([1])
    assert copy.deepcopy(kept) != kept == Opaque(kept.value)
    assert pickle.loads(pickle.dumps(Opaque((1, 2.0)))) == Opaque((1, 2.0))


def test_opaque_parameters_print_on_one_line_without_addresses() -> None:
    values = (2.5, (1, 2.0), {"a": 1}, object(), "x" * 99, fxad.make_jaxpr(jnp.sin)(X), lambda: 0)
    sine = "{ lambda ; a:f32[5]. let b:f32[5] = sin a in (b,) }"
    texts = ["2.5", "(1, 2.0)", "{'a': 1}", "<object>", "<str>", sine, "<lambda>"]
    assert [repr(Opaque(v)) for v in values] == texts


# fxad's own parameters of ops that have JAX's name, and why JAX has no such.
OWN = {
    "custom_jvp_call": {"rule"},  # a function of fxad's
    "custom_vjp_call": {"fwd", "bwd"},
}


@pytest.mark.peers
def test_primitives_and_parameters_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    custom = [fxad.custom_jvp(fxad.numpy.sin), jax.custom_jvp(jax.numpy.sin)]
    for one in custom:
        one.defjvp(lambda primals, tangents: (primals[0], tangents[0]))

    def traced(which: int) -> list[Any]:
        m: Any = (fxad, jax)[which]
        lax = m.lax
        functions = [
            lambda x: x**3,
            lambda x: x.astype("int32"),
            lambda x: lax.slice(x, (1,), (4,), (2,)),
            lambda x: lax.pad(x, np.float32(0), [(1, 2, 0)]),
            lambda x: lax.argmax(x, 0, np.int32),
            lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ()))),
            lambda x: lax.broadcast_in_dim(x, (2, 5), (1,)),
            lambda x: lax.reshape(x, (5, 1)),
            lambda x: lax.rev(x, (0,)),
            lambda x: lax.concatenate([x, x], 0),
            lambda x: lax.iota(np.int32, 3),
            lambda x: lax.sort((x, x), num_keys=1),
            lambda x: lax.cumsum(x),
            lambda x: lax.transpose(lax.reshape(x, (5, 1)), (1, 0)),
            lambda x: lax.dynamic_slice(x, (np.int32(1),), (2,)),
            lambda x: lax.dynamic_update_slice(x, x[:2], (np.int32(1),)),
            lambda x: lax.reduce_max(x, (0,)),
            lambda x: lax.select(x > 0, x, -x),
            lambda x: lax.clamp(x, x, x),
            lambda x: m.jit(m.numpy.sin)(x),
            lambda x: m.checkpoint(m.numpy.sin)(x),
            lambda x: lax.scan(lambda c, t: (c + t, t), np.float32(0), x),
            lambda x: lax.while_loop(lambda c: c[0] > 1, lambda c: c, x),
            lambda x: lax.cond(x[0] > 0, m.numpy.sin, m.numpy.cos, x),
            custom[which],
        ]
        return [m.make_jaxpr(f)(X).eqns for f in functions]

    compared = set()
    for ours, theirs in zip(traced(0), traced(1), strict=True):
        known = {e.primitive.name: e for e in theirs}
        for eqn in ours:
            name = eqn.primitive.name
            if name not in known:
                continue
            compared.add(name)
            other = known[name]
            assert eqn.primitive.multiple_results == other.primitive.multiple_results, name
            assert [v.aval.shape for v in eqn.invars] == [v.aval.shape for v in other.invars], name
            assert set(eqn.params) <= set(other.params) | OWN.get(name, set()), name
            for key in set(eqn.params) & set(other.params):
                mine, its = eqn.params[key], other.params[key]
                if isinstance(mine, ClosedJaxpr | Jaxpr):
                    assert type(mine).__name__ == type(its).__name__, (name, key)
                elif key == "branches":
                    for one, another in zip(mine, its, strict=True):
                        ops = [[e.primitive.name for e in b.eqns] for b in (one, another)]
                        assert ops[0] == ops[1]
                elif isinstance(mine, int | tuple) and not isinstance(mine, bool):
                    assert repr(mine) == repr(its), (name, key)
    assert len(compared) >= 24, sorted(compared)


def test_programs_print_in_the_notation_of_jax() -> None:
    def f(n: Any, x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            return carry + row @ X[:3], row

        total, rows = fxad.lax.scan(step, 0.5, x)
        return fxad.lax.switch(n, [lambda y: y + 1.0, lambda y: y - 2.0], total), rows

    assert str(fxad.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)) == (
        "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }"
    )
    closed = fxad.make_jaxpr(f)(1, np.ones((4, 3), np.float32))
    assert str(closed) == repr(closed) == closed.pretty_print() == NOTATION.strip()
    assert repr(closed.jaxpr).startswith("{ lambda a:f32[3] b:f32[]; c:i32[] d:f32[4,3]. let")
    assert "program f(" in closed.text()
    top = fxad.make_jaxpr(lambda x: fxad.lax.top_k(x, 2)[0])(X)
    assert str(top) == "{ lambda ; a:f32[5]. let b:f32[2] _:i32[2] = top_k[k=2] a in (b,) }"
    assert str(fxad.make_jaxpr(lambda: 1)()) == "{ lambda ; . let  in (1:i32[],) }"


NOTATION = """
{ lambda a:f32[3]; b:i32[] c:f32[4,3]. let
    d:f32[] e:f32[4,3] = scan[
      jaxpr={ lambda ; f:f32[3] g:f32[] h:f32[3]. let
          i:f32[] = dot_general[
            dimension_numbers=(((0,), (0,)), ((), ()))
            preferred_element_type=float32
          ] h f
          j:f32[] = add g i
        in (j, h) }
      length=4
      num_carry=1
      num_consts=1
      reverse=False
    ] a 0.5:f32[] c
    k:f32[] = cond[
      branches=(
        { lambda ; l:f32[]. let m:f32[] = add l 1.0:f32[] in (m,) }
        { lambda ; n:f32[]. let o:f32[] = sub n 2.0:f32[] in (o,) }
      )
    ] b d
  in (k, e) }
"""


@pytest.mark.parametrize(
    "number",
    [1.5, 3, True, 2 + 1j, np.float16(0.5), jnp.bfloat16(0.25), np.float64(0.1), np.int64(7)],
)
def test_numbers_among_the_results_are_arrays(number: Any) -> None:
    captured = fxad.numpy.asarray(number, getattr(number, "dtype", None))
    for f in (lambda x: (captured, x * captured), lambda x: (number, x)):
        closed = fxad.make_jaxpr(f)(X)
        wanted = fxad.tree.leaves(f(X))
        for run in (
            lambda *a: eval_jaxpr(*a),
            lambda j, c, x: fxad.jit(eval_jaxpr, static_argnums=0)(j, c, x),
        ):
            for one, other in zip(run(closed.jaxpr, closed.consts, X), wanted, strict=True):
                expected = fxad.numpy.asarray(other)
                assert one.dtype == expected.dtype
                np.testing.assert_array_equal(np.asarray(one), np.asarray(expected))
