"""Wrong input: which error, what it says, and that it names this file's line."""

from __future__ import annotations

import dataclasses
import threading
import time
import tracemalloc

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.config import ConfigError
from fxad.core.errors import (
    ConcretizationError,
    DonatedError,
    FxadError,
    LeakedTracerError,
    ShapeError,
    SizeError,
    TreeError,
    TypeMismatch,
)
from fxad.ir.program import OPS

X = np.float32(1.5)
V = np.arange(3, dtype=np.float32)
M = np.ones((2, 3), np.float32)
jit = fxad.jit


@dataclasses.dataclass
class Plain:
    w: object


def _branch(x):
    if x > 0:
        return x
    return -x


def _loop(x):
    while x < 10:
        x = x * 2
    return x


def _assign(a):
    a[0] = 1
    return a


CASES = {
    # shapes, axes
    "shapes that do not broadcast": (lambda: jnp.add(V, np.ones(4)), ShapeError, r"\(3,\), \(4,\)"),
    "the same under jit": (lambda: jit(lambda a, b: a + b)(V, M.T), ShapeError, "broadcast"),
    "product": (lambda: jit(lambda a: a @ a)(M), ShapeError, r"f32\[2,3\] @ f32\[2,3\].*\(3\)"),
    "axis": (lambda: jnp.sum(V, axis=2), ShapeError, "axis 2 is out of range.*1 axes"),
    "axis twice": (lambda: jnp.sum(M, axis=(0, 0)), ShapeError, "twice"),
    "reshape": (lambda: jnp.reshape(V, (2, 2)), ShapeError, r"3 elements.*\(2, 2\) has 4"),
    "arrays not in a list": (lambda: jnp.concatenate(M, M), ValueError, "one list.*axis is an int"),
    "shape not in a tuple": (lambda: jnp.ones(2, 3), TypeMismatch, "3 is not.*in one tuple"),
    "concatenate": (lambda: jnp.concatenate([M, M.T]), ShapeError, r"f32\[2,3\], f32\[3,2\]"),
    "einsum sizes": (lambda: jnp.einsum("ij,jk->ik", M, M), ShapeError, "'j' has lengths 3 and 2"),
    "einsum output": (lambda: jnp.einsum("ij->il", M), ShapeError, "'l'"),
    "split": (lambda: jnp.split(V, 2), ShapeError, "divide into 2"),
    "split out of order": (lambda: jnp.split(V, [2, 1]), ValueError, r"\[2, 1\] must rise.* 3"),
    "split beyond": (lambda: jnp.array_split(V, [9]), ValueError, r"\[9\] must rise from 0 to 3"),
    "grid of a matrix": (lambda: jnp.meshgrid(V, M), ValueError, "meshgrid: takes vectors"),
    "indices in a matrix": (lambda: jnp.ix_(V, M), ValueError, r"be a vector, .*\(2, 3\)"),
    "outer of a matrix": (lambda: jnp.linalg.outer(M, V), ValueError, "outer: takes vectors"),
    "turned in one axis": (lambda: jnp.rot90(M, axes=(0, -2)), ValueError, "two of f32.*-2. twice"),
    "many keys": (lambda: fxad.random.normal(fxad.random.split(fxad.random.key(0))), ValueError,
        "takes one key.*use fxad.vmap"),
    "squeeze": (lambda: jnp.squeeze(V, 0), ShapeError, "length 3"),
    "transpose": (lambda: jnp.transpose(M, (0, 0)), ShapeError, "permutation"),
    "top_k": (lambda: lax.top_k(V, 7), ShapeError, "k=7 of 3"),
    "window": (lambda: lax.dynamic_slice(V, (0,), (5,)), ShapeError, r"\(5,\).*f32\[3\]"),
    "update": (lambda: jnp.ones(3).at[:2].set(V), ShapeError, r"\(3,\).*\(2,\)|f32\[3\]"),
    "vmap sizes": (lambda: fxad.vmap(jnp.add)(V, np.ones(4)), ShapeError, r"0\]: 3, args\[1\]: 4"),
    # dtypes and values
    "a string": (lambda: jit(lambda a: a)("x"), TypeMismatch, "str.*static_argnums"),
    "a string returned": (
        lambda: jit(lambda a: (a, "x"))(X),
        TypeMismatch,
        r"result of .*: \[1\] is a str, .*: leave it out of the tree",
    ),
    "a string inside": (lambda: jit(lambda a: 0)({"k": ["x"]}), TypeMismatch, r"\['k'\]\[0\]"),
    "an unregistered dataclass": (
        lambda: jit(lambda p: p.w)(Plain(V)),
        TypeMismatch,
        "register_dataclass above class Plain",
    ),
    "a result that is no array": (lambda: jit(lambda a: (a, "x"))(X), TypeMismatch, r"\[1\].*str"),
    "dtype name": (lambda: jnp.zeros(3, "flot32"), TypeMismatch, "flot32.*float32"),
    "object array": (lambda: jnp.asarray(np.array([None])), TypeMismatch, "object"),
    "ragged list": (lambda: jnp.asarray([[1, 2], [3]]), ShapeError, "sequence"),
    "list to a function": (lambda: jnp.sum([1, 2]), TypeMismatch, "asarray"),
    "int that does not fit": (lambda: jnp.zeros(3, jnp.int8) + 300, OverflowError, "300.*int8"),
    "int in a list": (lambda: jnp.array([1, -1], jnp.uint8), OverflowError, "-1.*uint8"),
    "long int in rows": (lambda: jnp.array([[2**31]]), OverflowError, "2147483648.*int32"),
    "long ints of both signs": (lambda: jnp.array([2**63, -1]), OverflowError, "int32"),
    "2**63 beside -1": (lambda: jnp.array([2**63, -1], jnp.int64), OverflowError, "int64"),
    "long int beside a float": (lambda: jnp.array([1.5, 2**40], jnp.int32), OverflowError, "int32"),
    "longer int": (lambda: jnp.array([1, 2**70]), OverflowError, "does not fit int32"),
    "negative to unsigned": (lambda: jnp.zeros(3, jnp.uint8) - (-1), OverflowError, "uint8"),
    "integer to a negative power": (lambda: jnp.arange(3) ** -1, TypeMismatch, "float"),
    "convolved with nothing": (lambda: jnp.convolve(V, V[:0]), ValueError, "neither.* be empty"),
    "correlated with nothing": (lambda: jnp.correlate(V[:0], V), ValueError, "neither.* be empty"),
    "no dtypes": (jnp.result_type, ValueError, "at least one value"),
    "no kind of dtype": (lambda: jnp.isdtype(V.dtype, "reel"), ValueError, "'reel' is.*real fl"),
    "limits of an int as a float": (lambda: jnp.finfo(int), ValueError, "not|got int32; try iinfo"),
    "limits of a float as an int": (lambda: jnp.iinfo("float32"), ValueError, "try finfo"),
    "random ints as floats": (
        lambda: fxad.random.uniform(fxad.random.key(0), dtype=int), ValueError, "must be a float",
    ),
    "bits of a float": (lambda: jnp.asarray(V) & 1, TypeMismatch, "f32|int"),
    "divisor of floats": (lambda: jnp.gcd(V, 2), TypeMismatch, "gcd: takes integers, not f32"),
    "multiple of floats": (lambda: jnp.lcm(2, V), TypeMismatch, "lcm: takes integers, not f32"),
    "sign of a complex": (lambda: jnp.copysign(1.0, 1j), TypeMismatch, "no sign.*c64"),
    "bounds of a complex": (lambda: jnp.clip(V * 1j, 0, 1), TypeMismatch, "clip: .*no order"),
    "weights as where": (lambda: jnp.sum(V, where=V), TypeMismatch, "bools, not f32.*m != 0"),
    "numbers as where": (lambda: jnp.nanmean(V, where=1), TypeMismatch, "bools, not i32"),
    "where of a mean": (lambda: jnp.mean(V, where=V), TypeMismatch, "bools, not f32"),
    "where of a maximum": (
        lambda: jit(lambda v: jnp.max(v, where=v, initial=0))(V), TypeMismatch, "bools, not f32",
    ),
    "float index": (lambda: jnp.asarray(V)[1.0], TypeMismatch, "integer .*type 1.0"),
    "index out of range": (lambda: jit(lambda a: a[5])(V), IndexError, "index 5.*size 3"),
    "too many indices": (lambda: jnp.asarray(V)[0, 0], IndexError, "1-dimensional, but 2"),
    # tracing
    "if": (lambda: jit(_branch)(X), ConcretizationError, "lax.cond.*while_loop.*scan"),
    "while": (lambda: jit(_loop)(X), ConcretizationError, "while_loop"),
    "float()": (lambda: jit(lambda a: float(a))(X), ConcretizationError, r"float\(\)"),
    "NumPy function": (lambda: jit(np.sin)(V), ConcretizationError, "fxad.numpy"),
    "NumPy function in grad": (lambda: fxad.grad(np.sin)(X), ConcretizationError, "fxad.numpy"),
    "shape": (lambda: jit(lambda n: jnp.zeros(n))(3), ConcretizationError, "static_argnums"),
    "slice bound": (lambda: jit(lambda a, n: a[:n])(V, 2), ConcretizationError, "dynamic_slice"),
    "mask": (lambda: jit(lambda a: a[a > 0])(V), ConcretizationError, "where"),
    "nonzero": (lambda: jit(jnp.nonzero)(V), ConcretizationError, "size="),
    "assignment": (lambda: jit(_assign)(V), TypeMismatch, r"\.at\[index\]\.set"),
    # derivatives
    "loss that is no scalar": (lambda: fxad.grad(lambda a: a)(V), ShapeError, "sum or mean"),
    "two results": (lambda: fxad.grad(lambda a: (a, a))(X), TypeMismatch, "has_aux"),
    "missing aux": (
        lambda: fxad.grad(lambda a: a, has_aux=True)(X),
        TypeMismatch,
        r"has_aux.*array f32\[\]",
    ),
    "integer leaf": (
        lambda: fxad.grad(lambda p: p["w"] * p["n"])({"w": X, "n": 3}),
        TypeMismatch,
        r"args\[0\]\['n'\].*i32\[\].*allow_int",
    ),
    "integer leaf under jit": (
        lambda: jit(fxad.grad(lambda p: p["n"] * 1.0))({"n": np.int32(3)}),
        TypeMismatch,
        r"\['n'\]",
    ),
    "integer argument": (
        lambda: fxad.grad(lambda a, n: a * n, argnums=(0, 1))(X, 3),
        TypeMismatch,
        r"args\[1\]: i32\[\]",
    ),
    "text argument": (
        lambda: fxad.grad(lambda a, p: a, argnums=1)(X, {"name": "x"}),
        TypeMismatch,
        r"args\[1\]\['name'\] is a str",
    ),
    "text after a static argument": (
        lambda: jit(lambda n, a, m, b: b, static_argnums=(0, 2))(1, X, 2, ["x"]),
        TypeMismatch,
        r"args\[3\]\[0\] is a str",
    ),
    "argnums": (lambda: fxad.grad(lambda a: a, argnums=1)(X), ValueError, "argnums has 1"),
    "complex result": (lambda: fxad.grad(lambda z: z * z)(1j), TypeMismatch, "holomorphic"),
    "cotangent shape": (lambda: fxad.vjp(jnp.sin, V)[1](np.ones(4)), ShapeError, r"f32\[4\]"),
    "cotangent structure": (lambda: fxad.vjp(jnp.sin, V)[1]((V, V)), TreeError, "structure"),
    "tangent shape": (lambda: fxad.jvp(jnp.sin, (V,), (V[:2],)), TypeMismatch, r"f32\[2\]"),
    "tangent structure": (lambda: fxad.jvp(jnp.sin, (V,), (V, V)), TreeError, "structure"),
    # control flow
    "scan changes its carry": (
        lambda: lax.scan(lambda c, x: (jnp.stack([c, c]), x), 0.0, V),
        TypeMismatch,
        r"f32\[\].*f32\[2\]",
    ),
    "scan lengths": (lambda: lax.scan(lambda c, x: (c, c), 0.0, (V, M)), ShapeError, "3.*2"),
    "cond types": (lambda: lax.cond(True, lambda: V, lambda: M), TypeMismatch, r"f32\[2,3\]"),
    "cond structure": (lambda: lax.cond(True, lambda: 1, lambda: (1, 2)), TreeError, "structure"),
    "while changes its state": (
        lambda: lax.while_loop(lambda c: c < 3, lambda c: (c, c), 0),
        TreeError,
        "tuple of 2",
    ),
    "while condition": (
        lambda: lax.while_loop(lambda c: c < V, lambda c: c, 0.0),
        TypeMismatch,
        r"one bool, not \(bool\[3\]\)",
    ),
    "while condition in a tuple": (
        lambda: lax.while_loop(lambda c: (c < 3,), lambda c: c + 1, 0),
        TypeMismatch,
        r"one bool, not \(bool\[\]\) in a tree",
    ),
    # options
    "another mode's option": (
        lambda: jnp.pad(V, 1, "edge", constant_values=0), ValueError, "constant_values.*'edge'",
    ),
    "mode of pad": (lambda: jnp.pad(V, 1, "mirror"), NotImplementedError, "'mirror'.*constant"),
    "place of an einsum": (
        lambda: jnp.einsum("i->", V, out=V), NotImplementedError, "einsum.*out= must be None",
    ),
    "mode of take": (lambda: jnp.take(V, 1, mode="raise"), NotImplementedError, "debug.indices"),
    "order of an array": (lambda: jnp.array(V, order="X"), NotImplementedError, "'C' or 'K'"),
    "order of columns": (lambda: jnp.asarray(V, order="F"), NotImplementedError, "not 'F'"),
    "nothing to select": (lambda: jnp.select([], []), ValueError, "at least one condition"),
    "method of convolve": (
        lambda: fxad.scipy.signal.correlate(V, V, method="fast"), ValueError, "auto, direct or fft",
    ),
    "static and unhashable": (
        lambda: jit(lambda a, n: a, static_argnums=1)(X, [1]),
        TypeMismatch,
        "hashable.*a tuple",
    ),
    "static number": (lambda: jit(lambda a: a, static_argnums=3), ValueError, "static_argnums has"),
    "static name": (lambda: jit(lambda a: a, static_argnames="n"), ValueError, "'n'.*takes a"),
    "donated number": (lambda: jit(lambda a: a, donate_argnums=2), ValueError, "donate_argnums"),
    "no function": (lambda: jit(3), TypeMismatch, "function, got int"),
    "no function to grad": (lambda: fxad.grad(3)(X), TypeMismatch, "function, got int"),
    "axis size": (
        lambda: fxad.vmap(lambda a: a, axis_size=5)(V), ShapeError, r"axis_size=5, args\[0\]: 3",
    ),
    "static number of a checkpoint": (
        lambda: fxad.checkpoint(lambda a: a, static_argnums=3)(X),
        ValueError,
        "static_argnums has 3, and the call 1 pos",
    ),
    "static number of a checkpoint in grad": (
        lambda: fxad.grad(fxad.checkpoint(lambda a: a, static_argnums=-2))(X),
        ValueError,
        "static_argnums has -2, and",
    ),
    "NumPy's copy": (
        lambda: np.asarray(jnp.asarray(V), "f8", copy=False), ValueError, "f32.*float64 without",
    ),
    "policy": (lambda: fxad.checkpoint(jnp.sin, policy="all"), ValueError, "dots_saveable"),
    "setting": (lambda: setattr(fxad.config, "chekc", 1), ConfigError, "did you mean check"),
    "setting's value": (lambda: setattr(fxad.config, "fuel", "x"), ConfigError, "integer"),
    "trees": (lambda: fxad.tree.map(jnp.add, {"a": 1}, {"b": 1}), TreeError, "'a'.*'b'"),
}  # fmt: skip


