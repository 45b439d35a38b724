"""outline: recorded once, the bits and the plan of the plain function, what is recorded anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import ConcretizationError, TypeMismatch
from fxad.ir.program import Program, subprograms

R = np.random.default_rng(0)
LAYERS = [
    {"w": R.standard_normal((5, 5)).astype("f4"), "b": R.standard_normal(5).astype("f4")}
    for _ in range(4)
]
X = R.standard_normal((3, 5)).astype("f4")


def layer(p, x):
    return jnp.tanh(x @ p["w"] + p["b"])


def square_or_negative(x):
    return x * x if x > 0 else -x


def stack(layer, layers, x):
    for p in layers:
        x = layer(p, x)
    return jnp.sum(x * x)


def counted(function):
    """The function outlined, and a list that grows by one with each of its runs."""
    runs = []

    def counting(*args, **kwargs):
        runs.append(None)
        return function(*args, **kwargs)

    return fxad.outline(counting), runs


def called(program: Program) -> list[Program]:
    """The programs of all calls, those inside programs too."""
    found = []
    for eqn in program.eqns:
        for _, inner in subprograms(eqn):
            found += [inner] if eqn.op.name == "call" else []
            found += called(inner)
    return found


def program_of(function, *args) -> Program:
    return fxad.jit(function).lower(*args)._traced


def equal(a, b):
    fxad.tree.map(np.testing.assert_array_equal, a, b)


TRANSFORMED = {
    "value": lambda f: f,
    "grad": lambda f: fxad.grad(f, argnums=(0, 1)),
    "hvp": lambda f: lambda layers, x: fxad.grad(lambda x: jnp.sum(fxad.grad(f, 1)(layers, x)))(x),
    "jvp": lambda f: lambda layers, x: fxad.jvp(partial(f, layers), (x,), (x,)),
    "vmap": lambda f: fxad.vmap(f, in_axes=(None, 0)),
    "grad of vmap": lambda f: (
        lambda layers, x: fxad.grad(lambda ps: jnp.sum(fxad.vmap(f, in_axes=(None, 0))(ps, x)))(
            layers
        )
    ),
    "checkpoint": lambda f: fxad.grad(fxad.checkpoint(f)),
}


@pytest.mark.parametrize("how", list(TRANSFORMED))
def test_recorded_once_with_the_same_bits(how):
    outlined, runs = counted(layer)
    transform = TRANSFORMED[how]
    plain = fxad.jit(transform(partial(stack, layer)))
    made = fxad.jit(transform(partial(stack, outlined)))
    equal(made(LAYERS, X), plain(LAYERS, X))
    assert len(runs) == 1
    assert str(made.lower(LAYERS, X).plan) == str(plain.lower(LAYERS, X).plan)


def test_calls_of_one_program_forward_and_one_backward():
    outlined, _ = counted(layer)
    programs = called(program_of(fxad.grad(partial(stack, outlined)), LAYERS, X))
    assert len(programs) == 8
    assert len(set(programs)) <= 4  # the first layer's x and the last one's result are apart


def test_weights_are_no_results_of_the_forward_half():
    """What a derivative keeps of them is the caller's: nothing is copied."""

    @fxad.jit
    def affine(w, x):
        return jnp.tanh(x @ w)

    w = jnp.asarray(R.standard_normal((5, 5)).astype("f4"))
    _, pull = fxad.vjp(lambda x: affine(w, x), X)
    kept = [v for v in fxad.tree.leaves(pull) if v.shape == (5, 5)]
    assert len(kept) == 1
    assert np.shares_memory(np.asarray(kept[0]), np.asarray(w))

    outlined = fxad.outline(lambda w, x: jnp.tanh(x @ w))
    program = program_of(fxad.grad(lambda x: stack(outlined, [w, w], x)), X)
    forward = called(program)[0]
    assert not {*forward.inputs} & {*forward.outputs}


def test_other_types_numbers_and_trees_are_recorded_anew():
    def scaled(x, by, shift=None):
        return x * by if shift is None else x * by + shift

    outlined, runs = counted(scaled)

    @fxad.jit
    def f(x):
        found = [outlined(x, by) for by in (1, 1.0, True, 0.0, -0.0, 1, -0.0)]
        return *found, outlined(x[:2], 1), outlined(x, 1, shift=x), outlined(x, x)

    found = f(np.float32([1, 2, 3]))
    assert len(runs) == 8
    expected = [[1, 2, 3]] * 3 + [[0, 0, 0]] * 2 + [[1, 2, 3], [0, 0, 0]]
    equal(list(found), [*expected, [1, 2], [2, 4, 6], [1, 4, 9]])
    assert np.signbit(found[6]).all() and not np.signbit(found[3]).any()


