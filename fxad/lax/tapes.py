"""Where a loop keeps what its reverse reads: `tape=` of scan, while_loop and fori_loop.

lax.while_loop(cond, body, x, tape=lax.tape("disk", memory="64MiB"))
lax.scan(step, carry, xs, tape=lax.tape(compress="bf16"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.checkpoint import keeping
from fxad.core.errors import BadArgument
from fxad.core.record import valued
from fxad.core.sizes import parse_bytes
from fxad.ops.programs.policies import changed, ways_within

PLACES = ("memory", "host", "disk")


@valued
class LoopTape:
    """What `tape` was asked for. memory: bytes; 0: as the settings say."""

    place: str
    memory: int
    compress: str | None

    def body(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A loop's body whose residuals go to this tape."""
        return self._keeping(function, "everything")

    def block(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A block of trips of which only the first state goes to this tape."""
        return self._keeping(function, None)

    def _keeping(self, function: Callable[..., Any], kind: str | None) -> Callable[..., Any]:
        rows = (("keep", kind),) if kind else ()
        place = None if self.place == "memory" else self.place
        return keeping(function, changed(rows, place, self.compress, self.memory))


def tape(
    place: str = "memory", *, memory: int | str | None = None, compress: str | None = None
) -> LoopTape:
    """For `tape=`: keep residuals in memory, on the host or on disk.

    memory: bytes (or "64MiB") for values on their way to the disk and back (default:
    `config.offload_memory`); loops that say the same share it. compress: "bf16" keeps f32 and f64
    values rounded to bfloat16. Under `jit` the loops stay native and call for a background thread
    every megabyte or so; outside `jit` only `compress` has an effect.

    Raises BadArgument for places and formats that do not exist.

    >>> tape = fxad.lax.tape("disk", memory="64MiB")
    >>> run = lambda x: fxad.lax.scan(lambda s, _: (jnp.sin(s), None), x, length=50, tape=tape)[0]
    >>> print(f"{fxad.jit(fxad.grad(run))(1.0):.5f}")
    0.00989
    """
    if place not in PLACES:
        options = ", ".join(map(repr, PLACES))
        raise BadArgument(f"tape: place must be one of {options}, not {place!r}")
    if memory is not None and place != "disk":
        raise BadArgument(f"tape: memory= is for values on their way to the disk, not {place!r}")
    ways_within("tape", None, compress)
    return LoopTape(
        place, parse_bytes(memory, "tape: memory") if memory is not None else 0, compress
    )


def on_tape(what: str, body: Callable[..., Any], tape: Any) -> Callable[..., Any]:
    """A loop's body with its residuals on a tape. Raises BadArgument for what is no tape."""
    if tape is None:
        return body
    if not isinstance(tape, LoopTape):
        raise BadArgument(f"{what}: tape must be None or made by lax.tape, not {tape!r}")
    return tape.body(body)
