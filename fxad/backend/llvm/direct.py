"""A compiled program as one native function of Arrays: see `native/direct.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.backend.llvm.native import pool
from fxad.backend.llvm.native.direct import fixed_words, function_of, kinds_of
from fxad.backend.llvm.native.direct_code import CallWord
from fxad.backend.llvm.native.library import Word
from fxad.backend.llvm.runner import Encoded
from fxad.core.types import ArrayType

MOST_BYTES = 1 << 17  # of arena and scratch that a call takes from the C library's allocator


class Direct:
    """`refused = direct.call(*operands, *[make() for make in direct.makers])`.

    Operands are Arrays of the types and weakness given here. Where anything else comes, or an
    array that must be copied first, nothing is done and True returned. A program that runs on
    several threads (`parallel`) is to be called only where `renew` has just returned True.
    """

    __slots__ = ("_fits", "_keep", "_pool", "_record", "_scratch", "call", "makers", "parallel")

    def __init__(
        self,
        encoded: Encoded,
        makers: Sequence[Callable[[], np.ndarray]],
        arena_bytes: int,
        interval: int,
        operands: tuple[Sequence[ArrayType], Sequence[bool]],
    ) -> None:
        frame, kinds = encoded.new_frame(), kinds_of(*operands)
        self._keep = (encoded, frame, kinds)
        self._record = record = np.zeros(len(CallWord), np.int64)
        self._scratch = arena_bytes, encoded.scratch_bytes
        words = fixed_words() | {
            CallWord.TEMPLATE: frame.address,
            CallWord.WORDS: len(frame.words),
            CallWord.ARGS_WORD: (frame.words[Word.ARGS] - frame.address) // 8,
            CallWord.COUNT: len(kinds) + len(makers),
            CallWord.OPERANDS: len(kinds),
            CallWord.KINDS: kinds.ctypes.data,
            CallWord.ARENA_BYTES: arena_bytes,
            CallWord.STRIDE: encoded.scratch_bytes,
            CallWord.INTERVAL: interval,
        }
        for word, value in words.items():
            record[word] = value
        self.makers = tuple(makers)
        self.parallel = encoded.parallel
        self._pool: Any = None
        self._share(1, 0)
        self.call = function_of(record)

    def renew(self) -> bool:
        """Run on the threads that there are now; False if they need more than MOST_BYTES."""
        workers = pool.current_pool()
        if workers is not self._pool:
            self._share(workers.threads, workers.address)
            self._pool = workers
        return self._fits

    def _share(self, threads: int, address: int) -> None:
        arena, stride = self._scratch
        size = arena + threads * stride
        self._fits = size <= MOST_BYTES
        changed = self._record.copy()
        changed[CallWord.BYTES], changed[CallWord.POOL] = size, address
        # At once: between two words another thread could call, for many workers in little scratch.
        self._record[:] = changed