def test_types_are_those_of_the_plain_function():
    def f(x):
        return x * 2, jnp.asarray(1.0), {"weak": x[0] * 0 + 3}

    outlined = fxad.outline(f)
    for given in (2.0 * jnp.ones(3, "bfloat16"), np.int8([1, 2])):
        plain, made = (fxad.jit(g).trace(given).out_info for g in (f, lambda x: outlined(x)))
        assert fxad.tree.leaves(plain) == fxad.tree.leaves(made)
    weak = fxad.jit(lambda x: outlined(jnp.asarray([1.0]) * x)[0] * np.float16(1))
    assert weak(3.0).dtype == jnp.float32


def test_traced_values_and_arrays_from_around_it():
    table = np.arange(5, dtype="f4")

    def f(x, y):
        @fxad.outline
        def layer(p, x):
            return jnp.sin(x * y) @ p["w"] + table

        return stack(layer, LAYERS, x)

    def plain(x, y):
        return stack(lambda p, x: jnp.sin(x * y) @ p["w"] + table, LAYERS, x)

    for number in (0, 1):
        equal(fxad.jit(fxad.grad(f, number))(X, X[0]), fxad.jit(fxad.grad(plain, number))(X, X[0]))


def test_levels_have_programs_of_their_own():
    """A loop's body is recorded on a level of its own, whose values mean nothing around it."""
    outlined, runs = counted(lambda x: jnp.sin(x) * 2)

    @fxad.jit
    def f(x):
        def body(x, _):
            return outlined(outlined(x)), None

        x, _ = lax.scan(body, outlined(x), length=2)
        return outlined(x)

    expected = X
    for _ in range(6):
        expected = np.sin(expected) * 2
    np.testing.assert_allclose(f(X), expected, rtol=1e-5)
    assert len(runs) == 2


def test_where_nothing_is_recorded_it_is_the_plain_function():
    outlined, runs = counted(square_or_negative)
    assert outlined(3.0) == 9 and outlined(-3.0) == 3
    assert fxad.grad(outlined)(3.0) == 6 and fxad.grad(outlined)(-3.0) == -1
    assert len(runs) == 4
    with pytest.raises(ConcretizationError, match=r"test_outline.py:\d+.* argument x of"):
        fxad.jit(fxad.outline(square_or_negative))(3.0)


def test_scopes_are_those_of_each_call():
    outlined, runs = counted(jnp.sin)

    def f(x):
        for name in ("first", "second", "first"):
            with fxad.named_scope(name):
                x = outlined(x)
        return x

    text = str(fxad.make_ir(f)(X).text(style="full"))
    assert text.count("in first") == 4 and text.count("in second") == 2  # calls, and inside
    assert len(runs) == 2


def test_nothing_leaks():
    outlined = fxad.outline(layer)
    with fxad.checking_leaks():
        fxad.jit(fxad.grad(partial(stack, outlined)))(LAYERS, X)


def test_what_is_no_array_is_refused():
    outlined = fxad.outline(lambda x, how: x if how == "plain" else -x)
    with pytest.raises(TypeMismatch, match=r"outline\(f\): args\[1\] is a str.*partial"):
        fxad.jit(lambda x: outlined(x, "plain"))(X)
    with pytest.raises(TypeMismatch, match="expected a function"):
        fxad.outline(3)


def test_numbers_stay_numbers_in_results_too():
    outlined = fxad.outline(lambda n, x: (n, x.shape[0], -x))
    made = fxad.jit(lambda x: jnp.ones(outlined(2, x)[:2]) * outlined(2, x)[2][0])
    assert made(X[0]).shape == (2, 5)


def test_what_is_known_stays_known():
    """Where Python may look at values around it: in no lane, and in `ensure_compile_time_eval`."""
    outlined = fxad.outline(square_or_negative)
    equal(fxad.vmap(lambda x: x * outlined(jnp.asarray(3.0)))(X[0]), X[0] * 9)

    def first(x):
        with fxad.ensure_compile_time_eval():
            n = int(outlined(jnp.asarray(2)))
        return x[:n]

    assert fxad.jit(first)(X[0]).shape == (4,)


