"""`jax.experimental.compilation_cache.compilation_cache`: where compiled programs are kept.

set_cache_dir("cache")      # as fxad.config.cache_dir = "cache"
"""

from __future__ import annotations

from fxad.core.config import config

__all__ = ["is_initialized", "reset_cache", "set_cache_dir"]


def set_cache_dir(path: str | None) -> None:
    """Keep compiled programs in this directory from now on; None: in the user's own."""
    config.cache_dir = path


def reset_cache() -> None:
    """Does nothing: programs that were read from the directory stay in memory, others are looked
    for there again anyway."""


def is_initialized() -> bool:
    """Whether programs are kept."""
    return bool(config.cache)
