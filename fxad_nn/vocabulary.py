"""Token ids that a model knows: 0 up to the size of its vocabulary.

require_ids(tokens, config.vocab, "the batch")
    # DataError: the batch holds id 65 at position [0, 3], outside the vocabulary of 65 (0 to 64)

Compiled functions cannot raise for a value: `forward` and `loss` clamp an id to the nearest one.
So whoever feeds them numbers from outside asks here first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad_nn.errors import DataError


def require_ids(ids: Any, vocab: int, what: str, ignored: int | None = None) -> None:
    """DataError naming the first of the integers `ids` that is outside the vocabulary, its
    position and the vocabulary's size; `ignored` may stand among targets that do not count."""
    ids = np.asarray(ids)
    if not ids.size:
        return
    if ids.dtype.kind not in "iu":
        raise DataError(f"{what} must hold integers, the ids of tokens; got {ids.dtype}")
    if ignored is None and 0 <= int(ids.min()) <= int(ids.max()) < vocab:
        return
    outside = (ids < 0) | (ids >= vocab)
    if ignored is not None:
        outside &= ids != ignored
    if not outside.any():
        return
    place = [int(i) for i in np.argwhere(outside)[0]]
    position = place[0] if len(place) == 1 else place
    hint = f"; {ignored} marks targets that do not count" if ignored is not None else ""
    raise DataError(
        f"{what} holds id {int(ids[tuple(place)])} at position {position}, outside the vocabulary "
        f"of {vocab} (0 to {vocab - 1}){hint}"
    )