def test_names_that_are_not_here_say_what_to_use():
    with pytest.raises(AttributeError, match=r"call NumPy's, or fxad\.pure_callback"):
        _ = jnp.fromiter
    with pytest.raises(AttributeError, match=r"fxad\.lax\.segment_sum"):
        _ = fxad.ops.segment_sum


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    action, error, message = CASES[name]
    with pytest.raises(error, match=rf"(?s){message}") as caught:
        action()
    assert "test_bad_input.py:" in str(caught.value)
    assert isinstance(caught.value, FxadError)


def test_the_error_names_the_line_inside_the_traced_function():
    def model(x):
        y = x * 2
        return y @ y  # the line

    line = model.__code__.co_firstlineno + 2
    for wrapped in (jit(model), fxad.vmap(model), fxad.grad(model), jit(fxad.grad(model))):
        with pytest.raises(ShapeError, match=rf"test_bad_input\.py:{line}\)"):
            wrapped(np.ones((4, 2, 3), np.float32))


# ---------------------------------------------------------------- sizes

HUGE = {
    "zeros": lambda: jnp.zeros((2**40, 2**40)),
    "ones": lambda: jnp.ones(2**46),
    "broadcast_to": lambda: jnp.broadcast_to(V[:1], (2**33, 2**10)),
    "arange": lambda: jnp.arange(2**50),
    "tile": lambda: jnp.tile(V, 2**40),
    "repeat": lambda: jnp.repeat(V, 2**45),
    "pad": lambda: jnp.pad(V, (2**45, 0)),
    "pad beyond int64": lambda: jnp.pad(V, {0: (2**63, 0)}),
    "no elements": lambda: jnp.zeros((0, 2**62, 2**62)),
    "no elements, compiled": lambda: jit(lambda: jnp.zeros((2**62, 0, 2**62)))(),
    "eye": lambda: jnp.eye(2**30),
    "vander": lambda: jnp.vander(V, 2**48),
    "outer": lambda: jnp.outer(jnp.ones(2**20), jnp.ones(2**21)),
    "jit result": lambda: jit(lambda x: jnp.zeros(2**44) + x)(X),
    "jit intermediate": lambda: jit(
        lambda x: jnp.sort(jnp.sin(jnp.arange(2**42, dtype=jnp.float32)) + x)[:2]
    )(X),
    "random": lambda: fxad.random.normal(fxad.random.key(0), (2**22, 2**22)),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_beyond_memory_allocate_nothing(name):
    tracemalloc.start()
    try:
        with pytest.raises((SizeError, ShapeError), match=r"test_bad_input\.py"):
            HUGE[name]()
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_indices_beyond_their_dtype() -> None:
    with pytest.raises(OverflowError, match=r"arange: 2147483648 does not fit int32.*test_bad_inp"):
        jit(lambda: jnp.arange(2**31 + 1)[-1])()
    assert jnp.arange(0, -(2**31) - 1, -(2**30))[-1] == -(2**31)  # which does fit
    huge = fxad.ShapeDtypeStruct((2**31 + 1,), np.int8)
    assert fxad.eval_shape(jnp.argmax, huge).dtype == np.int64  # tests/api/test_long_axes.py
    with pytest.raises(ShapeError, match="int32 cannot count to the end of axis 0"):
        fxad.eval_shape(lambda x: OPS["argmax"](x, axis=0, dtype=np.dtype(np.int32)), huge)


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_more_axes_than_numpy_has(wrap) -> None:
    with pytest.raises(ShapeError, match=r"70 axes; arrays have at most 64.*test_bad_input"):
        wrap(lambda x: x.reshape((1,) * 70))(jnp.ones(1))
    assert jit(lambda x: x.reshape((1,) * 70).sum() + 1)(np.ones(1, np.float32)) == 2


# ---------------------------------------------------------------- leaks, donation, side effects


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: jit(lambda a: a + t)(X),
        float,
        bool,
        np.asarray,
        jnp.sin,
        lambda t: fxad.grad(lambda a: a * t)(1.0),
    ],
)
@pytest.mark.parametrize("wrap", [jit, fxad.grad, lambda f: lambda x: fxad.vmap(f)(x[None])])
def test_leaked_tracers_say_where_they_were_made(wrap, use):
    kept = []

    def function(x):
        y = x * 2
        kept.append(y)
        return y

    line = function.__code__.co_firstlineno + 1
    wrap(function)(jnp.float32(1))
    if wrap is fxad.grad and use in (float, bool):
        assert use(kept[0])  # an eager derivative's value stays what it was
        return
    with pytest.raises(LeakedTracerError, match=rf"made at test_bad_input\.py:{line} is used at"):
        use(kept[0])


