"""exp of floats and doubles; log, sin, cos and atan of doubles: what all functions build on.

    exp(Vec(code, "float", 16, "%x"))

By range reduction and polynomials, within an ulp or a few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec, bits_of, fma, polynomial
from fxad.backend.llvm.math import coefficients as table

INF = float("inf")
NAN = float("nan")
_QUIET = "internal preserve_allcc"
WHOLE = 12582912.0  # 1.5 * 2**23: adding it to a float leaves an integer in the low bits
BELOW_EIGHTH = 495  # exponent and two bits of mantissa of the floats just below 1/8
LOG2_E = 1.4426950408889634
# ln 2 and pi / 2 as sums whose products with small integers are exact, or nearly so, in FMA.
LN2_F32 = (0.693145751953125, 1.42860682030941723212e-6)
LN2_F64 = (0.6931471805599453, 2.3190468138462996e-17)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)


def power_of_two(n: Vec, kind: str) -> Vec:
    """2.0**n for an integer vector n in the range of normal exponents."""
    bias, mantissa = (127, 23) if kind == "float" else (1023, 52)
    integer = f"i{bits_of(kind)}"
    n = n.convert("sext" if bits_of(integer) > bits_of(n.kind) else "trunc", integer)
    return ((n + bias) << mantissa).floats()


def scales(p: Vec) -> bool:
    """Whether the processor has an instruction for `scale`."""
    return p.code.target.isa == "avx512" and bits_of(p.kind) * p.width == 512


def scale(p: Vec, n: Vec, kept: Vec | None = None) -> Vec:
    """p * 2**n with one rounding, n an integral float, also where the result is not normal.

    kept: lanes where it is false give 0, whatever p and n are there (only where `scales`).
    """
    code = p.code
    if scales(p):
        suffix, mask = ("ps", "i16") if p.kind == "float" else ("pd", "i8")
        name = f"llvm.x86.avx512.mask.scalef.{suffix}.512"
        zero = p.like(0.0)
        lanes = code.const(mask, -1)
        if kept is not None:
            lanes = code.op(mask, 1, f"bitcast {kept.type} {kept.text} to {mask}")
        current = code.const("i32", 4)  # round in the current mode
        return code.call(name, p.kind, p.width, (p, n, zero, lanes, current))
    integer = n.convert("fptosi", "i32")
    half = integer.binary("ashr", 1)
    return p * power_of_two(half, p.kind) * power_of_two(integer - half, p.kind)


def exp_parts(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(n, r, q) with x = n ln 2 + r and exp(r) = 1 + r + r*r*q; x must be clamped."""
    high, low = LN2_F32 if x.kind == "float" else LN2_F64
    turn = 1.5 * 2.0 ** (23 if x.kind == "float" else 52)  # leaves no digits behind the point
    n = fma(x, LOG2_E, turn) - turn
    r = fma(n, -low, fma(n, -high, x))
    wanted = table.EXP_F32 if x.kind == "float" else table.EXP_F64
    return n, r, polynomial(r, wanted)


def clamp_exponent(x: Vec) -> Vec:
    """Bound x where exp is 0 or inf anyway, so that inf - inf never comes up; NaN stays."""
    low, high = (-104.0, 89.0) if x.kind == "float" else (-746.0, 710.0)
    return x.at_least(low).at_most(high)


def exp(x: Vec) -> Vec:
    """exp(x). What underflows to 0 takes another way: computed, it would cost ten times as much
    (a microcode assist), and masked logits are full of it."""
    lowest, highest = (-104.0, 89.0) if x.kind == "float" else (-746.0, 710.0)
    if scales(x):
        n, r, q = exp_parts(x.at_most(highest))
        return scale(fma(fma(q, r, 1.0), r, 1.0), n, x.compare("uge", lowest))
    vanishes = x < lowest
    n, r, q = exp_parts(clamp_exponent(vanishes.where(x.like(0), x)))
    return vanishes.where(x.like(0), scale(fma(fma(q, r, 1.0), r, 1.0), n))


def log_parts(x: Vec) -> tuple[Vec, Vec]:
    """(e, f) with |x| = 2**e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); x double, not 0, inf or NaN."""
    small = x < 2.2250738585072014e-308
    x = small.where(x * 2.0**54, x)
    exponent = (x.bits() - 0x3FE6A09E667F3BCD).binary("ashr", 52)  # less the bits of sqrt(1/2)
    fraction = (x.bits() - (exponent << 52)).floats()
    e = exponent.convert("sitofp", "double") - small.where(x.like(54.0), 0.0)
    return e, fraction - 1.0


def log_special(x: Vec, y: Vec) -> Vec:
    """y, but the exact answers where x is 0, inf, negative or NaN."""
    y = (x < INF).where(y, x)
    y = x.compare("oge", 0.0).where(y, NAN)
    return x.equals(0.0).where(y.like(-INF), y)


