"""Where weights lie for the products that read them: in place of scores, or split beside them.

    weights = take_weights(code, scores)
    rows = term_rows(code, weights, "%i")           # [] where they are not split
    pending = store_terms(code, x, pointers, pending)

Products on tiles read three matrices of bf16, one for each term, one after the other.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.code import Code
from fxad.backend.llvm.attention.split import TERM_BYTES, TERMS, paired, split
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.amx_tiles import LINE_BYTES

# The terms of a vector, and where each of them goes.
Pending = tuple[list[Vec], list[str]]


def term_matrix_bytes(code: Code) -> int:
    """Bytes from one term of a block of weights to the next."""
    return code.block.rows * code.block.stride * TERM_BYTES


def take_weights(code: Code, scores: str) -> str:
    """Where a block of weights lies, whose scores lie there."""
    if not code.problem.bf16x6:
        return scores
    return code.take(TERMS * term_matrix_bytes(code))


def at_key_0(code: Code, block: str, key: str, size: int) -> str:
    """Where a block whose first key this is would have key 0. size: bytes of a number."""
    f = code.f
    return f.offset(block, f.op(f"sub i64 0, {f.mul(key, size)}"))


def term_rows(code: Code, weights: str, row: str) -> list[tuple[str, int]]:
    """Where a row of split weights has its terms, and bytes of one."""
    if not code.problem.bf16x6:
        return []
    f = code.f
    start = f.offset(weights, f.mul(row, code.block.stride * TERM_BYTES))
    terms = range(TERMS)
    return [(f.offset(start, n * term_matrix_bytes(code)), TERM_BYTES) for n in terms]


def store_terms(
    code: Code, weights: Vec, pointers: list[str], pending: Pending | None
) -> Pending | None:
    """Store the terms of a vector of weights.

    Two vectors make one of pairs: nothing is stored of the first, which is `pending` for the
    second.
    """
    terms = split(weights)
    if pending is None:
        return terms, pointers
    for low, high, to in zip(pending[0], terms, pending[1], strict=True):
        both = paired(low, high)
        code.f.line(f"store {both.type} {both.text}, ptr {to}, align {LINE_BYTES}")
    return None
