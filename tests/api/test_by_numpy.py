"""Parts of functions that are one call of NumPy's outside traces: the bits of their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import AxisError, BadArgument, NumericsError, ShapeError
from fxad.trace import tracer
from fxad.trace.replay import REPEATS, replayed
from fxad.tree import leaves

INF, NAN = np.inf, np.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, 2.5, -7.0, 0.1, 1e-45, -1e-40, 3e38, -1e30, INF, -INF, NAN]
TABLE = [-INF, -2.0, -0.0, 0.0, 1.0, 1.0, 2.5, 1e30, INF, NAN, NAN]


def op_by_op(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracer, "ordinary", False)
        return function(*args, **named)


def same(found: Any, wanted: Any) -> None:
    """The same bits, whichever NaN."""
    for one, other in zip(leaves(found), leaves(wanted), strict=True):
        a, b = np.asarray(one), np.asarray(other)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.array_equal(np.isnan(a), np.isnan(b))
        assert np.where(np.isnan(a), 0, a).tobytes() == np.where(np.isnan(b), 0, b).tobytes()


def check(function: Callable[..., Any], *args: Any, **named: Any) -> None:
    """The first calls and replayed ones give what ops do, and what compiled code does."""
    wanted = op_by_op(function, *args, **named)
    for _ in range(REPEATS + 2):
        same(function(*args, **named), wanted)
    compiled = fxad.jit(lambda *a: function(*a, **named))(*args)
    for one, other in zip(leaves(compiled), leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "function",
    [jnp.remainder, jnp.floor_divide, jnp.hypot, jnp.logaddexp, jnp.divmod],
    ids=lambda f: f.__name__,
)
def test_elementwise(function: Callable[..., Any], dtype: str) -> None:
    r = np.random.default_rng(0)
    with fxad.enable_x64(dtype == "float64"), np.errstate(all="ignore"):
        a, b = (np.array(v, dtype if dtype != "bfloat16" else jnp.bfloat16) for v in (SPECIAL,) * 2)
        a, b = (jnp.asarray(v.ravel()) for v in np.meshgrid(a, b))
        wanted = op_by_op(function, a, b)
        for _ in range(REPEATS + 2):
            same(function(a, b), wanted)
        a, b = (jnp.asarray(10 * r.normal(size=2000)).astype(dtype) for _ in range(2))
        wanted = op_by_op(function, a, b)
        for _ in range(REPEATS + 2):
            same(function(a, b), wanted)
        for number in (2.0, -0.3, 0.0, -INF):
            wanted = op_by_op(function, a, number)
            for _ in range(REPEATS + 2):
                same(function(a, number), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function", [jnp.floor_divide, jnp.hypot, jnp.logaddexp], ids=lambda f: f.__name__
)
def test_elementwise_without_special_values(function: Callable[..., Any], dtype: str) -> None:
    """One special pair among plain ones, and none: shorter ways are taken where there is none."""
    with fxad.enable_x64(dtype == "float64"):
        big = float(np.finfo(dtype).max)
        values = [v for v in SPECIAL if v and np.isfinite(v)] + [big, -big, big / 3, 1e-30]
        pairs = np.stack(np.meshgrid(values, values)).reshape(2, -1).astype(dtype)
        plain = pairs[:, (pairs != 0).all(0)]
        a, b = map(jnp.asarray, plain)
        wanted = op_by_op(function, a, b)
        for _ in range(REPEATS + 2):
            same(function(a, b), wanted)
        for x in SPECIAL:
            for y in SPECIAL:
                a, b = (jnp.asarray(np.array([v, 1.5], dtype)) for v in (x, y))
                same(function(a, b), op_by_op(function, a, b))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_diagonals(dtype: str) -> None:
    x = np.arange(60).reshape(3, 4, 5).astype(dtype)
    for offset in (0, 1, -2, 4, -3, 9):
        for axes in ((0, 1), (2, 0), (-1, 1)):
            for _ in range(REPEATS + 1):
                found = jnp.diagonal(jnp.asarray(x), offset, *axes)
                same(found, jnp.asarray(np.diagonal(x, offset, *axes)))
    m = jnp.asarray(x[0])
    same(fxad.grad(lambda m: jnp.diag(m).sum())(m.astype("float32")), jnp.eye(4, 5))
    for offset in (2**40, -(2**40)):
        assert jnp.diagonal(m, offset).shape == (0,)
    with pytest.raises(AxisError, match=r"axes \(1, -1\) name one axis twice"):
        jnp.diagonal(m, 0, 1, -1)


@pytest.mark.parametrize("to", ["int8", "uint8", "int32", "uint32"])
def test_floats_saturate(to: str) -> None:
    limits = np.iinfo(to)
    edges = [limits.min, limits.max, limits.min - 1.0, limits.max + 1.0, 0.5, -0.5, NAN, INF, -INF]
    for value in [*edges, -1.0, -0.999, -0.0, 7.9]:
        x = np.array([value, 3.0], np.float32)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), posinf=1e300, neginf=-1e300))
        expected = np.clip(wide, limits.min, limits.max).astype(to)
        for _ in range(REPEATS + 1):
            assert np.array_equal(jnp.asarray(x).astype(to), expected), value


@pytest.mark.parametrize("function", [jnp.remainder, jnp.floor_divide], ids=lambda f: f.__name__)
def test_integers_divide_as_before(function: Callable[..., Any]) -> None:
    a, b = np.meshgrid(*[np.array([-(2**31), -7, -1, 0, 1, 3, 2**31 - 1], np.int32)] * 2)
    check(function, jnp.asarray(a), jnp.asarray(b))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("table", [TABLE, TABLE[:1], TABLE[-1:], [], TABLE[2:7]], ids=len)
def test_searchsorted(side: str, table: list[float]) -> None:
    edges, queries = np.array(table, np.float32), np.array([SPECIAL + TABLE[::2]], np.float32)
    wanted = np.searchsorted(edges, queries, side).astype(np.int32)
    check(jnp.searchsorted, jnp.asarray(edges), jnp.asarray(queries), side=side)
    np.testing.assert_array_equal(jnp.searchsorted(edges, queries, side), wanted)
    np.testing.assert_array_equal(
        fxad.jit(jnp.searchsorted, static_argnames="side")(edges, queries, side=side), wanted
    )


@pytest.mark.parametrize("outside", [{}, {"left": -1.0}, {"right": jnp.float32(9)}], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_interp(outside: dict[str, Any], count: int) -> None:
    r = np.random.default_rng(count)
    xp = np.sort(r.normal(size=count)).astype(np.float32)
    if count > 3:
        xp[3] = xp[2]
    fp = r.normal(size=count).astype(np.float32)
    x = np.concatenate([r.normal(size=50), xp, [INF, -INF, NAN, 0.0]]).astype(np.float32)
    check(jnp.interp, *map(jnp.asarray, (x, xp, fp)), **outside)
    plain = np.isfinite(x) & ~np.isin(x, xp[2:4])
    wanted = np.interp(x[plain], xp, fp, **{k: float(v) for k, v in outside.items()})
    np.testing.assert_allclose(jnp.interp(x[plain], xp, fp, **outside), wanted, rtol=1e-4)


def test_interp_wants_as_many_places_as_values() -> None:
    for xp, fp in ((np.ones(3), np.ones(4)), (np.ones(0), np.ones(0)), (np.eye(2), np.eye(2))):
        with pytest.raises(ShapeError, match="xp and fp must be vectors of as many elements"):
            jnp.interp(np.ones(2), xp, fp)


def test_derivatives_and_batches_go_through_the_ops() -> None:
    x, y = jnp.asarray([0.5, -2.0, 0.0]), jnp.asarray([1.5, 1.0, 0.0])
    for function in (jnp.hypot, jnp.logaddexp, jnp.remainder):
        slope = fxad.grad(lambda a, f=function: jnp.sum(f(a, y)))
        same(slope(x), op_by_op(slope, x))
        same(fxad.vmap(function)(x, y), op_by_op(function, x, y))
    assert "= searchsorted" not in str(fxad.make_ir(jnp.searchsorted)(x, y))
    assert "= length" not in str(fxad.make_ir(jnp.hypot)(x, y))


def test_watchers_see_the_ops() -> None:
    with fxad.debug.nans(), pytest.raises(NumericsError, match="rem made"):
        jnp.remainder(jnp.ones(3), jnp.zeros(3))


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_indices_of_every_width_and_sign(dtype: str, mode: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    places = [0, 5, 3, 6, 100] if dtype[0] == "u" else [0, 5, -1, -6, -7, 6, 100]
    with fxad.enable_x64(dtype.endswith("64")):
        for chosen in (places[:3], places):
            index = np.array(chosen, dtype)
            found = fxad.jit(lambda x, i: jnp.take(x, i, 0, mode=mode))(x, index)
            check(jnp.take, jnp.asarray(x), jnp.asarray(index), axis=0, mode=mode)
            same(jnp.take(x, index, 0, mode=mode), found)


@pytest.mark.parametrize("mode", ["fill", "clip"])
@pytest.mark.parametrize(("dtype", "size"), [("int8", 128), ("int8", 300), ("int16", 70000)])
def test_indices_below_zero_of_arrays_longer_than_their_range(
    dtype: str, size: int, mode: str
) -> None:
    x, index = jnp.arange(float(size)), np.array([-1, -128, 2, 127], dtype)
    found = x.at[index].get(mode=mode, wrap_negative_indices=False)
    low = np.nan if mode == "fill" else 0
    same(found, np.array([low, low, 2, 127], np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_indices_of_few_bits_wrap_round_many_elements(dtype: str) -> None:
    x, index = np.arange(70000.0, dtype=np.float32), np.array([5, 120], dtype)
    index = np.append(index, index.dtype.type(np.iinfo(dtype).max))
    wanted = np.take(x, index, mode="wrap")
    check(lambda x, i: jnp.take(x, i, mode="wrap"), x, index)
    same(jnp.take(x, index, mode="wrap"), wanted)


def test_numpys_own_arrays_are_replayed() -> None:
    data = np.linspace(-1, 1, 6, dtype=np.float64).reshape(2, 3)
    x, calls = jnp.asarray(data), []
    f = replayed(lambda a, b: (calls.append(0), a * b + 1)[1])
    for other in (data, np.asfortranarray(data), data.astype(">f4"), np.float32(2), data[:, ::-1]):
        wanted = op_by_op(f, x, other)
        del calls[:]
        for _ in range(REPEATS + 3):
            same(f(x, other), wanted)
        assert len(calls) <= REPEATS
    assert jnp.add(x, data).dtype == np.float32


def test_numbers_repeated_to_shapes_of_one_element() -> None:
    f = replayed(lambda a, b: jnp.broadcast_to(a, (1, 1)) * jnp.broadcast_to(b, (1, 1)))
    for _ in range(REPEATS + 2):
        same(f(jnp.float32(2), jnp.float32(3)), np.full((1, 1), 6, np.float32))


@pytest.mark.parametrize("number", [0.0, 3.0, -2.5])
def test_roots_of_weak_numbers_are_strong_as_in_jax(number: float) -> None:
    x = jnp.asarray(number)
    for _ in range(REPEATS + 2):
        assert not jnp.linalg.norm(x).weak
        assert not jnp.linalg.norm(jnp.float32(number)).weak
        assert jnp.sqrt(x * x).weak
    assert not fxad.jit(jnp.linalg.norm)(x).weak


def test_what_fails_fails_alike_when_called_again() -> None:
    for empty in (np.zeros((0, 3), np.float32), jnp.zeros((0, 3))):
        for _ in range(REPEATS + 2):
            with pytest.raises(BadArgument, match="hstack: needs at least one array"):
                jnp.hstack(empty)


def test_numbers_of_numpys_narrow_like_its_arrays() -> None:
    for _ in range(REPEATS + 2):
        assert jnp.zeros_like(np.float64(0.5)).dtype == np.float32
        assert jnp.ones_like(np.int64(2)).dtype == np.int32


@pytest.mark.parametrize(
    "function",
    [jnp.real, jnp.ravel, jnp.abs, jnp.squeeze, jnp.floor, jnp.broadcast_arrays, jnp.concatenate],
    ids=lambda f: f.__name__,
)
def test_arrays_that_are_written_to_later_change_no_result(function: Callable[..., Any]) -> None:
    for _ in range(REPEATS + 2):
        given = np.arange(3, dtype=np.uint8)
        lent = given[None] if function is jnp.concatenate else given
        (found,) = leaves(function(lent))
        given[:] = 9
        same(found, np.arange(3, dtype=np.uint8))


def test_results_lie_in_nobody_elses_memory() -> None:
    data = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    waves = (data + 1j * data).astype(np.complex64)
    for given in (data, waves):
        for function in (jnp.transpose, jnp.ravel, jnp.atleast_3d, jnp.flip):
            for _ in range(REPEATS + 2):
                assert not np.may_share_memory(np.asarray(function(given)), given)
    for _ in range(REPEATS + 2):
        assert not np.may_share_memory(np.asarray(jnp.real(waves)), waves)
