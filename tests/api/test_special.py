"""fxad.scipy.special against mpmath's values, finite differences, its limits, and SciPy (peers)."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from special_values import COMPLEX_VALUES, VALUES

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.scipy import special, stats
from fxad.scipy.special import fit_tables, tables

R = np.random.default_rng(3)
STATIC_ORDER = ("jn", "yn", "expn", "multigammaln")


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize(("name", "args", "value"), VALUES)
def test_values(name: str, args: tuple, value: float) -> None:
    function = getattr(special, name)
    # iv of large arguments is the exponential of a difference of numbers near 1000
    near = {"rel": 1e-12 if name in ("iv", "ive") else 3e-14, "abs": 2e-16}
    assert float(function(*args)) == pytest.approx(value, **near)
    if name not in STATIC_ORDER:
        assert float(fxad.jit(function)(*args)) == pytest.approx(value, **near)
        single = function(*(np.float32(a) for a in args))
        assert single.dtype == np.float32
        # A relative error of an argument is multiplied by the function's condition number.
        if all(float(np.float32(a)) == a for a in args) and abs(value) < 1e38:
            assert float(single) == pytest.approx(value, rel=2e-4, abs=1e-6)


@pytest.mark.parametrize(("name", "z", "value"), COMPLEX_VALUES)
def test_error_functions_of_complex_numbers(name: str, z: complex, value: complex) -> None:
    function = getattr(special, name)
    assert complex(function(z)) == pytest.approx(value, rel=2e-14)
    assert complex(fxad.jit(function)(z)) == pytest.approx(value, rel=2e-14)
    assert complex(function(np.complex64(z))) == pytest.approx(value, rel=1e-3)
    slope = complex(fxad.grad(function, holomorphic=True)(z))
    difference = complex(function(z + 1e-6) - function(z - 1e-6)) / 2e-6
    assert slope == pytest.approx(difference, rel=1e-6)
    across = complex(function(z + 1e-6j) - function(z - 1e-6j)) / 2e-6
    assert slope * 1j == pytest.approx(across, rel=1e-6)


def test_shape_parameters_cost_nothing_where_they_are_held() -> None:
    a, x = np.full(3, 2.0), np.array([0.5, 1.0, 9.0])
    for function in (special.gammainc, special.gammaincc, lambda a, x: special.ive(a, x)):
        in_x, in_a = (
            fxad.make_ir(fxad.grad(lambda a, x, f=function: f(a, x).sum(), n))(a, x) for n in (1, 0)
        )
        assert len(in_x.eqns) < 0.7 * len(in_a.eqns)


# name, arguments, numbers of those to differentiate
SMOOTH = [
    ("gamma", [R.uniform(0.3, 6, 4)], [0]),
    ("gamma", [R.uniform(-1.8, -1.2, 4)], [0]),
    ("rgamma", [R.uniform(0.3, 6, 4)], [0]),
    ("gammaln", [R.uniform(0.3, 20, 4)], [0]),
    ("digamma", [R.uniform(-0.8, 9, 4)], [0]),
    ("polygamma", [2, R.uniform(0.5, 9, 4)], [1]),
    ("zeta", [R.uniform(1.5, 5, 4), R.uniform(0.5, 3, 4)], [0, 1]),
    ("beta", [R.uniform(0.5, 3, 4), R.uniform(0.5, 12, 4)], [0, 1]),
    ("betaln", [R.uniform(0.5, 20, 6), R.uniform(0.5, 20, 6)], [0, 1]),
    ("gammainc", [R.uniform(0.5, 12, 6), R.uniform(0.5, 12, 6)], [0, 1]),
    ("gammaincc", [R.uniform(0.5, 12, 6), R.uniform(0.5, 12, 6)], [0, 1]),
    ("betainc", [R.uniform(0.5, 9, 5), R.uniform(0.5, 9, 5), R.uniform(0.1, 0.9, 5)], [0, 1, 2]),
    ("poch", [R.uniform(1, 5, 4), R.uniform(1, 5, 4)], [0, 1]),
    ("comb", [R.uniform(5, 9, 4), R.uniform(1, 4, 4)], [0, 1]),
    ("erfcinv", [R.uniform(0.01, 1.9, 6)], [0]),
    ("ndtr", [R.uniform(-3, 3, 6)], [0]),
    ("ndtri", [R.uniform(0.01, 0.99, 6)], [0]),
    ("log_ndtr", [np.array([-60.0, -12.0, -3.0, 0.1, 3.0])], [0]),
    ("logit", [R.uniform(0.1, 0.9, 4)], [0]),
    ("expit", [R.uniform(-3, 3, 4)], [0]),
    ("log_expit", [R.uniform(-3, 3, 4)], [0]),
    ("xlogy", [R.uniform(0.1, 3, 4), R.uniform(0.1, 3, 4)], [0, 1]),
    ("xlog1py", [R.uniform(0.1, 3, 4), R.uniform(0.1, 3, 4)], [0, 1]),
    ("entr", [R.uniform(0.1, 3, 4)], [0]),
    ("kl_div", [R.uniform(0.1, 3, 4), R.uniform(0.1, 3, 4)], [0, 1]),
    ("rel_entr", [R.uniform(0.1, 3, 4), R.uniform(0.1, 3, 4)], [0, 1]),
    ("multigammaln", [R.uniform(4, 6, 4), 3], [0]),
    *((name, [R.uniform(0.2, 20, 6)], [0]) for name in ("j0", "j1", "y0", "y1")),
    *((name, [R.uniform(-12, 12, 6)], [0]) for name in ("i0", "i1", "i0e", "i1e")),
    ("jn", [3, R.uniform(-9, 9, 6)], [1]),
    ("expn", [3, R.uniform(0.2, 5, 6)], [1]),
    ("exp1", [R.uniform(0.2, 5, 6)], [0]),
    ("expi", [np.array([-3.0, -0.3, 0.5, 6.0])], [0]),
    ("yn", [4, R.uniform(1, 9, 6)], [1]),
    ("iv", [R.uniform(0.2, 9, 5), R.uniform(0.5, 20, 5)], [0, 1]),
    ("ive", [R.uniform(0.2, 3, 5), R.uniform(30, 90, 5)], [0, 1]),
]


@pytest.mark.parametrize(("name", "args", "numbers"), SMOOTH)
def test_derivatives(name: str, args: list, numbers: list[int]) -> None:
    """First and second ones, forward and reverse, against central differences."""

    def total(*xs: Any) -> Any:
        merged = list(args)
        for number, x in zip(numbers, xs, strict=True):
            merged[number] = x
        return jnp.sum(getattr(special, name)(*merged) * weights)

    weights = R.uniform(0.5, 1.5, np.size(args[numbers[0]]))
    points = [args[i] for i in numbers]
    ways = [R.standard_normal(np.shape(p)) for p in points]

    def along(function: Any, *xs: Any) -> Any:
        return fxad.jvp(function, xs, tuple(ways))[1]

    def difference(function: Any, step: float) -> float:
        ends = [
            function(*(p + s * step * w for p, w in zip(points, ways, strict=True)))
            for s in (1, -1)
        ]
        return float((ends[0] - ends[1]) / (2 * step))

    first = float(along(total, *points))
    assert first == pytest.approx(difference(total, 1e-6), rel=1e-6, abs=1e-8)
    back = fxad.jit(fxad.grad(total, argnums=tuple(range(len(points)))))(*points)
    pulled = sum(float(jnp.vdot(b, w)) for b, w in zip(back, ways, strict=True))
    assert pulled == pytest.approx(first, rel=1e-9)
    second = float(along(lambda *xs: along(total, *xs), *points))
    wanted = difference(lambda *xs: along(total, *xs), 1e-6)
    assert second == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_vmap_is_a_loop() -> None:
    a, x = R.uniform(0.5, 9, (3, 4)), R.uniform(0.5, 9, (3, 4))
    for function in (special.gammainc, special.iv, special.betaln, special.zeta):
        shifted = a + 1
        rows = fxad.vmap(function)(shifted, x)
        np.testing.assert_allclose(
            rows, np.stack([function(*r) for r in zip(shifted, x, strict=True)]), 1e-14
        )


LIMITS = [
    ("gamma", [0.0, -0.0, -1.0, math.inf, 171.0], [math.inf, -math.inf, math.nan, math.inf, None]),
    ("gamma", [172.0, 1e3, 1e300, -1e3 - 0.5, -math.inf], [math.inf] * 3 + [0, math.nan]),
    ("rgamma", [200.0, 1e3, math.inf, -math.inf, -0.0, -1e3, -200.5], [0] * 6 + [-math.inf]),
    ("factorial", [171.0, 1e4], [math.inf] * 2),
    ("gammasgn", [-0.5, -1.5, -1.0, 0.0, math.inf], [-1, 1, math.nan, 1, 1]),
    ("gammaln", [0.0, -2.0, math.inf], [math.inf] * 3),
    ("digamma", [0.0, -1.0, -2.0], [-math.inf, math.nan, math.nan]),
    ("ndtri", [0.0, 1.0, 1.5], [-math.inf, math.inf, math.nan]),
    ("entr", [0.0, -1.0], [0, -math.inf]),
    ("j0", [math.inf], [0]),
    ("y0", [0.0, -1.0, math.inf], [-math.inf, math.nan, 0]),
    ("i1e", [0.0], [0]),
    ("log_ndtr", [-math.inf, math.inf, math.nan], [-math.inf, 0, math.nan]),
    ("factorial", [-1.0, 0.0], [0, 1]),
    ("exp1", [0.0, math.inf, -1.0], [math.inf, 0, math.nan]),
    ("expi", [0.0, math.inf, -math.inf], [-math.inf, math.inf, 0]),
]


@pytest.mark.parametrize(("name", "xs", "wanted"), LIMITS)
def test_limits(name: str, xs: list, wanted: list) -> None:
    got = np.asarray(getattr(special, name)(np.array(xs)))
    for value, want in zip(got, wanted, strict=True):
        assert want is None or value == want or (math.isnan(want) and math.isnan(value)), name


def test_limits_of_several_arguments() -> None:
    inf, nan = math.inf, math.nan
    for got, wanted in (
        (special.gammainc(2.0, 0.0), 0),
        (special.gammainc(2.0, inf), 1),
        (special.gammaincc(2.0, inf), 0),
        (special.gammainc(-1.0, 2.0), nan),
        (special.gammainc(-inf, 1.0), nan),
        (special.gammaincc(-inf, 0.0), nan),
        (special.gammainc(inf, 1.0), 0),
        (special.betainc(2.0, 3.0, 1.0), 1),
        (special.betainc(2.0, 3.0, 1.5), nan),
        (special.xlogy(0.0, 0.0), 0),
        (special.xlog1py(0.0, -1.0), 0),
        (special.rel_entr(0.0, 0.0), 0),
        (special.rel_entr(1.0, 0.0), inf),
        (special.kl_div(0.0, 2.0), 2),
        (special.zeta(1.0, 2.0), inf),
        (special.zeta(0.5, 2.0), nan),
        (special.zeta(2.5, -0.5), nan),
        (special.zeta(3.0, 0.0), inf),
        (special.zeta(2.0, -4.0), inf),
        (special.polygamma(1, 0.0), inf),
        (special.iv(0.0, 0.0), 1),
        (special.iv(-1.0, 1.0), nan),
        (special.jn(-3, 2.0), -special.jn(3, 2.0)),
    ):
        np.testing.assert_equal(float(got), float(wanted))
    assert fxad.grad(special.xlogy)(0.0, 0.0) == 0
    slope = fxad.grad(special.entr)
    assert (slope(0.0), fxad.grad(slope)(0.0)) == (inf, -inf)
    assert float(slope(0.5)) == pytest.approx(math.log(2) - 1)


def derivatives(function: Any, count: int) -> list[Any]:
    """The function and its first derivatives."""
    found = [function]
    for _ in range(count):
        found.append(fxad.grad(found[-1]))
    return found


def test_gamma_functions_out_of_range() -> None:
    x = {16: [9.5, 20.0, 180.0, -9.5], 32: [36.0, 100.0, 200.0, 1e30], 64: [172.0, 800.0, 1e300]}
    for bits, xs in x.items():
        at = np.array(xs, f"f{bits // 8}")
        for wrapped in (lambda f: f, fxad.jit):
            got = np.asarray(wrapped(special.gamma)(at))
            with np.errstate(over="ignore"):
                wanted = np.array([float(mp.gamma(min(v, 1e4))) for v in xs]).astype(at.dtype)
            np.testing.assert_allclose(got, wanted, rtol=2 * np.finfo(at.dtype).eps)
        for name, limit in (("gamma", math.inf), ("factorial", math.inf), ("rgamma", 0)):
            slope = fxad.vmap(fxad.grad(getattr(special, name)))(at[1:3])
            np.testing.assert_array_equal(np.asarray(slope, float), limit)
    low = np.array([-171.5, -174.25, -176.75])  # below the normal numbers
    wanted = np.array([float(mp.gamma(v)) for v in low])
    np.testing.assert_allclose(special.gamma(low), wanted, rtol=1e-12, atol=5e-324)
    np.testing.assert_allclose(special.rgamma(172.5), float(mp.rgamma(172.5)), rtol=1e-12)
    assert math.copysign(1, special.gamma(-200.5)) == -math.copysign(1, special.gamma(-201.5))


def test_derivatives_of_rgamma_at_the_poles_of_gamma() -> None:
    x = np.array([0.0, -0.0, -1.0, -2.0, -7.0, -3 + 1e-9, -0.5, -2.25, 0.499, 0.5, 3.0])
    for order, function in enumerate(derivatives(special.rgamma, 3)):
        got = fxad.jit(fxad.vmap(function))(x)
        with mp.workdps(40):
            wanted = [float(mp.diff(mp.rgamma, float(v), order)) for v in x]
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


def test_higher_derivatives_at_half_integers_below_zero() -> None:
    x = np.array([-0.5, -1.5, -2.5, -7.5, -1.5 + 1e-9, -1.3, -1.7])
    for name in ("digamma", "gamma", "gammaln", "rgamma"):
        exact = mp.loggamma if name == "gammaln" else getattr(mp, name)
        for order, function in enumerate(derivatives(getattr(special, name), 4)):
            got = fxad.vmap(function)(x)
            with mp.workdps(40):
                wanted = [float(mp.re(mp.diff(exact, float(v), order))) for v in x]
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-14 * 50**order)


def test_polygamma_and_zeta_below_zero() -> None:
    x = np.array([-1e-9, -0.5, -1.5, -0.99, -1.01, -2.25, -7.75, -100.5, -1 - 1e-9])
    for n in (1, 2, 3, 6):
        # Of an even n terms on either side of a half-integer cancel; the largest is n! 2**(n + 1).
        near = {"rtol": 3e-13, "atol": 1e-15 * math.factorial(n) * 2 ** (n + 1)}
        for got in (special.polygamma(n, x), fxad.jit(special.polygamma)(float(n), x)):
            with mp.workdps(30):
                wanted = [float(mp.psi(n, float(v))) for v in x]
            np.testing.assert_allclose(got, wanted, **near)
        slope = fxad.vmap(fxad.grad(lambda v, n=n: special.polygamma(n, v)))(x)
        np.testing.assert_allclose(slope, special.polygamma(n + 1, x), 3e-13, 20 * near["atol"])
        direct = (-1.0) ** (n + 1) * math.factorial(n) * special.zeta(n + 1, x)
        np.testing.assert_allclose(direct, special.polygamma(n, x), 1e-14)
    rows = fxad.vmap(special.zeta)(np.array([2.0, 2.0]), np.array([-1.5, 2.5]))
    np.testing.assert_array_equal(rows, special.zeta(2.0, np.array([-1.5, 2.5])))


def test_derivatives_in_shapes_at_which_continued_fractions_end() -> None:
    """A numerator of the fraction is 0 there, or nearly, but its derivative is not."""
    shapes = np.array([1.0, 2.0, 3.0, 1 + 1e-15, 2 - 1e-10])
    x = np.array([2.0, 3.5, 30.0, 2.0, 3.5])
    for name, ends in (("gammainc", (0, "x")), ("gammaincc", ("x", mp.inf))):
        lower = lambda a, v, ends=ends: mp.gammainc(  # noqa: E731
            a, *(mp.mpf(v) if e == "x" else e for e in ends), regularized=True
        )
        for order, function in enumerate(derivatives(getattr(special, name), 2)):
            got = fxad.vmap(function)(shapes, x)
            with mp.workdps(40):
                wanted = [
                    float(mp.diff(lambda a, v=v: lower(a, v), float(s), order))
                    for s, v in zip(shapes, x, strict=True)
                ]
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-15)
    a = np.array([1.0, 1.0, 2.0, 1.0, 3.0, 3.0 + 1e-14])
    b = np.array([1.0, 1.0, 5.0, 7.5, 2.0, 2.0])
    x = np.array([0.7, 0.3, 0.2, 0.05, 0.9, 0.9])
    for argument in (0, 1):
        got = fxad.vmap(fxad.grad(special.betainc, argument))(a, b, x)
        for value, *at, end in zip(got, a, b, x, strict=True):
            at = [mp.mpf(float(v)) for v in at]

            def share(v: Any, at: list = at, end: float = end) -> Any:
                moved = [v if k == argument else p for k, p in enumerate(at)]
                return mp.betainc(*moved, 0, float(end), regularized=True)

            with mp.workdps(40):
                wanted = float(mp.diff(share, at[argument]))
            assert float(value) == pytest.approx(wanted, rel=1e-12)
    assert float(fxad.grad(special.betainc)(1.0, 1.0, 0.7)) == pytest.approx(0.7 * math.log(0.7))


def test_incomplete_gammas_of_large_shapes() -> None:
    a = np.repeat([3.9e4, 4e4, 1e15], 4)
    x = a + np.tile([-6.0, 0.0, 0.25, 30.0], 3) * np.sqrt(a)
    # A relative error of x is multiplied by |x - a| in the tails.
    near = 3e-13 + 4e-16 * abs(x - a)
    with mp.workdps(40):
        exact = [upper_gamma(s, v) for s, v in zip(a, x, strict=True)]
        upper, lower = floats(exact), floats([1 - q for q in exact])
    for wrapped in (lambda f: f, fxad.jit):
        error = abs(np.asarray(wrapped(special.gammaincc)(a, x)) - upper)
        assert (error <= near * upper).all()
        error = abs(np.asarray(wrapped(special.gammainc)(a, x)) - lower)
        assert (error <= near * lower).all()
    for number in (5, 6, 9):
        s, v = float(a[number]), float(x[number])
        slopes = [fxad.grad(special.gammaincc)(s, v)]
        slopes.append(fxad.grad(fxad.grad(special.gammaincc))(s, v))
        with mp.workdps(40):
            step = math.sqrt(s) / 2**16
            low, middle, high = (upper_gamma(mp.mpf(s) + d, v) for d in (-step, 0, step))
            wanted = (high - low) / (2 * step), (high - 2 * middle + low) / step**2
        scale = math.sqrt(s)  # the second one is 0 close to a = x
        assert float(slopes[0]) * scale == pytest.approx(float(wanted[0]) * scale, rel=1e-7)
        assert float(slopes[1]) * s == pytest.approx(float(wanted[1]) * s, rel=1e-6, abs=1e-7)
    single = special.gammainc(np.float32(1e6), np.float32([1e6, 1.001e6, 0.5e6, 2e6]))
    with mp.workdps(40):
        wanted = floats([1 - upper_gamma(1e6, 1e6), 1 - upper_gamma(1e6, 1.001e6), 0, 1])
    np.testing.assert_allclose(single, wanted, rtol=1e-6)


def floats(numbers: list) -> np.ndarray:
    return np.array([float(n) for n in numbers])


def upper_gamma(a: Any, x: Any) -> Any:
    """Q(a, x) of a large a: the integral of its density, which falls off as exp(-k)."""
    a, x = mp.mpf(a), mp.mpf(x)
    width = mp.sqrt(a) / (1 + max((x - a) / mp.sqrt(a), 0))
    log_density = lambda t: (a - 1) * mp.log(t) - t  # noqa: E731
    start = log_density(x)
    points = [x + width * k for k in (0, 1, 3, 7, 13, 20, 28, 40, 64)]
    share = mp.quad(lambda t: mp.exp(log_density(t) - start), points, method="gauss-legendre")
    return share * mp.exp(start - mp.loggamma(a))


def test_gammaincc_of_small_shapes() -> None:
    a = np.array([1e-15, 1e-20, 1e-8, 1e-8, 1e-3, 0.1, 0.4, 0.05])
    x = np.array([0.1, 0.5, 0.1, 1e-30, 1.0, 1.0, 1.3, 1e-5])
    for dtype in (np.float64, np.float32):
        shapes, at = a.astype(dtype), x.astype(dtype)
        with mp.workdps(60):
            exact = [
                mp.gammainc(float(s), float(v), regularized=True)
                for s, v in zip(shapes, at, strict=True)
            ]
        for wrapped in (lambda f: f, fxad.jit):
            got = wrapped(special.gammaincc)(shapes, at)
            np.testing.assert_allclose(got, floats(exact), rtol=40 * np.finfo(dtype).eps)


def modified_bessel(v: float, x: float) -> Any:
    """I_v(x) by mpmath, and by DLMF 10.40.1 where its series is too long."""
    if x < 2e4:
        return mp.besseli(v, x)
    terms = [mp.mpf(1)]
    for k in range(1, 60):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * mp.mpf(v) ** 2) / (8 * k * mp.mpf(x)))
    return mp.exp(x) / mp.sqrt(2 * mp.pi * x) * mp.fsum(terms)


def test_modified_bessel_functions_of_large_orders_and_arguments() -> None:
    pairs = [(1e3, 1e6), (100.0, 1e4), (685.0, 811.0), (1e3, 1e3), (77.3, 100.0), (141.13, 63.76)]
    pairs += [(0.0, 90.0), (3.0, 712.0), (0.5, 49.9), (7.0, 50.5), (49.5, 7.0), (50.1, 0.3)]
    pairs += [(0.0, 50.1), (49.0, 2400.0), (300.0, 5.0), (2e3, 1e3), (35.3, 35.5), (1e-3, 713.0)]
    v, x = np.array(pairs).T
    for dtype in (np.float64, np.float32):
        eps, most = float(np.finfo(dtype).eps), float(np.finfo(dtype).max)
        with mp.workdps(30):
            at = [(float(dtype(a)), float(dtype(b))) for a, b in pairs]
            plain = [modified_bessel(a, b) for a, b in at]
            scaled = [p * mp.exp(-b) for p, (_, b) in zip(plain, at, strict=True)]
        for function, exact in ((special.iv, plain), (special.ive, scaled)):
            wanted = floats([e if e < most else mp.inf for e in exact])
            got = np.asarray(fxad.jit(function)(v.astype(dtype), x.astype(dtype)), float)
            # The exponential of a difference of about v log v and x
            near = 2 * eps * (8 + v * np.arcsinh(v / x) + (x if function is special.iv else 0))
            inside = (wanted < math.inf) & (wanted > np.finfo(dtype).tiny)
            error = abs(got[inside] / wanted[inside] - 1)
            assert (error <= near[inside]).all(), error / near[inside]
            tiny = np.finfo(dtype).tiny
            np.testing.assert_allclose(got[~inside], wanted[~inside], rtol=0, atol=tiny)
    got = fxad.vmap(fxad.grad(special.iv))(v[2:8], x[2:8])
    with mp.workdps(30):
        wanted = [mp.diff(mp.besseli, (a, b), (1, 0)) for a, b in pairs[2:8]]
    np.testing.assert_allclose(got, floats(wanted), rtol=1e-9)
    got = fxad.vmap(fxad.grad(special.iv, 1))(v[2:8], x[2:8])
    with mp.workdps(30):
        wanted = [mp.diff(mp.besseli, (a, b), (0, 1)) for a, b in pairs[2:8]]
    np.testing.assert_allclose(got, floats(wanted), rtol=1e-12)


def test_float64_outside_of_enable_x64_has_constants_of_float64() -> None:
    with fxad.enable_x64(False):
        for function, at in (
            (special.spence, (0.0,)),
            (special.iv, (10.0, 30.0)),
            (special.hyp2f1, (70.0, 90.0, 91.0, 0.35)),
        ):
            got = function(*(jnp.array(a, jnp.float64) for a in at))
            with fxad.enable_x64():
                wanted = function(*at)
            assert got.dtype == np.float64
            assert float(got) == float(wanted)


def test_higher_derivatives_of_bessel_functions_near_zero() -> None:
    x = np.array([0.0, 1e-9, -1e-5, 0.01, -0.5, 0.99, 1.01, 3.0])
    for name, exact in (
        ("j0", lambda t: mp.besselj(0, t)),
        ("j1", lambda t: mp.besselj(1, t)),
        ("i0", lambda t: mp.besseli(0, t)),
        ("i1", lambda t: mp.besseli(1, t)),
    ):
        for order, function in enumerate(derivatives(getattr(special, name), 4)):
            with mp.workdps(50):
                wanted = [float(mp.diff(exact, float(v), order)) for v in x]
            got = fxad.vmap(function)(x)
            np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=3e-14)
    positive = x[x > 0]  # beside the kink of exp(-|x|)
    for order, function in enumerate(derivatives(special.i1e, 3)):
        with mp.workdps(50):
            scaled = lambda t: mp.exp(-t) * mp.besseli(1, t)  # noqa: E731
            wanted = [float(mp.diff(scaled, float(v), order)) for v in positive]
        got = fxad.vmap(function)(positive)
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=3e-14)


def test_gammaln_beside_its_zeros() -> None:
    steps = 10.0 ** -np.arange(0.5, 16, 0.5)
    x = np.concatenate([[1 - 3.7e-10, 0.74, 0.76, 1.24, 1.26, 1.74, 1.76, 2.24, 2.26]])
    x = np.concatenate([x, *(at + side * steps for at in (1, 2) for side in (1, -1))])
    with mp.workdps(40):
        wanted = floats([mp.loggamma(v) for v in x])
    for wrapped in (lambda f: f, fxad.jit):
        np.testing.assert_allclose(wrapped(special.gammaln)(x), wanted, rtol=2e-15)
    assert (special.gammaln(1.0), special.gammaln(2.0)) == (0, 0)


def test_quotients_of_large_gamma_functions() -> None:
    z = np.array([1e10, 1e5, 1e100, 8.0, 30.5, 100.0, 4e5, 9.0])
    m = np.array([2.0, 2.0, -2.0, 160.0, 0.25, -60.0, 1.5, 0.0])
    with mp.workdps(140):
        wanted = floats([mp.gammaprod([mp.mpf(a) + b], [a]) for a, b in zip(z, m, strict=True)])
    for wrapped in (lambda f: f, fxad.jit):
        np.testing.assert_allclose(wrapped(special.poch)(z, m), wanted, rtol=1e-13)
        inside = (z < 1e38) & (wanted < 1e38)
        got = wrapped(special.poch)(z[inside].astype(np.float32), m[inside].astype(np.float32))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted[inside], rtol=2e-5, atol=1e-38)
    assert float(fxad.grad(special.poch)(1e10, 2.0)) == pytest.approx(2e10 + 1)
    assert float(fxad.grad(special.poch, 1)(1e10, 2.0)) == pytest.approx(1e20 * math.log(1e10))
    single = special.comb(np.float32(1e10), np.float32(3))
    assert float(single) == pytest.approx(1e30 / 6, rel=2e-5)
    slope = fxad.grad(special.comb)(np.float32(1e9), np.float32(3))
    assert float(slope) == pytest.approx(5e17, rel=1e-3)


def test_inverses_of_tails_below_the_normal_numbers() -> None:
    for dtype, tails in (
        (np.float64, [5e-324, 1e-310, 3e-308]),
        (np.float32, [1e-42, 9e-39, 3e-38]),
    ):
        y = np.array(tails, dtype)
        with mp.workdps(30):
            exact = [tail_end(float(v)) for v in y]
            normal = [-mp.sqrt(2) * tail_end(2 * float(v)) for v in y]
        for wrapped in (lambda f: f, fxad.jit):
            for name, wanted in (("erfcinv", exact), ("ndtri", normal)):
                got = wrapped(getattr(special, name))(y)
                np.testing.assert_allclose(got, floats(wanted), rtol=4 * np.finfo(dtype).eps)


def tail_end(y: float) -> Any:
    """The x whose erfc is y."""
    start = mp.sqrt(-mp.log(y))
    return mp.findroot(lambda x: mp.log(mp.erfc(x)) - mp.log(mp.mpf(y)), start - 0.1)


def test_what_functions_refuse() -> None:
    with pytest.raises(TypeMismatch, match="gammaln: takes real numbers"):
        special.gammaln(1j)
    with pytest.raises(BadArgument, match="order must be a Python int"):
        special.jn(1.5, 2.0)
    with pytest.raises(BadArgument, match="0 or more"):
        special.expn(-1, 2.0)
    with pytest.raises(BadArgument, match="positive int"):
        special.multigammaln(3.0, 0)


def test_16_bits_are_computed_in_32() -> None:
    x = np.linspace(0.5, 4, 8).astype(np.float16)
    got = special.gammaln(x)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, special.gammaln(x.astype(np.float32)).astype(np.float16))


@pytest.mark.peers
def test_like_scipy() -> None:
    peer = pytest.importorskip("scipy.special")
    x, y = np.exp(R.uniform(-3, 6, (2, 300)))
    unit = R.uniform(0, 1, 300)
    cases = {
        "gamma": [R.uniform(-20, 170, 300)],
        "rgamma": [R.uniform(-20, 170, 300)],
        "gammaln": [R.uniform(-20, 500, 300)],
        "beta": [x, y],
        "zeta": [1 + np.minimum(x, 60), y],
        "polygamma": [R.integers(0, 20, 300), y],
        "gammainc": [x, x * R.uniform(0.3, 2, 300)],
        "gammaincc": [x, x * R.uniform(0.3, 2, 300)],
        "betainc": [np.minimum(x, 90), np.minimum(y, 90), unit],  # SciPy loses digits below 1e-270
        "ndtri": [unit],
        "erfcinv": [10.0 ** R.uniform(-300, 0, 300)],
        "log_ndtr": [R.uniform(-60, 10, 300)],
        "i0e": [R.uniform(-90, 90, 300)],
        "ive": [R.uniform(0, 60, 300), 10 ** R.uniform(-2, 3, 300)],
        "comb": [np.floor(x + y), np.floor(y)],
    }
    for name, args in cases.items():
        wanted = getattr(peer, name)(*args)
        np.testing.assert_allclose(getattr(special, name)(*args), wanted, 1e-11, err_msg=name)
    z = R.uniform(-6, 6, 300) + 1j * R.uniform(-6, 6, 300)
    for name in ("erf", "erfc", "wofz"):
        np.testing.assert_allclose(getattr(special, name)(z), getattr(peer, name)(z), 1e-12)
    for name in ("j0", "j1", "y0", "y1"):
        at = R.uniform(0.01, 200, 300)
        np.testing.assert_allclose(
            getattr(special, name)(at), getattr(peer, name)(at), 1e-12, 1e-14, err_msg=name
        )


def test_softmax_goes_over_all_axes_by_default() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for axis, options in [(None, {}), (1, {"axis": 1}), ((0, 1), {"axis": (0, 1)})]:
        terms = np.exp(x)
        wanted = terms / terms.sum(axis, keepdims=True)
        for found in (special.softmax(x, **options), np.exp(special.log_softmax(x, **options))):
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)


def test_logarithms_have_their_derivatives_where_the_factor_is_zero() -> None:
    y = np.array([0.3, 1.0, 4.0])
    for function, logarithm, slope in (
        (special.xlogy, np.log(y), 1 / y),
        (special.xlog1py, np.log1p(y), 1 / (1 + y)),
    ):
        np.testing.assert_allclose(fxad.vmap(fxad.grad(function), (None, 0))(0.0, y), logarithm)
        mixed = fxad.jit(fxad.vmap(fxad.grad(fxad.grad(function), 1), (None, 0)))
        np.testing.assert_allclose(mixed(0.0, y), slope)
    for edge in (0.0, math.inf):
        assert special.xlogy(0.0, edge) == fxad.grad(special.xlogy, 1)(0.0, edge) == 0
    for edge in (-1.0, math.inf):
        assert special.xlog1py(0.0, edge) == fxad.grad(special.xlog1py, 1)(0.0, edge) == 0
    assert math.isnan(special.xlogy(0.0, math.nan))
    scale = fxad.grad(lambda a: stats.gamma.logpdf(2.0, a))(1.0)  # an exponential distribution
    assert float(scale) == pytest.approx(math.log(2.0) + np.euler_gamma)


def test_log_expit_has_no_kink() -> None:
    slope = fxad.grad(special.log_expit)
    assert (slope(0.0), fxad.grad(slope)(0.0)) == (0.5, -0.25)
    x = np.linspace(-30, 30, 61)
    np.testing.assert_allclose(fxad.vmap(slope)(x), 1 / (1 + np.exp(x)), rtol=1e-13)


@pytest.mark.parametrize("name", ["J0", "Y1", "Q1", "I1_HIGH", "GAMMA"])
def test_tables_are_what_their_script_fits(name: str) -> None:
    assert tuple(fit_tables.fit(fit_tables.TABLES[name])) == getattr(tables, name)
