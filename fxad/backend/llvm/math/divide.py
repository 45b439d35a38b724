"""Reciprocals and inverse roots by Newton's iteration, where the processor divides slowly.

    reciprocal(Vec(code, "float", 16, "%b"))

AVX-512 gives 14 bits of a reciprocal or an inverse root in an instruction of its own. Elsewhere
these are the division itself.
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import power_of_two_at_least
from fxad.backend.llvm.base.vector import Vec, bits_of, fma
from fxad.backend.llvm.math.core import unless_rare


def reciprocal(b: Vec) -> Vec:
    """1 / b rounded as a division rounds it (Markstein, 1990), b neither denormal nor above
    2**126."""
    y = _estimate("rcp14", b)
    return 1.0 / b if y is None else _newton(b, _newton(b, y))


def _newton(b: Vec, y: Vec) -> Vec:
    """An estimate of 1 / b with twice the digits."""
    return fma(fma(-b, y, 1.0), y, y)


def rsqrt_estimate(x: Vec) -> Vec:
    """1 / sqrt(x), to 14 bits or better; 0, inf and NaN as they should be."""
    found = _estimate("rsqrt14", x)
    return 1.0 / x.sqrt() if found is None else found


def inverse_of_root(root: Vec) -> Vec:
    """1 / (2 root) from the bits, good to an eighth and exact for powers of two; of its sign.

    Enough for what a rounded root lacks.
    """
    one = 0x3F800000 if root.kind == "float" else 0x3FF << 52
    half = 1 << (23 if root.kind == "float" else 52)
    return (2 * one - half - root.bits()).floats()


def root(x: Vec) -> Vec:
    """The square root by Goldschmidt's iteration where the processor is slow at it.

    From 14 bits it ends rounded as the instruction rounds (tests/backend/llvm/test_math.py goes
    through all mantissas of floats, and through the doubles whose roots are next to the middle of
    two). The instruction does the lanes where a remainder might be denormal, and every fourth
    vector of floats and every second of doubles, as its unit has nothing else to do meanwhile.
    """
    direct = x.width == 1 or x.code.occurrence("root") % (4 if x.kind == "float" else 2) == 1
    y = None if direct else _estimate("rsqrt14", x)
    if y is None:
        return x.sqrt()
    g, h = x * y, y * 0.5
    for _ in range(1 if x.kind == "float" else 2):
        r = fma(-g, h, 0.5)
        g, h = fma(g, r, g), fma(h, r, h)
    found = fma(fma(-g, g, x), h, g)
    least = 2.0 ** (-50 if x.kind == "float" else -450)
    return unless_rare(~found.compare("oge", least), found, Vec.sqrt, x)


def _estimate(name: str, x: Vec) -> Vec | None:
    """The processor's 14 bits of a reciprocal (rcp14) or of an inverse root (rsqrt14).

    Its instructions take 128, 256 or 512 bits: other vectors, such as the rows of small products
    (`contract.small`), are filled up with their first lane."""
    code, lanes, bits = x.code, x.width, bits_of(x.kind)
    if code.target.isa != "avx512":
        return None
    width = power_of_two_at_least(max(lanes, 128 // bits))
    if width * bits > 512 or (1 < lanes < 128 // bits):
        return None
    if lanes == 1 or lanes == width:
        wide = x.splat(width)
    else:
        wide = x.shuffle([*range(lanes), *[0] * (width - lanes)])
    suffix = "ps" if x.kind == "float" else "pd"
    mask = code.const("i16" if width == 16 else "i8", -1)
    intrinsic = f"llvm.x86.avx512.{name}.{suffix}.{width * bits}"
    found = code.call(intrinsic, x.kind, width, (wide, wide, mask))
    if lanes == 1:
        return found.lane(0)
    return found if lanes == width else found.shuffle(range(lanes))