def test_values_that_no_lane_changes_are_known():
    """Outside `jit` also those from around the function, and a derivative's."""
    w = jnp.ones(3)
    outlined = fxad.outline(lambda x: x * (2 if jnp.sum(w) > 0 else 3))
    equal(fxad.vmap(outlined)(X), 2 * X)
    square = fxad.outline(square_or_negative)

    def loss(a):
        return jnp.sum(fxad.vmap(lambda x: x * square(a))(X[0]))

    np.testing.assert_allclose(fxad.grad(loss)(3.0), 6 * X[0].sum(), rtol=1e-5)


def test_float0_is_part_of_the_structure():
    nothing = np.zeros(5, fxad.float0)
    outlined = fxad.outline(lambda z, n, x: (z, n, x * n))
    made = fxad.jit(lambda x: outlined(nothing, 2, x)[1:])
    equal(made(X), (2, X * 2))


def test_callables_that_are_equal_and_differ():
    @dataclass(frozen=True)
    class Scale:
        by: float
        names: list = field(default_factory=list)

        def __call__(self, x):
            return x / self.by

    @dataclass(frozen=True)
    class Plain:
        by: float

        def __call__(self, x):
            return x / self.by

    def both(x):
        return fxad.outline(Plain(0.0))(x), fxad.outline(Plain(-0.0))(x), fxad.outline(Scale(2))(x)

    found = fxad.jit(both)(np.float32(1))
    assert [float(v) for v in found] == [np.inf, -np.inf, 0.5]


def test_wrapped_again_it_is_the_same():
    outlined, runs = counted(layer)
    again = fxad.outline(outlined.__wrapped__), fxad.outline(outlined.__wrapped__)
    fxad.jit(lambda x: again[1](LAYERS[1], again[0](LAYERS[0], x)))(X)
    assert len(runs) == 1


def test_nodes_of_any_kind():
    class Scale:
        def __init__(self, by):
            self.by = float(by) if not isinstance(by, fxad.Array) else by

    fxad.tree_util.register_pytree_node(Scale, lambda s: ((s.by,), None), lambda _, c: Scale(*c))
    outlined = fxad.outline(lambda s, x: x * s.by)
    equal(
        fxad.jit(lambda x: outlined(Scale(3), x) + outlined(Scale(x[0]), x))(X[0]),
        X[0] * 3 + X[0] * X[0][0],
    )


def masked(q, k, v, mask):
    return fxad.nn.softmax(jnp.where(mask, q @ k.T * 0.3, -jnp.inf)) @ v


@pytest.mark.parametrize("mask", ["triangle", "argument"])
@pytest.mark.parametrize("derive", [False, True])
def test_masks_from_around_the_layers(mask, derive):
    """A constant one is seen to be causal, and one that all layers read is no obstacle."""
    xs = [R.standard_normal((64, 8)).astype("f4") for _ in range(5)]
    triangle = np.tril(np.ones((64, 64), bool))

    def run(layer, xs, given):
        seen = jnp.tril(jnp.ones((64, 64), bool)) if mask == "triangle" else given
        return jnp.sum(layer(layer(*xs[:3], seen), *xs[3:], seen) ** 2)

    how = fxad.grad if derive else lambda f: f
    plain, made = (
        fxad.jit(how(partial(run, layer))).lower(xs, triangle)
        for layer in (masked, fxad.outline(masked))
    )
    assert str(made.plan) == str(plain.plan)
    assert str(made.program).count("flash_attention(") == 2
    assert ("right=0" in str(made.program)) == (mask == "triangle")


def test_attention_inside_is_recognised_once():
    def attend(x):
        weights = fxad.nn.softmax(x @ x.T)
        return weights @ x

    outlined, runs = counted(attend)
    x = R.standard_normal((64, 8)).astype("f4")
    made = fxad.jit(lambda x: outlined(outlined(x)))
    np.testing.assert_allclose(made(x), attend(np.asarray(attend(x))), rtol=2e-5, atol=2e-5)
    assert len(runs) == 1
    assert str(made.lower(x).program).count("flash_attention") == 2
