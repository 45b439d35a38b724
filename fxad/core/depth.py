"""What to say where Python's stack is too short.

Traces and rewrites of programs nest as the user's loops and branches do.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from fxad.core.errors import DepthError


@contextlib.contextmanager
def told_when_too_deep(what: str) -> Iterator[None]:
    """Raise DepthError for a RecursionError of the body.

    Where no stack is left even for that, the next such block outside does it.
    """
    try:
        yield
    except DepthError:
        raise
    except RecursionError as error:
        raise DepthError(
            f"{what}: Python's limit of {sys.getrecursionlimit()} nested calls was reached. A "
            "loop, branch or function nested in another takes ten to thirty of them: raise the "
            "limit with sys.setrecursionlimit(20000), or write what repeats as lax.scan or "
            "lax.fori_loop. Unbounded recursion ends in this error too"
        ) from error
