"""Transforms of real numbers by complex ones of half as many elements.

    x_k = untangled(z_k, conj z_(h-k), w^k)     # spectrum of 2h numbers from that of h pairs
    z_k = tangled(y_k, conj y_(h-k), w^k)       # its inverse, times 2

The even numbers are real and the odd ones imaginary parts; w = exp(-2 pi i / 2h) (Press et al.,
Numerical Recipes, 12.3). `write_real` has functions for one transform in memory, in vectors along
its elements: each reads from both ends.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import fma
from fxad.backend.llvm.factors.code import Code, Library, name_of
from fxad.backend.llvm.factors.fourier_memory import apart, together
from fxad.backend.llvm.factors.fourier_passes import Complex, minus, plus

_PARAMS = (("ptr", "from"), ("ptr", "to"), ("ptr", "roots"), ("i64", "h"))


def untangled(here: Complex, there: Complex, factor: Complex) -> Complex:
    """(here + there) / 2 - i factor (here - there) / 2."""
    (a, b), (c, d), (wr, wi) = plus(here, there), minus(here, there), factor
    return fma(wi, c, fma(wr, d, a)) * 0.5, fma(wi, d, fma(-wr, c, b)) * 0.5


def tangled(here: Complex, there: Complex, factor: Complex) -> Complex:
    """(here + there) + i conj(factor) (here - there)."""
    (a, b), (c, d), (wr, wi) = plus(here, there), minus(here, there), factor
    return fma(wi, c, fma(-wr, d, a)), fma(wi, d, fma(wr, c, b))


def call_real(code: Code, library: Library, kind: str, *args: str) -> None:
    """Call "untangle" or "tangle". args: from, to, the factors, and h as a number."""
    listed = ", ".join(f"{t} {a}" for (t, _), a in zip(_PARAMS, args, strict=True))
    code.f.line(f"call void @{name_of(f'fourier_{kind}', library.dtype)}({listed})")


def write_real(library: Library) -> None:
    """Both, for at least as many elements as a vector has lanes. untangle: h + 1 elements, the
    last of `from` being written as a copy of the first. tangle: h elements from h + 1; the
    imaginary parts of the first and of the last do not count."""
    code = library.function(name_of("fourier_untangle", library.dtype), _PARAMS, "internal")
    last = _at(code, "%from", "%h")
    for part in range(2):
        value = code.scalar(code.f.offset("%from", part * code.size))
        code.put(code.f.offset(last, part * code.size), value)
    _each(code, code.f.add("%h", 1), untangled)
    code.f.ret()

    code = library.function(name_of("fourier_tangle", library.dtype), _PARAMS, "internal")
    _each(code, "%h", tangled)
    lowest, highest = code.scalar("%from"), code.scalar(_at(code, "%from", "%h"))
    code.put("%to", lowest + highest)
    code.put(code.f.offset("%to", code.size), lowest - highest)
    code.f.ret()


def _at(code: Code, base: str, k: str) -> str:
    return code.f.offset(base, code.f.mul(k, 2 * code.size))


def _each(code: Code, count: str, formula: Callable[[Complex, Complex, Complex], Complex]) -> None:
    """A formula of elements 0 ... count - 1; the last vector begins where it ends with them."""
    f, width = code.f, code.width
    end = f.add(count, -width)

    def read(base: str, k: str) -> Complex:
        at = _at(code, base, k)
        real, imaginary = apart([code.load(at, n) for n in range(2)])
        return real, imaginary

    def group(start: str, _: object) -> None:
        k = f.least(start, end)
        back = f.op(f"sub i64 {f.add('%h', 1 - width)}, {k}")
        real, imaginary = (part.shuffle([*reversed(range(width))]) for part in read("%from", back))
        value = formula(read("%from", k), (real, -imaginary), read("%roots", k))
        to = _at(code, "%to", k)
        for n, vector in enumerate(together(value)):
            code.store(to, n, vector, None)

    f.loop(0, count, width, group)