def test_tracers_do_not_cross_threads():
    errors = []

    def function(x):
        def work():
            try:
                x + 1
            except LeakedTracerError as error:
                errors.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    jit(function)(X)
    assert len(errors) == 1
    assert "thread" in errors[0]


def test_use_after_donation():
    x = jnp.ones(3)
    jit(lambda a: a + 1, donate_argnums=0)(x)
    with pytest.raises(DonatedError, match=r"f32\[3\].*donate_argnums.*test_bad_input\.py"):
        jit(lambda a: a)(x)


def test_a_failed_call_leaves_no_trace_behind():
    f = jit(lambda a: a @ a if a.ndim > 1 else a)
    for _ in range(2):
        with pytest.raises(ShapeError):
            f(M)
    np.testing.assert_array_equal(f(V), V)
    with pytest.raises(ConcretizationError):
        fxad.vmap(jit(_branch))(V)
    assert float(fxad.grad(lambda a: a * a)(3.0)) == 6.0


def _negated(x, neg):
    return -x if neg else x


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: jit(_negated)(X, True), "argument neg of _negated"),
        (lambda: jit(_negated)(X, neg=True), "argument neg of _negated"),
        (
            lambda: jit(lambda p, n: jnp.zeros(p["n"] + n))({"n": 1, "w": X}, 2),
            "arguments p.n, n of",
        ),
        (lambda: jit(lambda k, x: jnp.zeros(x * k), static_argnums=0)(2, 3), "argument x of"),
        (lambda: jit(lambda x: jit(_negated)(x, x > 0))(X), "argument neg of _negated"),
        (lambda: jit(lambda x, y: lax.map(lambda z: float(z + y), x))(V, X), "argument y of"),
        (lambda: jit(lambda x: np.sin(x + 1))(V), "argument x of"),
        (lambda: jit(lambda x, n: x[:n])(V, 2), "argument n of"),
        (lambda: jit(lambda x, m: x[m > 0])(V, V), "argument m of"),
        (lambda: jit(lambda x: jnp.nonzero(x))(V), "argument x of"),
    ],
)
def test_the_argument_that_a_traced_value_depends_on_is_named(call, named):
    with pytest.raises(ConcretizationError) as caught:
        call()
    text = str(caught.value)
    assert text.count("The value depends on the") == 1
    assert f"The value depends on the {named}" in text


