"""Scalar functions of native code: errors in ulp over the whole range, and special values."""

import functools
import importlib
import itertools

import ml_dtypes
import mpmath
import numpy as np
import pytest
from native_kernels import Case, call, compile_cases

from fxad.backend.llvm.math.functions import FUNCTIONS
from fxad.backend.llvm.math.tables import polynomials
from fxad.backend.llvm.native.engine import host_target
from fxad.core.errors import CheckError
from fxad.ir.kernel import Axis, Buffer, Cast, Kernel, Load, Map, Prim, Store, at
from fxad.ir.prims import BELOW_NORMAL, PRIMS

F32, F64 = np.dtype("float32"), np.dtype("float64")
BF16 = np.dtype(ml_dtypes.bfloat16)
NAMES = sorted(name for name, f in PRIMS.items() if name in FUNCTIONS or not f.correctly_rounded)
BINARY = [name for name in NAMES if PRIMS[name].arity == 2]
# Beyond NumPy's own extended functions: mpmath, on few points.
EXACT = {
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erfinv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
}


def bound(name, dtype):
    return dict(zip((F32, F64), PRIMS[name].ulp, strict=True))[dtype]


def evaluate(dtype, arguments, target=None):
    """name -> results, the functions that there are arguments for in one module."""
    target = target or host_target()
    cases = []
    for name, inputs in arguments.items():
        n = len(inputs[0])
        i = Axis("i", n)
        buffers = [Buffer(f"x{k}", dtype, n, "in") for k in range(len(inputs))]
        out = Buffer("out", dtype, n, "out")
        value = Prim(name, tuple(Load(b, at(i)) for b in buffers), dtype)
        stage = Map((), (Store(out, at(i), value),))
        kernel = Kernel(name, (*buffers, out), (), (i,), (stage,))
        cases.append(Case(kernel, [*inputs, np.zeros(n, dtype)]))
    emitted, module = compile_cases(cases, target)
    for case, e in zip(cases, emitted, strict=True):
        call(module, e, case.kernel, case.arrays, [])
    return {c.kernel.name: c.arrays[-1] for c in cases}


def spread(dtype, count, seed):
    """Numbers of all magnitudes, and many ordinary ones."""
    rng = np.random.default_rng(seed)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned).view(dtype)
    parts = [bits, rng.standard_normal(count) * 3, rng.uniform(-1, 1, count)]
    parts += [rng.uniform(-110, 110, count), 1 + rng.standard_normal(count) * 1e-3]
    with np.errstate(all="ignore"):
        x = np.concatenate([p.astype(dtype) for p in parts])
    return x[~np.isnan(x)]


def small(dtype, count, seed):
    """Numbers below the normal ones."""
    return (np.random.default_rng(seed).uniform(-1, 1, count) * np.finfo(dtype).tiny).astype(dtype)


def pairs(dtype, count, seed):
    x, y = spread(dtype, count, seed), spread(dtype, count, seed + 1)
    n = min(len(x), len(y))
    return [np.abs(x[:n]), np.random.default_rng(seed).permutation(y[:n])]


def error(got, exact, dtype):
    """Errors in ulp of the exact result, where that is a finite number."""
    want = exact.astype(dtype)
    gap = np.spacing(np.maximum(np.abs(want), np.finfo(dtype).smallest_subnormal))
    usable = np.isfinite(want) & np.isfinite(gap)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return np.inf
    infinite = np.isinf(want)
    # Close to overflow either answer is within an ulp.
    near = np.abs(got[infinite]) >= np.finfo(dtype).max * (1 - 4 * np.finfo(dtype).eps)
    if not near.all():
        return np.inf
    wrong = np.abs(got.astype(exact.dtype) - exact)[usable] / gap[usable].astype(exact.dtype)
    return float(wrong.max()) if len(wrong) else 0.0


def reference(name, inputs, wide):
    with np.errstate(all="ignore"):
        return PRIMS[name].numpy(*(x.astype(wide) for x in inputs))


def test_float32_errors():
    arguments = {
        n: pairs(F32, 20_000, 5) if n in BINARY else [spread(F32, 20_000, 3)] for n in NAMES
    }
    for name in ("erf", "erfc", "erfinv", "lgamma"):  # Python loops
        arguments[name] = [spread(F32, 400, 3)]
    results = evaluate(F32, arguments)
    worst = {}
    for name in NAMES:
        with np.errstate(all="ignore"):
            exact = reference(name, arguments[name], np.longdouble)
            worst[name] = error(results[name], np.asarray(exact, np.longdouble), F32)
    over = {n: w for n, w in worst.items() if w > bound(n, F32)}
    assert not over, f"beyond the documented bounds: {over}"


