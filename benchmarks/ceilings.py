"""What the machine can do at most, to be timed in turns with what is measured.

run, flops = fma(threads=2)          # multiply-adds on registers alone, on two threads
run, size = reading(1 << 26, 2)      # reads a float32 array, as fast as a loop can here
run, size = streams(3, 1, 1 << 24)   # reads three, writes one
"""

from fxad.backend.llvm.ceilings import F32, Ceiling, aligned, fma, place, reading, streams, unit_for

__all__ = ["F32", "Ceiling", "aligned", "fma", "place", "reading", "streams", "unit_for"]
