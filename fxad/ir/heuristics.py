"""Numbers by which passes, lowering and planning choose kernels and memory.

They make programs faster or smaller and never reach a bit: a test draws all of them at random and
demands the same results (`tests/test_tunables.py`). These rooms know no backend, so there is one
number for all processors; what differs between them is the backend's `Tuning`, and what bits depend
on is in `ir/orders.py`. Those of rematerialization stand in `fxad/rematerialization`.

Each says where and when it was measured, or by which reason it was chosen.
"""

from __future__ import annotations

# ---------------------------------------------------------------- materialization

# Costs of an element whose array is in memory, in rough hundredths of a nanosecond of SIMD code:
# of a load, and of a store with the load that then follows. By reason, from what memory gives.
LOAD_COST = 10.0
STORE_AND_LOAD_COST = 32.0
# Arithmetic on one array that is never worth a store of its own. By reason: less than a store.
CHEAP_COST = 14.0
# A value that is repeated along an axis is materialized if an element costs more than this. By
# reason: more than three simple operations, done again for every element.
BROADCAST_COST = 6.0
# Operations that one value may bring along into its readers. By reason: kernels stay small enough
# to compile in milliseconds.
INLINED_OPERATIONS = 150
# Bytes of a product that is materialized as the sum it is added to, so that one array is in memory
# where the summands would be two. By reason: smaller ones decide no program's peak.
ACCUMULATION_BYTES = 8 << 20

# ---------------------------------------------------------------- fusion

# Nodes of a kernel. By reason: it stays small enough to compile in milliseconds.
KERNEL_NODES = 32
# Groups that read the same data and are tried for a node, and elements from which reading them once
# is worth sharing a kernel. By reason: trying all would take the square of a program's nodes.
SIBLING_GROUPS = 4
SHARED_ELEMENTS = 64
# Elements of numbers such as a learning rate, which are computed before all else so that nothing
# has to wait for them. By reason.
TINY_ELEMENTS = 16
# Work at every point joins no reduction over fewer rows than these of a space of as many points. By
# reason: rows are the only parallelism of a row kernel.
FEW_ROWS = 16
LONG_ROWS = 1 << 16
# Elements from which the parts of a concatenation get kernels of their own, and the most parts. By
# reason: a launch takes about a microsecond, a few thousand elements of a copy as long.
PART_ELEMENTS = 4096
MOST_PARTS = 32
# Bytes that an epilogue reads tile by tile: more come from memory, too slowly (a product of 3072 x
# 768 over 256 with AdamW's three arrays: 15.6 ms, apart 6.0 + 1.7 ms; from a cache they cost
# nothing). EPYC with AVX-512, 2026-11-21. Products of bf16 take so little time themselves that less
# is too much (a step of GPT-2 327 -> 306 ms). Emerald Rapids, 2026-11-22.
EPILOGUE_BYTES = 8 << 20
NARROW_EPILOGUE_BYTES = 2 << 20
# Rows and columns of a product from which an epilogue that reads more goes over whole rows of many
# tiles, as fast as a kernel of its own. Emerald Rapids, 2026-11-22.
ROW_EPILOGUE_EXTENT = 384
# Bytes of the longest row that a kernel keeps in private memory between its stages. By reason: half
# of a second-level cache.
SCRATCH_BYTES = 1 << 19
# Elements of a rounded copy of an input that products round themselves instead, and the most
# products that read it: panels packed by the product before suffer (a product 0.87 -> 1.05 ms, the
# copy took 0.28 to 0.60). Emerald Rapids, 2026-11-22.
ROUNDED_ELEMENTS = 1 << 18
ROUNDED_READERS = 3

# ---------------------------------------------------------------- passes

# Bytes of a table whose gradient is updated in its product's epilogue, with the looked-up rows
# apart; its rows are so many times those, and have as many columns as a row epilogue wants.
# GPT-2's step of 64 tokens 311 -> 302 ms, of 16 185 -> 169. EPYC with AVX-512, 2026-11-22.
ROWS_APART_BYTES = 1 << 25
ROWS_APART_RATIO = 16

# ---------------------------------------------------------------- planning

# Bytes of a product that may be delayed to its first reader. By reason: smaller results do not
# decide how much memory a program needs (GPT-2's 154 MB do: 397 -> 253 MB, 2026-11-21).
DELAYED_BYTES = 1 << 20
# Bytes touched between a product's store and the first read from which it is a streaming store: the
# same as what one kernel writes at once before they are worth it (loss and gradients of 12 layers
# of 768 over 64 tokens 231 -> 199 ms). Emerald Rapids, 2026-11-22.
STREAMING_DISTANCE = 1 << 25
# Bytes of a value that lives in its offload buffer. By reason: to copy fewer takes less time than
# two calls more.
OFFLOAD_BUFFER_BYTES = 1 << 16
# Bytes of the arena that nothing ever needs, which are worth a second plan (30 ms for a step of
# GPT-2, whose arena was 324 and became 208 MB). EPYC with AVX-512, 2026-11-22.
HOLE_BYTES = 1 << 20