@pytest.mark.slow
def test_float64_errors():
    one, two = [spread(F64, 5_000, 3)], pairs(F64, 5_000, 5)
    arguments = {n: two if n in BINARY else one for n in NAMES}
    for name in EXACT:
        x = np.random.default_rng(1).uniform(-6, 6, 150)
        arguments[name] = [
            np.concatenate([x, x * 1e-3, x * 1e-12]) / (6.1 if name == "erfinv" else 1)
        ]
    results = evaluate(F64, arguments)
    worst = {}
    with mpmath.workdps(40), np.errstate(all="ignore"):
        for name in NAMES:
            if name in EXACT:
                worst[name] = exact_error(EXACT[name], arguments[name][0], results[name])
            else:
                exact = reference(name, arguments[name], np.longdouble)
                worst[name] = error(results[name], exact, F64)
    over = {n: w for n, w in worst.items() if w > bound(n, F64)}
    assert not over, f"beyond the documented bounds: {over}"


def test_erfinv_up_to_the_last_float64_below_one():
    """Where 1 - x*x is less than any that float32 has."""
    octaves = np.exp2(-np.arange(2.0, 54))
    x = 1 - np.concatenate([octaves, 3 * octaves[3:], 1.37 * octaves[:-1]])
    x = np.concatenate([x, -x])
    results = evaluate(F64, {"erfinv": [x]})["erfinv"]
    with mpmath.workdps(40):
        assert exact_error(mpmath.erfinv, x, results) <= bound("erfinv", F64)


def to_below_normal(name, dtype, count):
    """Arguments whose results are the least normal numbers and those below them."""
    rng, tiny = np.random.default_rng(6), np.finfo(dtype).tiny
    octaves = np.log2(tiny) + rng.uniform(-np.finfo(dtype).nmant - 1, 1, count)
    arguments = {
        "exp": [octaves * np.log(2)],
        "exp2": [octaves],
        "pow": [np.exp2(octaves / 16), np.full(count, 16)],
        "atan2": [np.exp2(octaves), rng.uniform(0.25, 1, count)],
    }
    others = [rng.uniform(-4, 4, count) * tiny for _ in range(PRIMS[name].arity)]
    return [x.astype(dtype) for x in arguments.get(name, others)]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_errors_of_results_below_the_normal_numbers(dtype):
    names = [n for n in NAMES if n not in EXACT]
    arguments = {n: to_below_normal(n, dtype, 20_000) for n in names}
    results, over = evaluate(dtype, arguments), {}
    for name in names:
        exact = np.asarray(reference(name, arguments[name], np.longdouble), np.longdouble)
        worst = error(results[name], exact, dtype)
        if worst > max(bound(name, dtype), BELOW_NORMAL):
            over[name] = worst
    assert not over, f"beyond the documented bounds: {over}"


def exact_error(function, arguments, results):
    worst = 0.0
    for x, y in zip(arguments, results, strict=True):
        want = function(mpmath.mpf(float(x)))
        worst = max(worst, float(abs(mpmath.mpf(float(y)) - want) / np.spacing(abs(float(want)))))
    return worst


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_special_values(dtype):
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -3.0, 0.5, 1e30, -1e30]
    values += [np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max, np.finfo(dtype).tiny]
    x = np.array(values, dtype)
    both = [np.array(v, dtype) for v in zip(*itertools.product(values, values), strict=True)]
    results = evaluate(dtype, {n: both if n in BINARY else [x] for n in NAMES})
    failures = []
    for name in NAMES:
        inputs = both if name in BINARY else [x]
        want = np.asarray(reference(name, inputs, np.float64)).astype(np.float64)
        with np.errstate(all="ignore"):
            want = want.astype(dtype)
        got = results[name]
        bad = np.isnan(got) != np.isnan(want)
        bad |= np.isinf(want) & (got != want)
        # Signs of zero count, except where the function's own zero has none to keep.
        bad |= (want == 0) & ((got != 0) | (np.signbit(got) != np.signbit(want)))
        for k in np.flatnonzero(bad):
            at_point = ", ".join(str(v[k]) for v in inputs)
            failures.append(f"{name}({at_point}) = {got[k]}, should be {want[k]}")
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_lane_counts_give_the_same_bits(dtype):
    """A function of one element equals that element of a long vector."""
    near = np.array([0.7, 0.785, np.pi / 4, 0.8, 1e-3, -0.78, -0.79, -0.0], dtype)
    x = np.concatenate([spread(dtype, 20, 7)[:100], near, small(dtype, 40, 8)])
    y = np.random.default_rng(9).permutation(x)
    cases = []
    for name in NAMES:
        inputs = [x, y] if name in BINARY else [x]
        for n in (len(x), 1):
            i = Axis("i", n)
            buffers = [Buffer(f"x{k}", dtype, n, "in") for k in range(len(inputs))]
            out = Buffer("out", dtype, n, "out")
            value = Prim(name, tuple(Load(b, at(i)) for b in buffers), dtype)
            kernel = Kernel(
                name, (*buffers, out), (), (i,), (Map((), (Store(out, at(i), value),)),)
            )
            cases.append(Case(kernel, [*(v[:n].copy() for v in inputs), np.zeros(n, dtype)]))
    emitted, module = compile_cases(cases, host_target())
    made = list(zip(cases, emitted, strict=True))
    for (long, e), (one, f) in zip(made[::2], made[1::2], strict=True):
        call(module, e, long.kernel, long.arrays, [])
        for n, wanted in enumerate(long.arrays[-1]):
            for source, value in zip(one.arrays[:-1], long.arrays[:-1], strict=True):
                source[0] = value[n]
            call(module, f, one.kernel, one.arrays, [])
            np.testing.assert_array_equal(one.arrays[-1][0], wanted, one.kernel.name)


