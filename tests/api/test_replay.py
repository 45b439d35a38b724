"""Functions called again and again run as one line of NumPy calls: with the same bits."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jit_cases_lax  # noqa: F401 (these three fill CASES)
import jit_cases_nn_special_random  # noqa: F401
import jit_cases_numpy  # noqa: F401
import numpy as np
import pytest
from jit_cases import CASES, Case

import fxad
import fxad.numpy as jnp
from fxad.core.errors import (
    DonatedError,
    NumberOverflow,
    NumericsError,
    ShapeError,
    SizeError,
    TypeMismatch,
)
from fxad.trace import replay, tracer
from fxad.trace.array import Array
from fxad.trace.replay import MOST, REPEATS, replayed
from fxad.tree import leaves

ALL = [
    (f"{c.module.__name__}.{name}", case)
    for c in CASES.values()
    for name in c.calls
    for case in c.calls[name]
]
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def bits(result: Any) -> list[tuple]:
    """All there is to see of a result."""
    return [
        (v.type, v.weak, np.asarray(v).tobytes())
        if isinstance(v, Array)
        else (type(v), np.asarray(v).tobytes())
        for v in leaves(result)
    ]


def op_by_op(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracer, "ordinary", False)
        return function(*args, **named)


def again(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """The result of a call after so many that it is replayed."""
    for _ in range(REPEATS):
        result = function(*args, **named)
    return result


def moved(array: np.ndarray) -> np.ndarray:
    return array[::-1].copy() if array.ndim else array


@pytest.mark.parametrize("start", list(range(0, len(ALL), 100)))
def test_all_functions_give_the_same_bits(start: int) -> None:
    def check(name: str, case: Case) -> None:
        given = tuple(map(jnp.asarray, case.arrays))
        other = tuple(jnp.asarray(moved(a)) for a in case.arrays)
        wanted, there = op_by_op(case.apply, *given), op_by_op(case.apply, *other)
        assert type(again(case.apply, *given)) is type(wanted), name
        assert bits(case.apply(*given)) == bits(wanted), name
        assert bits(case.apply(*other)) == bits(there), name

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in ALL[start : start + 100]:
            check(name, case)


def counted(function: Callable[..., Any], **how: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function replayed, and a list of the calls that Python made of it."""
    calls: list[Any] = []

    def count(*args: Any, **named: Any) -> Any:
        calls.append((args, named))
        return function(*args, **named)

    return (replayed(**how)(count) if how else replayed(count)), calls


def test_python_runs_it_a_few_times_only() -> None:
    f, calls = counted(lambda x, axis: (jnp.sum(x * 2.0, axis), [x] and x + 1))
    first = f(jnp.asarray(X), 0)
    for _ in range(10):
        assert bits(f(jnp.asarray(X), 0)) == bits(first)
    assert len(calls) == REPEATS
    again(f, jnp.asarray(X), axis=0)
    assert len(calls) == 2 * REPEATS
    assert bits(f(jnp.asarray(X) + 1, 0)) == bits(op_by_op(f, jnp.asarray(X) + 1, 0))


def test_python_floats_by_name() -> None:
    x = jnp.asarray(X)
    for f, name in (
        (lambda v: jnp.clip(x, min=v), "clip"),
        (lambda v: x.clip(max=v), "method"),
        (lambda v: jnp.clip(x, -0.25, max=v), "clip by both"),
        (lambda v: jnp.where(x > 0.5, x=x, y=v), "where"),
        (lambda v: jnp.where(x > 0.5, x, y=v), "where by both"),
        (lambda v: jnp.add(x, y=v), "add"),
    ):
        for value in (0.5, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75, 0.75, -0.0, 0.0, -0.0, 0.0, -0.0):
            assert bits(f(value)) == bits(op_by_op(f, value)), (name, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        ((1, 2), (1.0, 2.0)),
        ([1, 2], (1, 2)),
        (((1,), 2), ((1, 2),)),
        ("float32", np.float32),
        (None, 0),
        (slice(0, 2), (0, 2, None)),
        (jnp.asarray(1.0), jnp.float32(1.0)),
        (jnp.asarray(1.0), 1.0),
    ],
    ids=repr,
)
def test_arguments_that_differ_are_told_apart(one: Any, other: Any) -> None:
    f, calls = counted(lambda x, y: x + 1)
    again(f, jnp.asarray(X), one)
    assert len(calls) == REPEATS
    f(jnp.asarray(X), one)
    assert len(calls) == REPEATS
    f(jnp.asarray(X), other)
    assert len(calls) == REPEATS + 1


