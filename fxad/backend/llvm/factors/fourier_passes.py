"""Passes of Fourier transforms, one transform in each lane of a vector.

    write_transform(library, (8, 4))    # fourier_transform(plan, from, to, off)

Element j of all lanes is two vectors in scratch, j * 2 vectors from an address: the real parts,
and `off` bytes after them the imaginary parts. With the address of the imaginary parts and a
negative `off` the same code computes the inverse: a transform of numbers whose parts are exchanged
is the inverse's with its parts exchanged. The same operations in any lane give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.factors.code import Code, Library, name_of

Complex = tuple[Vec, Vec]  # real and imaginary parts


def element_bytes(code: Code) -> int:
    """Bytes of an element of all lanes in scratch."""
    return 2 * code.step


def element(code: Code, base: str, j: str | int) -> str:
    """The address of an element's real parts."""
    return code.f.offset(base, code.f.mul(j, element_bytes(code)))


def get(code: Code, at: str, off: str) -> Complex:
    """The element at an address."""
    return code.load(at), code.load(code.f.offset(at, off))


def put(code: Code, at: str, off: str, value: Complex) -> None:
    """Store an element."""
    code.put(at, value[0])
    code.put(code.f.offset(at, off), value[1])


def pair(code: Code, at: str) -> Complex:
    """A complex number of a table, in every lane."""
    real, imaginary = (code.scalar(code.f.offset(at, n * code.size)) for n in range(2))
    return real.splat(code.width), imaginary.splat(code.width)


def product(a: Complex, b: Complex) -> Complex:
    """a * b."""
    return fma(-a[1], b[1], a[0] * b[0]), fma(a[1], b[0], a[0] * b[1])


def plus(a: Complex, b: Complex) -> Complex:
    """a + b."""
    return a[0] + b[0], a[1] + b[1]


def minus(a: Complex, b: Complex) -> Complex:
    """a - b."""
    return a[0] - b[0], a[1] - b[1]


# ---------------------------------------------------------------- butterflies


def butterfly(values: list[Complex]) -> list[Complex]:
    """The transform of 2, 4, 8, or an odd number of elements."""
    return _odd(values) if len(values) % 2 else _even(values)


def _even(values: list[Complex]) -> list[Complex]:
    """Of a power of two, by halves."""
    n = len(values)
    if n == 1:
        return values
    even, odd = _even(values[::2]), _even(values[1::2])
    turned = [_turned(value, k * 8 // n) for k, value in enumerate(odd)]
    sums = [plus(a, b) for a, b in zip(even, turned, strict=True)]
    return sums + [minus(a, b) for a, b in zip(even, turned, strict=True)]


def _turned(value: Complex, eighths: int) -> Complex:
    """value * exp(-2 pi i eighths / 8), for less than half a turn."""
    real, imaginary = value
    half = math.sqrt(0.5)
    match eighths:
        case 0:
            return value
        case 1:
            return (real + imaginary) * half, (imaginary - real) * half
        case 2:
            return imaginary, -real
        case _:
            return (imaginary - real) * half, (real + imaginary) * -half


def _odd(values: list[Complex]) -> list[Complex]:
    """Of an odd number: what differs in the sign of a sine is summed together."""
    n, first = len(values), values[0]
    half = range(1, n // 2 + 1)
    sums = [plus(values[j], values[n - j]) for j in half]
    differences = [minus(values[j], values[n - j]) for j in half]
    results = [first] * n
    for value in sums:
        results[0] = plus(results[0], value)
    for k in half:
        cosines = [math.cos(2 * math.pi * (j * k % n) / n) for j in half]
        sines = [math.sin(2 * math.pi * (j * k % n) / n) for j in half]
        c, s = first, (differences[0][0] * sines[0], differences[0][1] * sines[0])
        for value, factor in zip(sums, cosines, strict=True):
            c = fma(value[0], factor, c[0]), fma(value[1], factor, c[1])
        for value, factor in zip(differences[1:], sines[1:], strict=True):
            s = fma(value[0], factor, s[0]), fma(value[1], factor, s[1])
        results[k] = c[0] + s[1], c[1] - s[0]
        results[n - k] = c[0] - s[1], c[1] + s[0]
    return results


# ---------------------------------------------------------------- passes

_PASS = (
    ("ptr", "from"),
    ("ptr", "to"),
    ("i64", "off"),
    ("ptr", "roots"),
    ("i64", "m"),
    ("i64", "s"),
)
TRANSFORM = "fourier_transform"
_TRANSFORM = (("ptr", "plan"), ("ptr", "from"), ("ptr", "to"), ("i64", "off"))


def _write_pass(library: Library, radix: int) -> str:
    """to[q + s (r p + k)] = root(p k) * butterfly(from[q + s (p + m j)] over j)[k]."""
    name = name_of(f"fourier_pass_{radix}", library.dtype)
    code = library.function(name, _PASS, "internal")
    f = code.f
    size = element_bytes(code)
    stride = f.mul("%s", size)  # bytes
    across = f.mul(stride, "%m")

    def row(p: str, factors: list[Complex]) -> None:
        source = f.offset("%from", f.mul(stride, p))
        target = f.offset("%to", f.mul(f.mul(stride, radix), p))

        def column(q: str, _: object) -> None:
            at, to = element(code, source, q), element(code, target, q)
            values = [get(code, f.offset(at, f.mul(across, j)), "%off") for j in range(radix)]
            results = butterfly(values)
            for k, value in enumerate(results):
                if k and factors:
                    value = product(value, factors[k - 1])
                put(code, f.offset(to, f.mul(stride, k)), "%off", value)

        f.loop(0, "%s", 1, column, at_least_once=True)

    def turned(p: str, _: object) -> None:
        at = f.offset("%roots", f.mul(p, 2 * (radix - 1) * code.size))
        row(p, [pair(code, f.offset(at, 2 * k * code.size)) for k in range(radix - 1)])

    row("0", [])
    f.loop(1, "%m", 1, turned)
    f.ret()
    return name


def write_transform(library: Library, radices: Sequence[int]) -> None:
    """All passes of plans with these radices. A result is in `from` where their number is even,
    else in `to`."""
    names = {radix: _write_pass(library, radix) for radix in radices}
    code = library.function(name_of(TRANSFORM, library.dtype), _TRANSFORM, "internal")
    f = code.f
    count = f.op("load i64, ptr %plan")

    def one(number: str, values: list[str]) -> list[str]:
        source, target = values
        at = f.offset("%plan", f.add(f.mul(number, 32), 8))
        radix, m, s = (f.op(f"load i64, ptr {f.offset(at, 8 * n)}") for n in range(3))
        roots = f.op(f"load ptr, ptr {f.offset(at, 24)}")
        given = f"ptr {source}, ptr {target}, i64 %off, ptr {roots}, i64 {m}, i64 {s}"
        for number_of, name in names.items():
            test = f.op(f"icmp eq i64 {radix}, {number_of}")
            f.when(test, partial(f.line, f"call void @{name}({given})"))
        return [target, source]

    f.loop(0, count, 1, one, [("ptr", "%from"), ("ptr", "%to")])
    f.ret()