def next_to(*points):
    """The five nearest floats to each of some numbers, with both signs."""
    bits = np.concatenate(points).astype(F32).view(np.uint32)
    x = (bits[:, None] + np.arange(-2, 3)).astype(np.uint32).ravel().view(F32)
    return np.concatenate([x, -x])


def test_where_reductions_lose_digits():
    """Floats next to multiples of pi / 32, and to where a function changes its way; those of large
    ones for functions that subtract them."""
    multiples = np.arange(1, 1 << 16) * (np.pi / 32)
    far = np.pi / 2 * np.arange(1, 40_000, 7)
    ends = [0.125, 0.5, 0.75, 1.0, 1.5, 2.0, 87.0, 88.72, 89.4, 1e5, 2.0**-12, 2.0**60, 3.95, 9.02]
    ends += [0.2574, 0.3477, 0.4587, 0.7112, 0.7769, 5.507, 55.76877]  # where errors were largest
    near, all_ = next_to(multiples[: 1 << 12], ends), next_to(multiples, far, ends)
    single = [n for n in NAMES if n not in (*BINARY, "erf", "erfc", "erfinv", "lgamma")]
    inputs = {n: all_ if n in ("cos", "sin", "tan") else near for n in single}
    results = evaluate(F32, {n: [x] for n, x in inputs.items()})
    worst = {}
    with np.errstate(all="ignore"):
        for name in single:
            exact = np.asarray(reference(name, [inputs[name]], np.longdouble), np.longdouble)
            worst[name] = error(results[name], exact, F32)
    over = {n: w for n, w in worst.items() if w > bound(n, F32)}
    assert not over, f"beyond the documented bounds: {over}"


def test_square_roots_are_rounded_correctly():
    """All mantissas with an even and with an odd exponent, and the ends of what is iterated."""
    x = np.arange(1 << 24, dtype=np.uint32) + np.float32(1).view(np.uint32)
    ends = np.array([2.0**-100, 2.0**100, 1e-45, 1e38, 0.0, 3.0], F32).view(np.uint32)
    around = (ends[:, None] + np.arange(-4, 5)).astype(np.uint32).ravel()
    x = np.concatenate([x, around]).view(F32)
    i = Axis("i", len(x))
    source, out = (Buffer(n, F32, len(x), r) for n, r in (("x", "in"), ("out", "out")))
    stage = Map((), (Store(out, at(i), Prim("sqrt", (Load(source, at(i)),), F32)),))
    case = Case(Kernel("sqrt", (source, out), (), (i,), (stage,)), [x, np.zeros(len(x), F32)])
    (emitted,), module = compile_cases([case], host_target())
    call(module, emitted, case.kernel, case.arrays, [])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(case.arrays[1], np.sqrt(x))


def roots_next_to_the_middle():
    """Doubles x whose roots are as near to the middle of two doubles as any: m**2 is x 2**54 or
    x 2**55 but for a small odd d, which m finds bit by bit."""
    found = set()
    for bits in (54, 55):
        for d in range(-511, 512, 8):  # a square of an odd number is 1 modulo 8
            r = 1
            for k in range(3, bits):
                r += (1 << k - 1) if (r * r - d) >> k & 1 else 0
            for s in (r, -r, r + (1 << bits - 1), (1 << bits - 1) - r):
                m = s % (1 << bits)
                x = m * m - d >> bits
                if 1 << 53 <= m < 1 << 54 and float(x) == x:
                    found.add(float(x))
    return np.array(sorted(found))


