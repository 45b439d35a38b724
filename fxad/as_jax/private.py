"""Names of private modules of JAX that public packages import."""

from __future__ import annotations

from typing import Any

_backends: dict[str, Any] = {}  # chex asks whether a backend was started


def backend_compile_and_load(backend: Any, *args: Any, **kwargs: Any) -> Any:
    """What chex wraps to forbid a backend; fxad's compiler does not call it."""
    raise NotImplementedError
