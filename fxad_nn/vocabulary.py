"""Token ids that a model knows: 0 up to the size of its vocabulary, and those with a meaning.

require_ids(tokens, config.vocab, "the batch")
    # DataError: the batch holds id 65 at position [0, 3], outside the vocabulary of 65 (0 to 64)

Compiled functions cannot raise for a value: `forward` and `loss` clamp an id to the nearest one.
So whoever feeds them numbers from outside asks here first. What has no such form is refused by all
(`require_tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad_nn.errors import DataError

ENCODE = "; a tokenizer's encode(text) makes ids of a text"


@dataclass(frozen=True)
class SpecialIds:
    """The ids that frame texts; None where a tokenizer has none.

    `eos` holds all ids that end a text: that of the tokenizer first, then those that
    `generation_config.json` adds.
    """

    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None
    unk: int | None = None


NO_IDS = SpecialIds()


def checked_ids(ids: Any, size: int) -> list[int]:
    """A list of ids, each proved to lie in 0 ... size - 1."""
    ids = [int(i) for i in ids]
    for at, i in enumerate(ids):
        if not 0 <= i < size:
            raise DataError(f"token id {i} at position {at} is outside the vocabulary of {size}")
    return ids


def require_ids(ids: Any, vocab: int, what: str, ignored: int | None = None) -> None:
    """DataError naming the first of the integers `ids` that is outside the vocabulary, its
    position and the vocabulary's size; `ignored` may stand among targets that do not count."""
    try:
        ids = np.asarray(ids)
    except ValueError as error:
        raise DataError(f"{what} must be rows of one length, which these are not") from error
    if not ids.size:
        return
    if ids.dtype.kind in "US":
        raise DataError(f"{what} must hold integers, the ids of tokens; got a text{ENCODE}")
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


def require_tokens(tokens: Any) -> None:
    """DataError for what is no array of integers [batch, time], traced or not."""
    require_integers(tokens, "tokens", "ids of tokens")
    if tokens.ndim != 2:
        raise DataError(
            f"tokens must be [batch, time], got {list(tokens.shape)}: one text is [tokens]"
        )


def require_integers(array: Any, what: str, such: str) -> None:
    """DataError for what is no array of integers, as a text is that was not encoded."""
    if not jnp.issubdtype(getattr(array, "dtype", None) or object, jnp.integer):
        said = getattr(array, "dtype", type(array).__name__)
        hint = ENCODE if isinstance(array, str | bytes) else ""
        hint = "; numpy.array(...) makes an array of it" if isinstance(array, list) else hint
        raise DataError(f"{what} must be integers [batch, time], such as {such}; got {said}{hint}")
