"""`checkify`: failures as values, in every order of transformations. What messages say is what JAX
says of the same programs: `test_messages_are_those_of_jax` asks an installed one (peers)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import checkify, lax
from fxad.core.errors import CheckFailed, TypeMismatch
from fxad.custom_batching import custom_vmap
from fxad.tree import leaves

# ---------------------------------------------------------------- programs of either library
# Each takes (jax, jax.numpy, jax.experimental.checkify), and gives an Error.


def straight(j, jnp, c):
    def f(x):
        c.check(x < 5, "{} is large", x)
        c.check(x > 0, "{x:.2f} is not positive", x=x)
        return x

    return j.jit(c.checkify(f))(-3.0)[0]


def holds(j, jnp, c):
    return c.checkify(lambda x: c.check(jnp.all(x > 0), "no"))(jnp.ones(3))[0]


def of_jit(j, jnp, c):
    @j.jit
    def f(x):
        c.check(x[0] > 1, "first: {} of {n}", x[0], n=x.sum())
        return x

    return c.checkify(lambda x: f(x) + f(x + 5))(jnp.zeros(2))[0]


def branch(chosen):
    def program(j, jnp, c):
        def no(x):
            c.check(x > 9, "small {}", x)
            return x

        def f(i, x):
            return j.lax.cond(i > 0, no, lambda x: x * 2, x)

        return j.jit(c.checkify(f))(chosen, 2.0)[0]

    return program


def switched(j, jnp, c):
    def fails(text):
        def branch(x):
            c.check(x < 0, text + " {}", x)
            return x

        return branch

    def f(i, x):
        return j.lax.switch(i, [lambda x: x, fails("one"), fails("two")], x)

    return c.checkify(f)(2, jnp.float32(1.5))[0]


def in_scan(j, jnp, c):
    def step(total, x):
        c.check(x < 3, "too much: {} after {}", x, total)
        return total + x, total

    return c.checkify(lambda xs: j.lax.scan(step, 0.0, xs))(jnp.arange(6.0))[0]


def in_fori(j, jnp, c):
    def body(i, x):
        c.check(i != 3, "trip {}", i)
        c.check(x < 1.5, "x is {}", x)
        return x * 1.25

    return j.jit(c.checkify(lambda x: j.lax.fori_loop(0, 9, body, x)))(1.0)[0]


def in_while(j, jnp, c):
    def body(x):
        c.check(x != 4, "{} is four", x)
        return x * 2

    return j.jit(c.checkify(lambda x: j.lax.while_loop(lambda x: x < 100, body, x)))(1)[0]


def in_condition(j, jnp, c):
    def test(x):
        c.check(x < 50, "went to {}", x)
        return x < 100

    return c.checkify(lambda x: j.lax.while_loop(test, lambda x: x * 3, x))(jnp.int32(1))[0]


def in_condition_at_once(j, jnp, c):
    def test(x):
        c.check(x < 50, "went to {}", x)
        return x < 100

    f = c.checkify(lambda x: j.lax.while_loop(test, lambda x: x * 3, x))
    return j.jit(f)(jnp.int32(200))[0]


def nested_loops(j, jnp, c):
    def inner(i, x):
        c.check(i * x < 6, "{} times {}", i, x)
        return x

    def outer(x, y):
        return j.lax.fori_loop(0, 4, inner, x + y), y

    return j.jit(c.checkify(lambda xs: j.lax.scan(outer, 0.0, xs)[0]))(jnp.ones(5))[0]


def vmap_outside(j, jnp, c):
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return x

    return j.vmap(c.checkify(f))(jnp.array([1.0, -2.0, 3.0, -4.0]))[0]


def vmap_inside(j, jnp, c):
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return x

    return c.checkify(j.vmap(f))(jnp.array([1.0, -2.0, 3.0, -4.0]))[0]


def vmap_twice(j, jnp, c):
    def f(x):
        c.check(x != 3, "{} is three", x)
        return x

    return j.jit(j.vmap(j.vmap(c.checkify(f))))(jnp.arange(6.0).reshape(2, 3))[0]


def vmap_of_branches(j, jnp, c):
    def no(x):
        c.check(x > 9, "small {}", x)
        return x

    f = c.checkify(lambda x: j.lax.cond(x > 1, no, lambda x: x, x))
    return j.jit(j.vmap(f))(jnp.arange(4.0))[0]


def vmap_of_loops(j, jnp, c):
    def body(x):
        c.check(x != 4, "{} is four", x)
        return x * 2

    f = c.checkify(lambda x: j.lax.while_loop(lambda x: x < 20, body, x))
    return j.vmap(f)(jnp.array([3, 2, 1, 4]))[0]


def gradient_inside(j, jnp, c):
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return x**2

    return j.jit(c.checkify(j.grad(f)))(-1.0)[0]


def gradient_outside(j, jnp, c):
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return x**2

    def swapped(x):
        err, y = c.checkify(f)(x)
        return y, err

    return j.value_and_grad(swapped, has_aux=True)(-1.0)[0][1]


def recomputed(j, jnp, c):
    @j.checkpoint
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return jnp.sin(x)

    return j.jit(c.checkify(j.grad(f)))(-1.0)[0]


def custom_jvp(j, jnp, c):
    @j.custom_jvp
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 2 * tangents[0]))
    return c.checkify(f)(-1.0)[0]


def custom_vjp(j, jnp, c):
    @j.custom_vjp
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return jnp.sin(x)

    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct,))
    return c.checkify(f)(-1.0)[0]


def trees(j, jnp, c):
    def f(x):
        c.check(False, "{} {b[k]}", (x, x + 1), b={"k": x})

    return c.checkify(f)(jnp.int32(1))[0]


def rechecked(j, jnp, c):
    def f(x):
        c.check(x > 0, "must be positive, not {}", x)
        return x

    def outer(x):
        err, y = j.jit(c.checkify(f))(x)
        c.check_error(err)
        return y

    return c.checkify(outer)(-1)[0]


def of_a_batch(j, jnp, c):
    def f(x):
        c.check(x > 0, "{} is not positive", x)
        return x

    def outer(x):
        err, y = j.vmap(c.checkify(f))(x)
        c.check_error(err)
        return y

    return j.jit(c.checkify(outer))(jnp.array([1.0, -2.0, -3.0, 4.0]))[0]


def debugged(j, jnp, c):
    return j.jit(c.checkify(lambda x: c.debug_check(x != 0, "zero")))(0)[0]


def dropped(j, jnp, c):
    return c.checkify(lambda x: c.check(x > 0, "no"), errors=c.nan_checks)(jnp.float32(-1))[0]


def nan(j, jnp, c):
    return c.checkify(lambda x: jnp.sin(x) + 1, errors=c.float_checks)(jnp.inf)[0]


def nan_in_jit(j, jnp, c):
    return c.checkify(j.jit(lambda x: jnp.log(x) * 0), errors=c.nan_checks)(-1.0)[0]


def nan_in_scan(j, jnp, c):
    def f(xs):
        return j.lax.scan(lambda s, x: (s + jnp.sqrt(x), None), 0.0, xs)[0]

    return j.jit(c.checkify(f, errors=c.nan_checks))(jnp.array([1.0, -1.0]))[0]


def no_nan(j, jnp, c):
    f = c.checkify(lambda x: jnp.tanh(x @ x) / 2, errors=c.float_checks)
    return j.jit(f)(jnp.ones((3, 3)))[0]


def not_chosen(j, jnp, c):
    f = c.checkify(lambda x: jnp.where(x > 0, jnp.log(x), 0.0), errors=c.nan_checks)
    return f(jnp.array([1.0, -1.0]))[0]


def divided(j, jnp, c):
    f = c.checkify(lambda x, y: x / y, errors=c.float_checks)
    return j.jit(f)(jnp.ones(3), jnp.array([1.0, 0.0, 2.0]))[0]


def divided_integers(j, jnp, c):
    return c.checkify(lambda x, y: x // y, errors=c.div_checks)(jnp.int32(5), jnp.int32(0))[0]


def index(number):
    def program(j, jnp, c):
        return j.jit(c.checkify(lambda x, i: x[i], errors=c.index_checks))(jnp.ones(3), number)[0]

    return program


def rows(j, jnp, c):
    f = c.checkify(lambda x, i: x[:, i], errors=c.index_checks)
    return f(jnp.ones((3, 4)), jnp.array([0, 3, 7, 9]))[0]


def update(j, jnp, c):
    f = c.checkify(lambda x, i: x.at[i].set(0.0), errors=c.index_checks)
    return j.jit(f)(jnp.ones(5), 11)[0]


def window(j, jnp, c):
    f = c.checkify(lambda x, i: j.lax.dynamic_slice(x, (i,), (3,)), errors=c.index_checks)
    return f(jnp.ones(5), jnp.int32(3))[0]


def index_in_jit(j, jnp, c):
    @j.jit
    def f(x, i):
        return x[i]

    f(jnp.ones(3), 0)  # traced without checks
    return c.checkify(f, errors=c.index_checks)(jnp.ones(3), 3)[0]


def index_in_vmap(j, jnp, c):
    f = j.vmap(lambda x, i: x[i], in_axes=(None, 0))
    return c.checkify(f, errors=c.all_checks)(jnp.ones(3), jnp.array([0, 4, 1]))[0]


NOT = "-1.0 is not positive (`check` failed)"
OOB = "out-of-bounds indexing for array of shape"
THREE = f"{OOB} (3,): index {{}} is out of bounds for axis 0 with size 3."
PROGRAMS: dict[str, tuple[Any, str | None]] = {
    "straight": (straight, "-3.00 is not positive (`check` failed)"),
    "holds": (holds, None),
    "jit inside": (of_jit, "first: 0.0 of 0.0 (`check` failed)"),
    "cond": (branch(1), "small 2.0 (`check` failed)"),
    "the other branch": (branch(0), None),
    "switch": (switched, "two 1.5 (`check` failed)"),
    "scan": (in_scan, "too much: 3.0 after 3.0 (`check` failed)"),
    "fori": (in_fori, "x is 1.5625 (`check` failed)"),
    "while": (in_while, "4 is four (`check` failed)"),
    "condition": (in_condition, "went to 81 (`check` failed)"),
    "condition at once": (in_condition_at_once, "went to 200 (`check` failed)"),
    "nested loops": (nested_loops, "3 times 2.0 (`check` failed)"),
    "vmap outside": (
        vmap_outside,
        "at mapped index 1: -2.0 is not positive (`check` failed)\n"
        "at mapped index 3: -4.0 is not positive (`check` failed)",
    ),
    "vmap inside": (vmap_inside, "-4.0 is not positive (`check` failed)"),
    "vmap twice": (vmap_twice, "at mapped index 1, 0: 3.0 is three (`check` failed)"),
    "vmap of branches": (
        vmap_of_branches,
        "at mapped index 2: small 2.0 (`check` failed)\n"
        "at mapped index 3: small 3.0 (`check` failed)",
    ),
    "vmap of loops": (
        vmap_of_loops,
        "\n".join(f"at mapped index {i}: 4 is four (`check` failed)" for i in (1, 2, 3)),
    ),
    "grad inside": (gradient_inside, NOT),
    "grad outside": (gradient_outside, NOT),
    "checkpoint": (recomputed, NOT),
    "custom_jvp": (custom_jvp, NOT),
    "custom_vjp": (custom_vjp, NOT),
    "check_error": (rechecked, "must be positive, not -1 (`check` failed)"),
    "check_error of a batch": (of_a_batch, "-3.0 is not positive (`check` failed)"),
    "debug_check": (debugged, "zero (`check` failed)"),
    "dropped": (dropped, None),
    "nan": (nan, "nan generated by primitive: sin."),
    "nan in jit": (nan_in_jit, "nan generated by primitive: log."),
    "nan in scan": (nan_in_scan, "nan generated by primitive: sqrt."),
    "no nan": (no_nan, None),
    "not chosen": (not_chosen, "nan generated by primitive: log."),
    "div": (divided, "division by zero"),
    "integer div": (divided_integers, "division by zero"),
    "index": (index(3), THREE.format(3)),
    "from the end": (index(-3), None),
    "rows": (rows, f"{OOB} (3, 4): index 7 is out of bounds for axis 1 with size 4."),
    "update": (update, f"{OOB} (5,): index 11 is out of bounds for axis 0 with size 5."),
    "window": (window, f"{OOB} (5,): index 3 is out of bounds for axis 0 with size 5."),
    "index in jit": (index_in_jit, THREE.format(3)),
    "index in vmap": (
        index_in_vmap,
        THREE.format(4),
    ),
}
# Of failures of several kinds (here: with values of several types) JAX has the first one of each
# kind, and of these tells that which comes first in the program.
OTHERWISE = {"fori": "trip 3 (`check` failed)"}
BUGS_OF_JAX = {"vmap of loops": "longer than argument"}


def plain(text: str | None) -> str | None:
    """A message without where."""
    if text is None:
        return None
    return "\n".join(line.rpartition(" (test_")[0] or line.rstrip() for line in text.split("\n"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages(name: str) -> None:
    program, wanted = PROGRAMS[name]
    text = program(fxad, jnp, checkify).get()
    assert plain(text) == wanted
    assert text is None or all("(test_checkify.py:" in line for line in text.split("\n"))


@pytest.mark.peers
@pytest.mark.parametrize("name", PROGRAMS)
def test_messages_are_those_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax.experimental.checkify")
    program, wanted = PROGRAMS[name]
    if name in BUGS_OF_JAX:
        with pytest.raises(ValueError, match=BUGS_OF_JAX[name]):
            program(jax, jax.numpy, theirs)
    else:
        text = program(jax, jax.numpy, theirs).get()
        assert plain(text) == OTHERWISE.get(name, wanted)


# ---------------------------------------------------------------- what is computed


def positive(x: Any) -> Any:
    checkify.check(jnp.all(x > 0), "{} is not positive", x)
    return jnp.sum(jnp.sin(x) * x)


X = np.array([1.0, -2.0, 3.0], np.float32)


def test_results_and_derivatives_are_those_of_the_function() -> None:
    def plainly(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * x)

    checked = checkify.checkify(positive, errors=checkify.all_checks)
    for wrap in (lambda f: f, fxad.jit):
        err, y = wrap(checked)(X)
        assert np.array_equal(y, wrap(plainly)(X))
        assert "is not positive" in err.get()
        slope = wrap(fxad.grad(lambda x: checked(x)[1]))(X)
        np.testing.assert_array_equal(slope, wrap(fxad.grad(plainly))(X))
        err, slope = wrap(checkify.checkify(fxad.grad(positive)))(X)
        np.testing.assert_array_equal(slope, wrap(fxad.grad(plainly))(X))


@pytest.mark.parametrize("kind", [fxad.custom_jvp, fxad.custom_vjp])
def test_custom_rules_stay_in_force(kind: Any) -> None:
    @kind
    def f(x):
        checkify.check(x > 0, "{} is not positive", x)
        return jnp.sin(x)

    if kind is fxad.custom_jvp:
        f.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 7 * tangents[0]))
    else:
        f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (7 * ct,))

    def both(x):
        err, y = checkify.checkify(f)(x)
        return y, err

    for slope in (fxad.grad(both, has_aux=True), fxad.jit(fxad.grad(both, has_aux=True))):
        d, err = slope(-1.0)
        assert float(d) == 7.0
        assert plain(err.get()) == NOT
        d, err = fxad.vmap(slope)(X)
        assert d.tolist() == [7.0] * 3
        assert err.get().startswith("at mapped index 1: -2.0")


@pytest.mark.parametrize("checks", [False, True])
def test_custom_batching(checks: bool) -> None:
    """Its rule stays in force, unless there are checks inside, of which it knows nothing."""

    @custom_vmap
    def f(x):
        if checks:
            checkify.check(x > 0, "{} is not positive", x)
        return jnp.log(x)

    f.def_vmap(lambda size, batched, x: (10 * x, True))
    err, y = fxad.vmap(checkify.checkify(f, errors=checkify.all_checks))(X)
    if checks:
        assert plain(err.get()) == "at mapped index 1: -2.0 is not positive (`check` failed)"
        np.testing.assert_allclose(y, [0.0, np.nan, np.log(3)], rtol=1e-6)
    else:
        assert err.get() is None
        assert y.tolist() == [10.0, -20.0, 30.0]


def test_checks_of_a_backward_pass() -> None:
    @fxad.custom_vjp
    def falls(x):
        return x

    def back(_, ct):
        checkify.check(ct < 0, "grows by {}", ct)
        return (ct,)

    falls.defvjp(lambda x: (x, None), back)
    for wrap in (lambda f: f, fxad.jit):
        with pytest.raises(CheckFailed, match=r"grows by 2.0 .* \(test_checkify.py:\d+\)"):
            wrap(fxad.grad(lambda x: 2 * falls(x)))(1.0)
        err, slope = wrap(checkify.checkify(fxad.grad(lambda x: 2 * falls(x))))(1.0)
        assert plain(err.get()) == "grows by 2.0 (`check` failed)"
        assert float(slope) == 2.0
        assert wrap(checkify.checkify(fxad.grad(lambda x: -falls(x))))(1.0)[0].get() is None


def test_known_zeros_and_indices() -> None:
    err, _ = checkify.checkify(lambda x: x / 0.0, errors=checkify.all_checks)(X)
    assert plain(err.get()) == "division by zero"
    for number in (5, -4):
        with pytest.raises(IndexError):
            checkify.checkify(lambda x, i: x[i], errors=checkify.index_checks)(X, number)
    err, _ = fxad.jit(checkify.checkify(lambda x, i: x[i], errors=checkify.index_checks))(X, -4)
    assert plain(err.get()) == THREE.format(-4)
    chosen = checkify.checkify(lambda x, i: x.at[i].get(mode="fill"), errors=checkify.all_checks)
    assert chosen(jnp.asarray(X), np.int32(7))[0].get() is None


def test_reverse_mode_through_loops_with_checks() -> None:
    def power(x, n):
        def body(carry):
            i, y = carry
            checkify.check(y < 8, "{} after {}", y, i)
            return i + 1, y * x

        return lax.while_loop(lambda c: c[0] < n, body, (0, jnp.float32(1)))[1]

    def f(x):
        err, y = checkify.checkify(power)(x, 5)
        return y, err

    for slope in (fxad.grad(f, has_aux=True), fxad.jit(fxad.grad(f, has_aux=True))):
        d, err = slope(np.float32(2))
        assert float(d) == 5 * 2.0**4
        assert plain(err.get()) == "8.0 after 3 (`check` failed)"


def test_lanes_whose_loop_has_ended_do_not_fail() -> None:
    """Lanes of a loop run on with the others; JAX refuses such programs."""
    x = np.arange(3, dtype=np.float32)

    def total(n):
        def body(carry):
            i, s = carry
            checkify.check(i < n, "{} of {}", i, n)
            return i + 1, s + jnp.asarray(x)[i]

        return lax.while_loop(lambda c: c[0] < n, body, (0, jnp.float32(0)))[1]

    counts = np.array([3, 1, 2], np.int32)
    f = checkify.checkify(fxad.vmap(total), errors=checkify.all_checks)
    for wrap in (lambda f: f, fxad.jit):
        err, sums = wrap(f)(counts)
        assert err.get() is None
        assert sums.tolist() == [3.0, 0.0, 1.0]
    err, _ = f(np.array([1, 4, 2], np.int32))
    assert "index 3 is out of bounds" in err.get()
    assert fxad.vmap(total)(counts).tolist() == [3.0, 0.0, 1.0]


def test_arguments_that_are_no_arrays_stay_what_they_are() -> None:
    def f(n, name, x):
        checkify.check(x.sum() > n, "{what}: less than {}", n, what=name)
        return x[:n]

    err, y = checkify.checkify(f)(2, "sum", X)
    assert y.tolist() == [1.0, -2.0]
    assert plain(err.get()) == "sum: less than 2 (`check` failed)"


def test_weak_types_stay() -> None:
    _, y = checkify.checkify(lambda x: x * 2)(1.0)
    assert y.weak


# ---------------------------------------------------------------- outside of checkify


def test_a_check_alone_raises() -> None:
    assert checkify.check(True, "no") is None
    with pytest.raises(CheckFailed, match=r"no: 1 \(`check` failed\) \(test_checkify.py:\d+\)"):
        checkify.check(False, "no: {}", 1)
    with pytest.raises(ValueError, match="is not positive"):
        fxad.jit(positive)(X)
    with pytest.raises(checkify.JaxRuntimeError, match="is not positive"):
        fxad.grad(positive)(X)
    with pytest.raises(CheckFailed, match=r"\[-2.\] is not positive"):
        fxad.jit(fxad.vmap(positive))(X[:, None])


def test_debug_checks_do_nothing_there() -> None:
    def f(x):
        checkify.debug_check(x != 0, "zero")
        return x

    for wrap in (lambda f: f, fxad.jit, fxad.grad, fxad.vmap):
        wrap(f)(np.float32([0]) if wrap is fxad.vmap else 0.0)
    assert "check" not in str(fxad.jit(f).lower(0.0).program)
    err, _ = checkify.checkify(f)(0.0)
    with pytest.raises(CheckFailed, match="zero"):
        fxad.jit(lambda: checkify.check_error(err))()


def test_throw() -> None:
    err, _ = checkify.checkify(positive)(X)
    with pytest.raises(CheckFailed, match="is not positive"):
        err.throw()
    assert isinstance(err.get_exception(), CheckFailed)
    err, _ = checkify.checkify(positive)(np.abs(X))
    err.throw()
    assert str(err) == "Error(None)"
    checkify.check_error(checkify.init_error)
    with pytest.raises(TypeMismatch, match="takes an Error"):
        checkify.check_error(3)
    batch, _ = fxad.vmap(checkify.checkify(positive))(X[:, None])
    with pytest.raises(CheckFailed, match="at mapped index 1"):
        batch.throw()


def test_errors_are_trees_of_arrays() -> None:
    err, _ = fxad.jit(checkify.checkify(positive))(X)
    assert all(isinstance(leaf, fxad.Array) for leaf in leaves(err))
    same = fxad.jit(lambda e: e)(err)
    assert same.get() == err.get()
    assert leaves(checkify.init_error) == []
    assert leaves(checkify.checkify(lambda x: x)(X)[0]) == []


def test_wrong_calls() -> None:
    with pytest.raises(TypeMismatch, match="check takes a scalar pred"):
        checkify.check(X > 0, "no")
    with pytest.raises(TypeMismatch, match="debug_check takes a scalar pred"):
        checkify.debug_check(1, "no")
    with pytest.raises(ValueError, match="errors must be a set of kinds"):
        checkify.checkify(positive, errors={"nan"})


def test_an_empty_batch_does_not_fail() -> None:
    assert checkify.checkify(fxad.vmap(positive))(np.ones((0, 2), np.float32))[0].get() is None
    err, _ = fxad.vmap(checkify.checkify(positive))(np.ones((0, 2), np.float32))
    assert err.get() is None
    assert checkify.checkify(lambda e: checkify.check_error(e))(err)[0].get() is None