def test_square_roots_of_doubles_are_rounded_correctly():
    hard = roots_next_to_the_middle()
    assert len(hard) > 250
    ends = np.array([2.0**-900, 2.0**1000, 5e-324, 1e308, 0.0])
    around = (ends.view(np.int64)[:, None] + np.arange(5)).ravel().view(np.float64)
    some = np.random.default_rng(2).uniform(0.25, 1, 100_000)
    squares = some * some
    parts = (hard, hard / 2, hard * 4, around, some, squares, np.nextafter(squares, 0))
    arguments = np.concatenate(parts)
    got = evaluate(F64, {"sqrt": [arguments]})["sqrt"]
    np.testing.assert_array_equal(got, np.sqrt(arguments))


@pytest.mark.parametrize("isa", [None, "avx2", "generic"])
def test_rounding_to_bfloat16(isa):
    """By the processor's instruction where it has one: to even, denormals to zeros, NaNs quiet."""
    try:
        target = host_target(isa)
    except CheckError:
        pytest.skip(f"this machine cannot run {isa}")
    bits = np.random.default_rng(4).integers(0, 1 << 32, 100_000, dtype=np.uint32)
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = np.concatenate([bits, (high[:, None] + low).ravel()]).view(F32)
    i = Axis("i", len(x))
    source, out = Buffer("x", F32, len(x), "in"), Buffer("out", BF16, len(x), "out")
    stage = Map((), (Store(out, at(i), Cast(Load(source, at(i)), BF16)),))
    case = Case(Kernel("to_bf16", (source, out), (), (i,), (stage,)), [x, np.zeros(len(x), BF16)])
    (emitted,), module = compile_cases([case], target)
    call(module, emitted, case.kernel, case.arrays, [])
    normal = np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(np.float32(0), x), x)
    with np.errstate(all="ignore"):
        want = normal.astype(BF16).view(np.uint16)
    nan = np.isnan(x)
    want[nan] = (x.view(np.uint32)[nan] >> 16) | 0x40
    np.testing.assert_array_equal(case.arrays[1].view(np.uint16), want)


def test_powers_of_doubles_near_one():
    """Large exponents, which need the logarithm's digits far beyond a double's."""
    rng = np.random.default_rng(4)
    x = 1 + rng.uniform(-0.06, 0.06, 1500)
    y = rng.uniform(-1, 1, 1500) * 700 / np.maximum(np.abs(np.log(x)), 1e-6)
    got = evaluate(F64, {"pow": [x, y]})["pow"]
    with mpmath.workdps(40):
        exact = [mpmath.mpf(float(a)) ** mpmath.mpf(float(b)) for a, b in zip(x, y, strict=True)]
        worst = max(
            float(abs(mpmath.mpf(float(v)) - e) / np.spacing(float(e)))
            for v, e in zip(got, exact, strict=True)
        )
    assert worst < bound("pow", F64)


@functools.cache
def of_all_magnitudes(dtype):
    """Arguments of every function, and what this machine makes of them."""
    one, (bases, exponents) = spread(dtype, 4_000, 11), pairs(dtype, 4_000, 12)
    one = [np.concatenate([one, small(dtype, 500, 13)])]
    bases = np.concatenate([bases, np.abs(small(dtype, 500, 14))])
    two = [bases, np.concatenate([exponents, exponents[:500]])]
    arguments = {n: two if n in BINARY else one for n in NAMES}
    return arguments, evaluate(dtype, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("isa", ["avx2", "generic"])
def test_instruction_sets_give_the_same_bits(isa, dtype):
    """All but rsqrt, which starts from the processor's own estimate where there is one."""
    try:
        lower = host_target(isa)
    except CheckError:
        pytest.skip(f"this machine cannot run {isa}")
    arguments, here = of_all_magnitudes(dtype)
    there = evaluate(dtype, arguments, lower)
    for name in NAMES:
        if name != "rsqrt" or dtype == F64:
            np.testing.assert_array_equal(here[name], there[name], name)


def test_polynomials_are_what_their_script_fits():
    with mpmath.workdps(60):  # which the script sets
        script = importlib.import_module("fxad.backend.llvm.math.tables.fit_polynomials")
        for name, (function, low, high, degree) in script.ENTRIES.items():
            found = script.fit(function, mpmath.mpf(low), mpmath.mpf(high), degree)
            assert tuple(found) == getattr(polynomials, name), name