def test_values_that_depend_on_no_argument_are_not_blamed_on_one():
    def body(carry, row):
        return carry + float(row), None

    with pytest.raises(ConcretizationError) as caught:
        jit(lambda x: lax.scan(body, x, np.ones(3, np.float32))[0])(X)
    assert "depends on" not in str(caught.value)


def test_what_a_value_depends_on_is_found_in_one_pass_of_each_level():
    def nested(values, depth):
        if depth == 0:
            return lax.fori_loop(0, 2, lambda i, n: float(sum(values) + n), 0.0)
        inner = lambda i, n: nested([v + n for v in values], depth - 1)  # noqa: E731
        return lax.fori_loop(0, 2, inner, 0.0)

    start = time.perf_counter()
    with pytest.raises(ConcretizationError, match="depends on the argument x"):
        jit(lambda x: nested([x + i for i in range(60)], 4))(X)
    assert time.perf_counter() - start < 20  # by all ways it would be 60 ** 4


def test_a_format_is_for_one_number():
    assert f"{jnp.float32(0.1)} {jnp.float32(0.1):.3f} {jnp.arange(2)}" == "0.1 0.100 [0 1]"
    with pytest.raises(TypeError, match="'.2f' is for one number, not f32"):
        f"{jnp.asarray(V):.2f}"
