"""Arrays in NumPy's files. Not for traced values.

save("weights.npy", w)          w = load("weights.npy")
w = fromfile("weights.bin", "bfloat16", shape=(4096, 1024), offset=64)
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import ml_dtypes
import numpy as np

from fxad.core import dtypes as dt
from fxad.core.aligned import empty
from fxad.core.errors import BadArgument
from fxad.numpy.core import asarray
from fxad.trace.array import Array, Concrete

__all__ = ["fromfile", "load", "save", "savez"]


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """NumPy's `save`. Raises ConcretizationError for a traced value.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> jnp.save(path, jnp.array([1, 2], jnp.bfloat16))
    >>> jnp.load(path)
    Array([1, 2], dtype=bfloat16)
    """
    np.save(file, np.asarray(arr), allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """NumPy's `savez`: several arrays in one file, by name or as arr_0, arr_1, ...

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "both.npz")
    >>> jnp.savez(path, x=jnp.array([1, 2]), y=jnp.zeros(3))
    >>> jnp.load(path)["x"].tolist()
    [1, 2]
    """
    plain = {name: np.asarray(value) for name, value in kwds.items()}
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle, **plain)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """NumPy's `load`: of a .npy file an Array in the dtype that was saved, of a .npz file NumPy's
    mapping of names to NumPy arrays. Pickles are refused unless allow_pickle=True.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> jnp.save(path, jnp.arange(3))
    >>> jnp.load(path)
    Array([0, 1, 2], dtype=int32)
    """
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):  # what NumPy's format has for a dtype it does not know
        found = found.view(ml_dtypes.bfloat16)
    return asarray(found, dtype=found.dtype)


def fromfile(
    file: Any,
    dtype: Any = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    shape: int | tuple[int, ...] | None = None,
) -> Array:
    """The numbers in a file, as NumPy's `fromfile` reads them.

    file: a path, or an open binary file, read from where it is. count: how many numbers; -1: all.
    offset: bytes to skip. shape: of the result, in place of count. sep: of a file of text.

    The bytes are read once, into memory that the Array keeps: `asarray(np.fromfile(...))` copies
    them. Raises BadArgument where a file has fewer numbers than a shape wants, TypeMismatch for a
    dtype that no array has, OSError where the file cannot be read.

    >>> import tempfile, numpy as np, fxad.numpy as jnp
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     np.arange(6, dtype=np.int16).tofile(file.name)
    ...     print(jnp.fromfile(file.name, "int16", shape=(2, 2), offset=4))
    [[2 3]
     [4 5]]
    """
    kind = dt.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)  # Python's float: 64 bits
    wide = dt.canonicalize(kind, explicit=True)  # raises for a dtype that no array has
    if offset < 0:
        raise BadArgument(f"fromfile: offset is a number of bytes to skip, got {offset}")
    size = (shape,) if isinstance(shape, int) else shape
    wanted = count if size is None else math.prod(size)
    if sep:
        found = np.fromfile(file, kind, wanted, sep, offset)
    else:
        found = _read(file, kind, wanted, offset, size)
    if size is not None:
        if found.size != wanted:
            raise BadArgument(
                f"fromfile: {file} has {found.size} numbers of {kind} from byte {offset} on, the "
                f"shape {size} needs {wanted}"
            )
        if sep:
            found = found.reshape(size)
    return Concrete(found) if wide == kind else asarray(found, kind)


def _read(
    file: Any, dtype: np.dtype, count: int, offset: int, shape: tuple[int, ...] | None
) -> np.ndarray:
    """Up to `count` numbers, in memory that nobody else holds: so the array is made in its shape,
    if the file has enough, for a reshaped one is a view."""
    path = isinstance(file, str | os.PathLike)
    with open(file, "rb", buffering=0) if path else contextlib.nullcontext(file) as opened:
        opened.seek(offset, os.SEEK_SET if path else os.SEEK_CUR)
        start, end = opened.tell(), opened.seek(0, os.SEEK_END)
        opened.seek(start)
        there = max(end - start, 0) // dtype.itemsize
        held = there if count < 0 else min(count, there)
        memory = empty((held,) if shape is None or held != count else shape, dtype)
        flat = memory.reshape(-1)
        rest = flat.view(np.uint8).data
        while rest and (read := opened.readinto(rest)):  # a call reads 2 GiB at most
            rest = rest[read:]
    return flat[: held - -(-len(rest) // dtype.itemsize)].copy() if rest else memory
