"""Kinds of processors: what one can do, and the record of tuning that suits it.

    kind = Kind.of(features, l1=49152, l2=1 << 20)
    kind.name            # "amd-avx512-bf16-l1-48k-l2-1m"
    known(kind)          # a Tuning measured on this kind, or None

A kind is the features that LLVM reads off the processor and the sizes of the caches that belong to
one core. Names are not looked at: a hypervisor may call one processor another (an Emerald Rapids
called itself rocketlake), and third-level sizes are not believed (that one's was 480 MB).
A processor of no known kind is measured (`calibrate.py`) and otherwise takes `safe`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxad.backend.llvm.base.tuning import DEFAULT, Tuning
from fxad.core.record import valued


@valued
class Kind:
    """vendor: "amd" or "intel" where features say so, else "other". extras: bf16 (products of
    pairs), amx, vp2intersect. l1, l2: bytes of a core's first- and second-level data caches, 0: not
    known."""

    vendor: str
    isa: str
    extras: tuple[str, ...] = ()
    l1: int = 0
    l2: int = 0

    @staticmethod
    def of(features: Iterable[str], isa: str, l1: int = 0, l2: int = 0) -> Kind:
        """features: LLVM's names of those that the processor has."""
        has = frozenset(features)
        words = {
            "bf16": "avx512bf16" in has,
            "amx": {"amx-tile", "amx-bf16"} <= has,
            "vp2intersect": "avx512vp2intersect" in has,
        }
        extras = tuple([word for word, there in words.items() if there and isa == "avx512"])
        # AMD's processors alone have SSE4a, Intel's alone AMX. What else only Intel's have (RTM,
        # SGX, PCONFIG) virtual machines often hide: one processor would be of two kinds.
        vendor = "amd" if "sse4a" in has else "intel" if "amx" in extras else "other"
        return Kind(vendor, isa, extras, l1, l2)

    @property
    def name(self) -> str:
        """A word for files and tables."""
        sizes = [f"{which}-{_short(n)}" for which, n in (("l1", self.l1), ("l2", self.l2)) if n]
        return "-".join([self.vendor, self.isa, *self.extras, *sizes])


def _short(size: int) -> str:
    """32768 -> 32k, 2097152 -> 2m."""
    return f"{size >> 20}m" if size % (1 << 20) == 0 else f"{size >> 10}k"


def capabilities(kind: Kind, tiles: bool) -> frozenset[str]:
    """What the code may use that reaches bits (`ir.orders.CAPABILITIES`) or says how bf16 is
    rounded. tiles: the system lets this process use AMX. bf16_pairs: products of pairs are faster
    than two FMAs of float32, as on AMD's processors (Intel's take twice as long)."""
    if "bf16" not in kind.extras:
        return frozenset()
    found = {"avx512_bf16"}
    if kind.vendor == "amd":
        found.add("bf16_pairs")
    if tiles and "amx" in kind.extras:
        found.add("amx_bf16")
    return frozenset(found)


# ---------------------------------------------------------------- the table

_ZEN5 = DEFAULT.with_(
    "Zen 5",
    cpu="znver5",
    gemv={"prefetch_level": 0},
    gemm={"panels_in_l2": True, "prefetch_partial_sums": False},
    rows={"crosses_pages": True, "near_only": True},
)
_ZEN4 = DEFAULT.with_(
    "Zen 4",
    cpu="znver4",
    gemv={"prefetch_level": 2, "unit_row_bytes": 16384},
    gemm={"panels_in_l2": True, "prefetch_partial_sums": False},
    rows={"near_only": True},
)
# Vectors of eight lanes: where sums of 16-bit elements wait for each other (Zen 3, 2026-11-28).
_EIGHT_LANES = {"chains": 3}
# The same processor where a hypervisor hides its AVX-512; the chains were not measured on it.
_ZEN4_AVX2 = _ZEN4.with_("Zen 4 without AVX-512", gemv=_EIGHT_LANES)
_ZEN3 = DEFAULT.with_(
    "Zen 3",
    cpu="znver3",
    gemv=_EIGHT_LANES,
    gemm={"panels_in_l2": True, "transposed_in_l2": True},
)
# The processor called itself rocketlake; that name's latencies are an Ice Lake server's. What
# differs from the default was measured on an Emerald Rapids, two cores, 2026-11-24 (docs/log.md):
# generation is 12 to 15% faster with these prefetches.
_XEON = DEFAULT.with_(
    "Xeon with AMX",
    cpu="icelake-server",
    gemv={"row_prefetch_bytes": 1024, "k_prefetch_bytes": 512, "unit_row_bytes": 16384},
    gemm={
        "panels_in_l2": True,
        "transposed_in_l2": True,
        "l2_least_rows": 96,
        "l2_set_rows": 8,
        "unit_rows": 288,
        "slow_unit_rows": 288,
        "unit_a_bytes": 1 << 20,
        "l2_a_bytes": 5 << 18,
    },
)


def known(kind: Kind) -> Tuning | None:
    """The record that was measured on a kind, if one was."""
    if kind.vendor == "amd" and kind.isa == "avx2":
        return {1 << 20: _ZEN4_AVX2, 1 << 19: _ZEN3}.get(kind.l2) if kind.l1 == 32 << 10 else None
    if kind.isa != "avx512":
        return None
    if kind.vendor == "amd" and "bf16" in kind.extras:
        if "vp2intersect" in kind.extras:
            return _ZEN5 if kind.l1 in (0, 48 << 10) else None
        return _ZEN4 if kind.l1 in (0, 32 << 10) else None
    if "amx" in kind.extras:
        return _XEON if kind.l2 in (0, 2 << 20) else None
    return None


def safe(kind: Kind) -> Tuning:
    """What is nowhere bad, for a kind that was never measured."""
    cpus = {
        ("amd", "avx512"): "znver4",
        ("amd", "avx2"): "znver3",
        ("intel", "avx512"): "icelake-server",  # with AMX
        ("other", "avx512"): "icelake-server",
        ("other", "avx2"): "haswell",
    }
    gemv = _EIGHT_LANES if kind.isa == "avx2" else {}
    return DEFAULT.with_("safe choices", cpu=cpus.get((kind.vendor, kind.isa), ""), gemv=gemv)


def for_cores(tuning: Tuning, cores: int) -> Tuning:
    """A record for so many cores: no more pieces of a row than cores to read them, as far as the
    record goes. On two threads of a Zen 4 products of one row read 0.96 of what memory gives in two
    pieces, 0.84 in eight (bf16, 768 x 3072). Products on tiles are cut into as many units for every
    core: five equal ones on two cores leave one of them idle for a third of the time."""
    gemv = {"units": min(tuning.gemv.units, max(cores, 2))}
    amx = {"b_stationary_units": max(cores, 2)}
    return tuning.with_(tuning.name, None, gemv=gemv, amx=amx)


def table() -> dict[str, Tuning]:
    """The records of known kinds by name."""
    return {one.name: one for one in (_ZEN5, _ZEN4, _ZEN4_AVX2, _ZEN3, _XEON)}
