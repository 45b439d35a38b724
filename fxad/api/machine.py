"""What compiled code finds on this machine: threads, and facts that reach the bits of results.

fxad.set_num_threads(4)                     # results do not depend on it, bit for bit
fxad.bits_depend_on()["bf16 products"]      # "pairs"
"""

from __future__ import annotations

from fxad.compiler import native


def set_num_threads(count: int) -> None:
    """Use `count` threads in compiled functions of this process (at least 1).

    >>> before = fxad.get_num_threads()
    >>> fxad.set_num_threads(1)
    >>> fxad.set_num_threads(before)
    """
    native().set_threads(count)


def get_num_threads() -> int:
    """Threads that compiled functions use: by default the cores this process may run on.

    >>> fxad.get_num_threads() >= 1
    True
    """
    return native().threads


def bits_depend_on() -> dict[str, str]:
    """Facts of this machine and of the libraries beside us that reach results, by name.

    The same program, arguments and facts give the same bits with the same version of fxad, for any
    number of threads. A training run that goes on elsewhere compares them with its checkpoint's.

    >>> "LAPACK" in fxad.bits_depend_on()
    True
    """
    return native().bits_depend_on()