def log_fraction(f: Vec) -> Vec:
    """c with log(1 + f) = f - c, |f| below 0.42, double."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return half - s * (half + z * polynomial(z, table.LOG_F64))


def log(x: Vec) -> Vec:
    e, f = log_parts(x)
    c = log_fraction(f)
    return log_special(x, fma(e, LN2_F64[0], f - fma(e, -LN2_F64[1], c)))


def sin_cos_parts(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(sin r, cos r, i64 whose low bits are n) with x = n pi/2 + r, double, for moderate x."""
    n = (x * (2.0 / 3.141592653589793)).rint()
    r = fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x))
    r = fma(n, -HALF_PI[2], r)
    # Adding 1.5 * 2**52 leaves n in the low bits of the mantissa.
    whole = (n + 6755399441055744.0).bits()
    return sin_reduced(r), cos_reduced(r), whole


def sin_reduced(r: Vec) -> Vec:
    """sin of |r| <= pi/4, double."""
    z = r * r
    odd = polynomial(z, table.SIN_F64)
    return fma(r * z, odd, r)


def cos_reduced(r: Vec) -> Vec:
    """cos of |r| <= pi/4, double."""
    z = r * r
    even = polynomial(z, table.COS_F64)
    half = z * 0.5
    near = 1.0 - half
    return near + fma(z * z, even, (1.0 - near) - half)


def atan_positive(x: Vec) -> Vec:
    """atan of x >= 0 (inf included), double."""
    big = x > 2.414213562373095
    middle = x > 0.41421356237309503
    top = big.where(x.like(-1.0), middle.where(x - 1.0, x))
    bottom = big.where(x, middle.where(x + 1.0, 1.0))
    t = top / bottom
    base = big.where(x.like(HALF_PI[0]), middle.where(x.like(HALF_PI[0] / 2), 0.0))
    z = t * t
    p = polynomial(z, table.ATAN_F64)
    return base + fma(t * z, p, t)


def keep_zero(x: Vec, y: Vec, shift: int) -> Vec:
    """y, but -0 for the sine of -0."""
    return y if shift else x.equals(0.0).where(x, y)


def unless_rare(rare: Vec, usual: Vec, slow: Callable[..., Vec], *args: Vec) -> Vec:
    """usual, but slow(*args) in the lanes where `rare`; it is not run where no lane needs it."""
    code = usual.code
    f = code.function
    some = rare if rare.width == 1 else code.call(
        f"llvm.vector.reduce.or.{rare.suffix}", "i1", 1, (rare,)
    )  # fmt: skip
    before, inside, after = f.block, f.new_label("rare"), f.new_label("usual")
    f.branch(some.text, inside, after)
    f.label(inside)
    repaired = rare.where(_out_of_line(slow, args), usual)
    last = f.block
    f.jump(after)
    f.label(after)
    choices = f"[ {usual.text}, %{before} ], [ {repaired.text}, %{last} ]"
    return code.op(usual.kind, usual.width, f"phi {usual.type} {choices}")


def _out_of_line(slow: Callable[..., Vec], args: Sequence[Vec]) -> Vec:
    """slow(*args) as a call of a function of its own, which leaves all registers as they are.

    Code round the call keeps its constants in registers, which any other call would empty.
    """
    code = args[0].code
    params = [(a.type, f"x{n}") for n, a in enumerate(args)]
    function = Function("NAME", "RESULT", params, _QUIET, "noinline cold #0")
    inner = Code(function, code.target)
    result = slow(*[Vec(inner, a.kind, a.width, f"%x{n}") for n, a in enumerate(args)])
    function.ret(result.type, result.text)
    text = str(function).replace(f"{_QUIET} RESULT", f"{_QUIET} {result.type}", 1)
    name = f"rare.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    code.declarations |= inner.declarations
    code.declarations.add(text.replace("@NAME", f"@{name}", 1))
    listed = ", ".join(f"{a.type} {a.text}" for a in args)
    call = f"call preserve_allcc {result.type} @{name}({listed})"
    return code.op(result.kind, result.width, call)


def either(test: Vec, yes: Callable[[], Vec], no: Callable[[], Vec]) -> Vec:
    """yes() or no(), of which only the one that is taken runs. For scalars."""
    f = test.code.function
    inside, outside, after = f.new_label("yes"), f.new_label("no"), f.new_label("either")
    f.branch(test.text, inside, outside)
    found = []
    for label, make in ((inside, yes), (outside, no)):
        f.label(label)
        value = make()
        found.append((value, f.block))
        f.jump(after)
    f.label(after)
    first = found[0][0]
    choices = ", ".join(f"[ {value.text}, %{block} ]" for value, block in found)
    return test.code.op(first.kind, 1, f"phi {first.type} {choices}")
