"""What the bits of results depend on besides the program, for checkpoints and for people.

fxad.bits_depend_on()["bf16 products"]      # "pairs"
"""

from __future__ import annotations

from fxad.compiler import native


def bits_depend_on() -> dict[str, str]:
    """Facts of this machine and of the libraries beside us that reach results, by name.

    The same program, arguments and facts give the same bits with the same version of fxad, for any
    number of threads. A training run that goes on elsewhere compares them with its checkpoint's.
    """
    return native().bits_depend_on()