def test_default_widths_are_part_of_a_signature() -> None:
    assert again(jnp.mean, jnp.arange(4)).dtype == np.float32
    with fxad.enable_x64():
        assert again(jnp.mean, jnp.arange(4)).dtype == np.float64
        assert again(jnp.ones, 3).dtype == np.float64
    assert again(jnp.ones, 3).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16, np.int32, np.complex64])
def test_numbers_may_have_any_value(dtype: Any) -> None:
    x = jnp.asarray(X).astype(dtype)
    functions = [jnp.add, jnp.multiply, jnp.divide, jnp.where, jnp.equal]
    if dtype is not np.complex64:
        functions += [jnp.maximum, jnp.less, jnp.arctan2]
    for function in functions:
        left = (x > 0,) if function is jnp.where else ()
        again(function, *left, x, 3.25)
        for number in (0.5, -0.0, 0.0, np.inf, -np.nan, 1e300, 1e-300, 0.1):
            for args in ((x, number), (number, x), (1.5, x)):
                found = again(function, *left, *args)
                assert bits(found) == bits(op_by_op(function, *left, *args)), (function, args)


def test_numbers_that_a_function_computes_with_are_values() -> None:
    f, _ = counted(lambda x, y: x + 2 * y, numbers=True)
    for number in (1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0):
        assert bits(f(jnp.asarray(X), number)) == bits(jnp.asarray(X) + 2 * number)


def test_what_looks_at_values_is_not_replayed() -> None:
    f, calls = counted(lambda x: x * 2 if x[0, 0] > 0 else -x)
    for _ in range(6):
        assert bits(f(jnp.asarray(X))) == bits(-jnp.asarray(X))
        assert bits(f(jnp.asarray(-X))) == bits(jnp.asarray(-X) * 2)
    assert len(calls) == 13  # one of them a trace, which fails


def test_arguments_come_back_as_they_are() -> None:
    x = jnp.asarray(X)
    for _ in range(6):
        assert jnp.reshape(x, (2, 3)) is x
        assert jnp.real(x) is x


def test_functions_may_have_no_results() -> None:
    for _ in range(6):
        assert jnp.unstack(jnp.ones((0, 3))) == ()
        assert jnp.gradient(jnp.ones(6), axis=()) == []


def test_errors_are_those_of_the_function() -> None:
    x, y = jnp.ones((2, 3)), jnp.ones(4)
    again(jnp.matmul, x, x.T)
    for _ in range(6):
        with pytest.raises(ShapeError, match=r"\(2, 3\), \(4,\) do not broadcast"):
            x + y
        with pytest.raises(NumberOverflow):
            jnp.ones(3, jnp.int8) + 1000


def test_quantiles_beyond_one_are_the_last() -> None:
    x = jnp.arange(6.0)
    for q, wanted in ((1.5, 5), (jnp.asarray(-0.5), 0), (jnp.asarray([-2.0, 9.0]), [0, 5])):
        for _ in range(6):
            for name, scale in itertools.product(("quantile", "nanquantile"), (1, 100)):
                name = name.replace("quantile", "percentile") if scale == 100 else name
                assert getattr(jnp, name)(x, q * scale).tolist() == wanted, name
    assert fxad.jit(jnp.quantile)(x, -0.5) == 0


def test_results_larger_than_memory_stay_an_error() -> None:
    long = jnp.ones(2**21)
    for _ in range(6):
        with pytest.raises(SizeError):
            jnp.ones(2**45)
        with pytest.raises(SizeError):
            jnp.outer(long, long)


def test_a_donated_array_is_not_read() -> None:
    x = jnp.ones(64)
    again(jnp.mean, x)
    fxad.jit(lambda v: v + 1, donate_argnums=0)(x)
    with pytest.raises(DonatedError):
        jnp.mean(x)


def test_results_can_be_donated() -> None:
    change = fxad.jit(lambda v: v * 0 - 5, donate_argnums=0)
    x = jnp.asarray(X)
    for _ in range(6):
        for made in (jnp.ones(64), jnp.eye(3), jnp.arange(5), x.T, fxad.lax.stop_gradient(x) + 0):
            change(made)
    assert bits(jnp.ones(64)) == bits(jnp.asarray(np.ones(64, np.float32)))
    assert bits(jnp.eye(3)) == bits(jnp.asarray(np.eye(3, dtype=np.float32)))
    assert bits(x) == bits(jnp.asarray(X))


