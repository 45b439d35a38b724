"""`explain`: one page on what a compiled function does with its time and memory, and what to try.

>>> print(fxad.explain(step)(w, x))
step: 365 equations as traced, 290 after the passes, 41 kernels in 63 calls, 12.4 ms
...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fxad.api.jit import Jit, jit
from fxad.api.profile import KernelProfile, Profile, profile
from fxad.api.stages import Lowered
from fxad.core import dtypes as dt
from fxad.core.lazy import later
from fxad.ir.program import Program, Var
from fxad.ir.uses import uses_of

if TYPE_CHECKING:
    from fxad.ir.inspection import columns
else:
    columns = later("fxad.ir.inspection.columns")

_SHOWN = 8  # kernels, and values, of a list
_SLOW = 0.3  # of the roofline: below it neither memory nor arithmetic is what bounds a kernel
_SHORT = 20e-6  # seconds of a call below which starting it is a good part
_LARGE = 1 << 24  # bytes of residuals that are worth a thought


class Explanation:
    """The page: `str` of it is the text. profile: what was measured; lowered: what was compiled."""

    def __init__(self, lowered: Lowered, measured: Profile) -> None:
        self.lowered = lowered
        self.profile = measured

    def __str__(self) -> str:
        sections = [
            ("what ran", _ran(self.lowered, self.profile)),
            ("kernels, the dearest first", _kernels(self.profile)),
            ("memory", _memory(self.lowered)),
            ("what to try", _advice(self.lowered, self.profile)),
        ]
        parts = []
        for title, lines in sections:
            parts += [title, *(f"  {line}" for line in lines), ""]
        return "\n".join(parts).rstrip()

    __repr__ = __str__


def explain(function: Callable[..., Any], repeats: int = 5) -> Callable[..., Explanation]:
    """explain(f)(*args) runs f compiled, `repeats` times, kernel by kernel (see `fxad.profile`),
    and says on one page what ran, which equations each kernel computes, what bounds it, what the
    backward pass keeps or recomputes, and what may be worth trying.

    Arguments that f donates are copied. Raises BadArgument inside another transformation.

    >>> page = fxad.explain(lambda x: jnp.exp(x).sum())(jnp.ones(100_000))
    >>> str(page).splitlines()[0]
    'what ran'
    """
    jitted = function if isinstance(function, Jit) else jit(function)

    def wrapped(*args: Any, **kwargs: Any) -> Explanation:
        measured = profile(jitted, *args, repeats=repeats, **kwargs)
        return Explanation(jitted.lower(*args, **kwargs), measured)

    return wrapped


def _ran(lowered: Lowered, measured: Profile) -> Iterator[str]:
    calls = sum(k.calls for k in measured.kernels)
    yield (
        f"{lowered.program.name}: {len(lowered.traced.eqns):,} equations as traced, "
        f"{len(lowered.program.eqns):,} after the passes, {len(lowered.kernels):,} kernels in "
        f"{calls:,} calls"
    )
    yield (
        f"{1e3 * measured.run_seconds:.3f} ms as one native call; this machine: "
        + ", ".join(f"{peak:.0f} GFLOP/s {unit}" for unit, peak in measured.peaks.items())
        + f", {measured.transfer:.1f} GB/s"
    )
    found = [name for name in _RECOGNISED if any(e.op.name == name for e in lowered.program.eqns)]
    if found:
        yield "recognised and done as one: " + ", ".join(_RECOGNISED[name] for name in found)


_RECOGNISED = {
    "flash_attention": "attention",
    "flash_attention_grad": "its gradient",
    "linear_cross_entropy": "a language model's head with its loss",
}


def _kernels(measured: Profile) -> Iterator[str]:
    for kernel in measured.kernels[:_SHOWN]:
        yield (
            f"{1e3 * kernel.seconds:9.3f} ms {kernel.share:4.0%}  {kernel.name} x {kernel.calls}: "
            f"{_bound(kernel, measured)}"
        )
        yield f"{'':14}fuses {_listed(kernel.where)}" if kernel.where else ""
    rest = measured.kernels[_SHOWN:]
    if rest:
        yield f"{1e3 * sum(k.seconds for k in rest):9.3f} ms {'':6}{len(rest):,} others"


def _bound(kernel: KernelProfile, measured: Profile) -> str:
    """What keeps a kernel from being faster."""
    arithmetic = min(1.0, kernel.gflops / measured.peaks[kernel.unit])  # measured, so it varies
    memory = min(1.0, kernel.gbytes / measured.transfer)
    if max(arithmetic, memory) < _SLOW:
        if kernel.seconds < _SHORT * kernel.calls:
            return "bound by the cost of a call"
        return f"bound by neither arithmetic ({arithmetic:.0%}) nor memory ({memory:.0%})"
    if arithmetic >= memory:
        return f"bound by arithmetic, {arithmetic:.0%} of {kernel.unit}'s peak"
    return f"bound by memory, {memory:.0%} of its speed"


def _listed(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - 4} more" if len(lines) > 4 else ""
    return ", ".join(lines[:4]) + more


def _memory(lowered: Lowered) -> Iterator[str]:
    counts = lowered.cost()
    yield (
        f"arguments {_size(counts['argument_bytes'])}, results {_size(counts['result_bytes'])}, "
        f"between them {_size(counts['arena_bytes'])}"
    )
    kept = _residuals(lowered.program)
    for how in ("saved", "recomputed", "offloaded"):
        values = sorted(kept.get(how, []), key=lambda pair: -pair[0])
        if not values:
            continue
        total = sum(size for size, _ in values)
        largest = ", ".join(f"{name} {_size(size)}" for size, name in values[:3])
        yield f"{how} for the backward pass: {len(values):,} values, {_size(total)} ({largest})"


def _residuals(program: Program) -> dict[str, list[tuple[int, str]]]:
    """Bytes of values that the backward pass reads, and what made them, by what becomes of them;
    views cost nothing."""
    uses, found = uses_of(program), dict[str, list[tuple[int, str]]]()
    for eqn in program.eqns:
        how = columns.COLUMNS["kept"](uses, eqn, columns.Known())
        if how and columns.moved(eqn):
            size = sum(v.type.nbytes for v in eqn.outputs if isinstance(v, Var))
            found.setdefault(how, []).append((size, f"{eqn.op.name} @ {eqn.where}"))
    return found


def _advice(lowered: Lowered, measured: Profile) -> Iterator[str]:
    """What may be worth trying, the most promising first."""
    yield from measured.notes
    kept = _residuals(lowered.program).get("saved", [])
    total = sum(size for size, _ in kept)
    if total >= _LARGE:
        yield (
            f"{_size(total)} wait for the backward pass: fxad.checkpoint around a layer, or "
            "fxad.jit(f, memory_budget=...), recomputes some of it"
        )
    short = sum(k.seconds for k in measured.kernels if k.seconds < _SHORT * k.calls)
    if short > measured.seconds / 2:
        yield "most calls take less than 20 us: larger arrays, or fxad.vmap over many, pay better"
    hosts = [k for k in measured.kernels if k.name.startswith("python ")]
    if hosts:
        yield f"Python is called back ({hosts[0].name}): what it computes is not compiled"
    wide = sum(k.seconds for k in measured.kernels if k.unit == "float64")
    if wide > measured.seconds / 2 and any(t.dtype == dt.float64 for t in _types(lowered)):
        yield "most of the time goes to float64: float32 moves half the bytes"
    products = [k for k in measured.kernels if k.name.startswith("dot") and k.unit == "float32"]
    if sum(k.seconds for k in products) > measured.seconds / 2:
        yield (
            "most of the time goes to float32 products: "
            'fxad.default_matmul_precision("bfloat16") computes them from rounded operands'
        )
    if not lowered.donate_argnums and _updates(lowered):
        yield "results have the types of arguments: donate_argnums lets them take over the memory"


def _types(lowered: Lowered) -> list[Any]:
    return [v.type for v in lowered.program.inputs]


def _updates(lowered: Lowered) -> bool:
    """Whether large results could take the memory of arguments."""
    given = [t for t in lowered.program.in_types if t.nbytes >= _LARGE]
    return any(t in given for t in lowered.program.out_types)


def _size(nbytes: int) -> str:
    """Bytes in a unit that fits."""
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
