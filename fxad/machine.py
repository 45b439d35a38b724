"""What this machine's arithmetic can do at most, for those who judge a speed by it.

unit = unit_for("bfloat16")         # "AMX", "bf16 pairs", or "float32" where there are neither
flops = 1e9 * peak(unit, threads=2)
"""

from __future__ import annotations

from fxad.compiler import native

__all__ = ["peak", "unit_for"]


def unit_for(dtype: str) -> str:
    """What of the processor computes large products of factors of a dtype, by its name."""
    return native().unit_for(dtype)


def peak(unit: str, threads: int) -> float:
    """GFLOP/s of a unit's multiply-adds on registers alone, the best of a few runs of milliseconds.

    Those of one thread times threads count too: it waits for no other on a machine that is busy.
    """
    return max(native().peak(unit, threads), threads * native().peak(unit, 1))