def test_numpy_memory_is_not_shared() -> None:
    data = X.copy()
    again(jnp.transpose, jnp.asarray(X))
    results = [jnp.transpose(data), jnp.reshape(data, -1), jnp.sum(data)]
    before = bits(results)
    data[:] = 7
    assert bits(results) == before


def test_traces_and_derivatives_are_as_before() -> None:
    x = jnp.asarray(X)

    def text() -> str:
        return str(fxad.make_ir(jnp.var)(x))

    before = text()
    wanted = bits(op_by_op(fxad.grad(jnp.var), x))
    again(jnp.var, x)
    assert text() == before
    assert bits(again(fxad.grad(jnp.var), x)) == wanted
    assert bits(fxad.vmap(jnp.var)(x)) == bits(op_by_op(fxad.vmap(jnp.var), x))


def test_scoped_rules_and_watchers_see_every_op() -> None:
    x = jnp.asarray(X)
    again(jnp.sin, x)
    slope = fxad.grad(lambda v: jnp.sum(jnp.sin(v)))
    with fxad.override("sin", jvp=lambda p, t: (jnp.sin(p[0]), 5 * t[0])):
        assert bits(slope(x)) == bits(jnp.full_like(x, 5))
    assert bits(slope(x)) == bits(jnp.cos(x))
    again(jnp.log, x)
    with fxad.debug.nans(), pytest.raises(NumericsError):
        jnp.log(x)
    large = jnp.full(2, 3e38)
    with fxad.debug.nans(), pytest.raises(NumericsError, match="scatter made 1 infinite"):
        large.at[jnp.asarray([0])].add(3e38)


def test_signatures_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST", 8)
    f, calls = counted(lambda x, n: x + n)
    assert MOST > 8
    for number in range(20):
        for _ in range(5):
            assert bits(f(jnp.asarray(X), number)) == bits(jnp.asarray(X) + number)
    assert len(calls) == 20 * REPEATS


def test_what_is_constant_or_only_reshaped_is_still_a_result_of_its_own() -> None:
    x = jnp.asarray(X)
    functions = [
        lambda x: jnp.eye(3),
        lambda x: (jnp.reshape(x, 6), jnp.reshape(x, (3, 2))),
        lambda x: fxad.lax.stop_gradient(jnp.reshape(x, 6)),
        lambda x: jnp.broadcast_to(x[0], (4, 3)),
        lambda x: x + jnp.reshape(x[:, 0], (2, 1)),
        lambda x: jnp.reshape(x[0], (1, 3)) * jnp.reshape(x[1], (3, 1)),
        lambda x: jnp.where(x[:, :1] > 0, x, x[:1]),
        lambda x: jnp.broadcast_to(jnp.sum(x), (2, 2)) + jnp.broadcast_to(jnp.max(x), (2, 2)),
    ]
    for plain in functions:
        f = replayed(plain)
        wanted = bits(op_by_op(plain, x))
        for _ in range(REPEATS + 2):
            found = f(x)
            assert bits(found) == wanted
            for result in leaves(found):
                data = result.data
                assert data.flags.c_contiguous
                assert not np.may_share_memory(data, x.data)
                fxad.jit(lambda v: v * 0 - 1, donate_argnums=0)(result)
    assert bits(x) == bits(jnp.asarray(X))


@pytest.mark.parametrize("given", [X, np.arange(2), jnp.asarray(X)])
def test_an_array_as_a_dtype_is_refused_however_often(given):
    for call in (lambda: jnp.zeros(2, given), lambda: jnp.sum(X, dtype=given)):
        for _ in range(REPEATS + 2):
            with pytest.raises(TypeMismatch, match="an array"):
                call()
    for _ in range(REPEATS + 2):
        assert jnp.sum(jnp.asarray(X), dtype=np.float64(1)).dtype == np.float64


def test_large_arrays_of_64_bits_are_converted_once(monkeypatch):
    seen: list[int] = []
    native = replay.native
    monkeypatch.setattr(replay, "native", lambda a: seen.append(a.nbytes) or native(a))
    large, small = np.linspace(0, 1, 1 << 12), np.linspace(0, 1, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (large, small):
            results = [np.asarray(jnp.mean(x)) for _ in range(REPEATS + 2)]
            assert {r.tobytes() for r in results} == {np.asarray(jnp.mean(np.float32(x))).tobytes()}
    assert large.nbytes not in seen and small.nbytes in seen
