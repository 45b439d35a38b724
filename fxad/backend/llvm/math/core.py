"""exp of floats and doubles, and what all functions build on.

    exp(Vec(code, "float", 16, "%x"))

By range reduction and polynomials, within an ulp or a few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec, bits_of, fma, polynomial
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import doubles
from fxad.backend.llvm.math.tables import polynomials as table

INF = float("inf")
NAN = float("nan")
# By instruction set, the calling convention whose functions leave vector registers as they are.
# Any processor has C's; that of `preserve_allcc` ends LLVM's code generator for AArch64.
_QUIET = {
    "avx512": "preserve_allcc",
    "avx2": "preserve_allcc",
    "neon": "aarch64_vector_pcs",
    "generic": "ccc",
}
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


def above_whole(x: Vec) -> Vec:
    """x - floor(x), one instruction (only where `scales`, which rounds down what it multiplies
    by)."""
    code, down = x.code, x.code.const("i32", 1)
    suffix, mask = ("ps", "i16") if x.kind == "float" else ("pd", "i8")
    lanes, current = code.const(mask, -1), code.const("i32", 4)
    name = f"llvm.x86.avx512.mask.reduce.{suffix}.512"
    return code.call(name, x.kind, x.width, (x, down, x.like(0.0), lanes, current))


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


def sixteenths(x: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """(n, s, tail, r) with x = n ln 2 + r but for the low part of ln 2, double, x clamped.

    n is a multiple of 1/16, and 2**n is 2**floor(n) s exp(tail), from a table. r is exact.
    """
    whole = 1.5 * 2.0**48
    shifted = fma(x, LOG2_E, whole)
    n = shifted - whole
    s, tail = lookup(shifted.bits(), doubles.POWERS)
    return n, s, tail, fma(n, -LN2_F64[0], x)


def exp_terms(x: Vec, below: Vec | None = None) -> tuple[Vec, Vec, Vec]:
    """(s, p, n): exp(x + below) is (s + s p) 2**floor(n), |p| below 0.022.

    x double and clamped, below small and left out if None; n is a multiple of 1/16.
    """
    n, s, tail, r = sixteenths(x)
    r = fma(n, -LN2_F64[1], r if below is None else r + below)
    p = fma(r * r, polynomial(r, doubles.EXP), tail) + r
    return s, p, n if scales(x) else n.intrinsic("floor")


def exp_sixteenths(x: Vec, below: Vec | None = None) -> tuple[Vec, Vec]:
    """(v, n): exp(x + below) is v 2**floor(n), as in `exp_terms`."""
    s, p, n = exp_terms(x, below)
    return fma(s, p, s), n


def exp(x: Vec) -> Vec:
    """exp(x). What underflows to 0 takes another way: computed, it would cost ten times as much
    (a microcode assist), and masked logits are full of it."""
    lowest, highest = (-104.0, 89.0) if x.kind == "float" else (-746.0, 710.0)

    def bounded(x: Vec) -> tuple[Vec, Vec]:
        if x.kind == "double":
            return exp_sixteenths(x)
        n, r, q = exp_parts(x)
        return fma(fma(q, r, 1.0), r, 1.0), n

    if scales(x):
        return scale(*bounded(x.at_most(highest)), x.compare("uge", lowest))
    vanishes = x < lowest
    return vanishes.where(x.like(0), scale(*bounded(clamp_exponent(vanishes.where(x.like(0), x)))))


def exponent_and_mantissa(x: Vec) -> tuple[Vec, Vec]:
    """The processor's own (where `scales`), with denormals: (e, m), x = 2**e m, 1 <= m < 2.

    Of 0 and inf e is -inf and inf, of negative numbers m is NaN.
    """
    code = x.code
    suffix, mask = ("ps", "i16") if x.kind == "float" else ("pd", "i8")
    lanes, current = code.const(mask, -1), code.const("i32", 4)
    name = f"llvm.x86.avx512.mask.get{{}}.{suffix}.512"
    e = code.call(name.format("exp"), x.kind, x.width, (x, x, lanes, current))
    kind = code.const("i32", 8)  # from 1 to 2, NaN for negative numbers
    return e, code.call(name.format("mant"), x.kind, x.width, (x, kind, x, lanes, current))


def log_special(x: Vec, y: Vec) -> Vec:
    """y, but the exact answers where x is 0, inf, negative or NaN."""
    y = (x < INF).where(y, x)
    y = x.compare("oge", 0.0).where(y, NAN)
    return x.equals(0.0).where(y.like(-INF), y)


def per_lane(name: str, *args: Vec) -> Vec:
    """A C library function of double(s) applied to each lane."""
    code = args[0].code
    width = max(a.width for a in args)
    args = tuple(a.splat(width) for a in args)
    result = args[0].like(0.0)
    for i in range(width):
        result = result.with_lane(i, code.call(name, "double", 1, [a.lane(i) for a in args]))
    return result


def unless_rare(rare: Vec, usual: Vec, slow: Callable[..., Vec], *args: Vec) -> Vec:
    """usual, but slow(*args) in the lanes where `rare`; it is not run where no lane needs it."""
    code = usual.code
    if rare.width > 1:
        any_lane = f"llvm.vector.reduce.or.{rare.suffix}"
        code.declarations.add(f"declare i1 @{any_lane}({rare.type})")
    found = code.function.cold_path(
        (rare.type, rare.text),
        (usual.type, usual.text),
        lambda: rare.where(_out_of_line(slow, args), usual).text,
    )
    return Vec(code, usual.kind, usual.width, found)


def _out_of_line(slow: Callable[..., Vec], args: Sequence[Vec]) -> Vec:
    """slow(*args) as a call of a function of its own, which leaves vector registers as they are.

    Code round the call keeps its constants in registers, which any other call would empty.
    """
    code = args[0].code
    convention = _QUIET[code.target.isa]
    internal = f"internal {convention}"
    params = [(a.type, f"x{n}") for n, a in enumerate(args)]
    function = Function("NAME", "RESULT", params, internal, "noinline cold #0")
    inner = Code(function, code.target)
    result = slow(*[Vec(inner, a.kind, a.width, f"%x{n}") for n, a in enumerate(args)])
    function.ret(result.type, result.text)
    text = str(function).replace(f"{internal} RESULT", f"{internal} {result.type}", 1)
    name = f"rare.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    code.declarations |= inner.declarations
    code.declarations.add(text.replace("@NAME", f"@{name}", 1))
    listed = ", ".join(f"{a.type} {a.text}" for a in args)
    call = f"call {convention} {result.type} @{name}({listed})"
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
