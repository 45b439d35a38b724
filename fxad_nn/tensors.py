"""Trees of arrays in safetensors files, checked against a spec while they are read.

write_tree("model.safetensors", params)
params = read_tree("model.safetensors", spec(config))

A file is eight bytes that give the length of a header, the header, and the bytes of every tensor
one after another (https://github.com/huggingface/safetensors). The format's own library is not
used: the header is JSON that somebody else wrote (`fxad.core.schema`), no byte is mapped into
memory unless that is asked for (a file that is cut while it is mapped ends the process), and what
is written is hashed meanwhile.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core.schema import (
    Limits,
    Mismatch,
    array,
    integer,
    mapping,
    one_of,
    parse,
    record,
    shown,
    string,
)
from fxad.errors import BadArgument
from fxad_nn.errors import CheckpointError, DamageWarning, did_you_mean
from fxad_nn.files import Content, Written, replacing, write
from fxad_nn.spec import from_named, named_leaves

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The format's names of the dtypes that are read; its float8 ones come with scales of their own."""

_PART = 1 << 16  # numbers looked at together
_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}
HEADER = Limits(size=16 << 20, values=2_000_000, depth=8)
TENSOR = record(
    {
        "dtype": one_of(*DTYPES),
        "shape": array(integer(0, 1 << 48), most=16),
        "data_offsets": array(integer(), least=2, most=2),
    }
)
HEADER_SCHEMA = record({}, {"__metadata__": mapping(string())}, others=TENSOR)


def write_tree(
    path: str | os.PathLike[str],
    tree: Any,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Written:
    """Write every leaf under its dotted name; raises OSError where the disk fails.

    Tensors of longer elements come first, each kind by name, so that all are aligned. metadata:
    what the header says of the file as a whole. A file that is there is an error, a
    FileExistsError; with `overwrite` the new one takes its place when it is whole.

    >>> import fxad_nn, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> _ = fxad_nn.write_tree(path, {"w": np.ones(2, np.float32), "step": 3})
    >>> fxad_nn.read_tree(path, {"w": np.zeros(2, np.float32), "step": 0})["w"].tolist()
    [1.0, 1.0]
    """
    if overwrite:
        with replacing(Path(path)) as temporary:
            return write_tree(temporary, tree, metadata)
    leaves = [(name, np.asarray(_typed(leaf))) for name, leaf in named_leaves(tree)]
    leaves.sort(key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, leaf in leaves:
        offsets = [position, position + leaf.nbytes]
        header[name] = {"dtype": _NAMES[str(leaf.dtype)], "shape": leaf.shape}
        header[name] |= {"data_offsets": offsets}
        position += leaf.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)  # tensors begin at a cache line, in a map of it too
    start = len(text).to_bytes(8, "little") + text
    contents: Iterator[Content] = itertools.chain([start], (_content(leaf) for _, leaf in leaves))
    try:
        return write(Path(path), contents)
    except FileExistsError:
        said = "there is such a file; overwrite=True replaces it"
        raise FileExistsError(errno.EEXIST, said, str(path)) from None


def _typed(leaf: Any) -> Any:
    """A leaf; a Python number as the array that it becomes in a computation."""
    return jnp.asarray(leaf) if isinstance(leaf, int | float) else leaf


def _content(leaf: np.ndarray) -> memoryview:
    """The bytes of an array in the order of its elements; a copy only of one that lies otherwise,
    such as the transpose of an expert, and that not before it is written."""
    return np.asarray(leaf, order="C").reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: what the header says of it, and where its bytes are."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    def read(self, start: int = 0, stop: int | None = None) -> Any:
        """The array, or its rows from start to stop, in memory of its own; CheckpointError where
        the file cannot give its bytes any more."""
        shape, offset = self.shape, self.offset
        if shape and (start, stop) != (0, None):
            first, last, _ = slice(start, stop).indices(shape[0])
            row = self.size // max(shape[0], 1)
            shape, offset = (last - first, *shape[1:]), offset + first * row
        try:
            return jnp.fromfile(self.path, _dtype(self.dtype), offset=offset, shape=shape)
        except BadArgument:
            cut = f"{self.path} was cut while it was read: {shown(self.name)}"
            raise CheckpointError(cut) from None
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from error

    def within(self, mapped: np.ndarray) -> np.ndarray:
        """The array as a part of its file, which is mapped as bytes; a copy of one that does not
        begin at a multiple of its elements' size, which compiled code would copy at every call."""
        dtype, content = _dtype(self.dtype), mapped[self.offset : self.offset + self.size]
        if len(content) != self.size:
            raise CheckpointError(f"{self.path} was cut while it was read: {shown(self.name)}")
        if self.offset % dtype.itemsize:
            content = content.copy()
        return content.view(dtype).reshape(self.shape)


def map_file(path: Path) -> np.ndarray:
    """The bytes of a file, mapped read-only; CheckpointError where that fails.

    A file that is cut while it is mapped ends the process when it is read there.
    """
    try:
        return np.memmap(path, np.uint8, "r").view(np.ndarray)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be mapped: {error}") from error


def stored(paths: list[Path]) -> Iterator[Stored]:
    """The tensors in the files, in the order of their bytes.

    Raises CheckpointError naming the file where one is missing or is no safetensors file of known
    dtypes whose tensors fill it without gaps.
    """
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        size, content = _header(path)
        try:
            header = parse(content, HEADER_SCHEMA, "its header", CheckpointError, HEADER)
            header.pop("__metadata__", None)
            tensors = _laid_out(path, header, 8 + len(content), size)
        except (CheckpointError, Mismatch) as error:
            raise CheckpointError(_no_file(path, size, str(error))) from error
        yield from tensors


def _header(path: Path) -> tuple[int, bytes]:
    """The size of a file and its header as bytes."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(HEADER.size, size - 8):
                raise CheckpointError(_no_file(path, size, f"a header of {length} bytes"))
            return size, file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _laid_out(path: Path, header: dict[str, Any], start: int, end: int) -> list[Stored]:
    """The tensors of a header in the order of their bytes, which fill the file from start to end.

    Raises Mismatch where they do not, so that no byte has two meanings and none has no meaning.
    """
    tensors, position = [], start
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        size = math.prod(shape) * _dtype(dtype).itemsize
        if start + begin != position or after - begin != size:
            raise Mismatch(
                f"{shown(name)} lies at {begin} to {after}, not at {position - start} to "
                f"{position - start + size}"
            )
        tensors.append(Stored(path, name, dtype, shape, position, size))
        position += size
    if position != end:
        raise Mismatch(f"tensors up to byte {position}")
    return tensors


def _no_file(path: Path, size: int, found: str) -> str:
    return f"{path} ({size} bytes) is truncated or no safetensors file: {found}"


def _dtype(name: str) -> np.dtype:
    return np.dtype(jnp.bfloat16 if name == "bfloat16" else name)


def read_tree(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], spec: Any) -> Any:
    """The arrays of a tree like `spec` from one file or several, every name, shape and dtype
    checked. Where `spec` holds a Python number there is an array of its default dtype.

    Raises CheckpointError for a name that is missing, too many or of another shape or dtype.

    >>> import fxad_nn, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> _ = fxad_nn.write_tree(path, {"w": np.ones(2, np.float32)})
    >>> fxad_nn.read_tree(path, {"w": np.zeros(3, np.float32)})
    Traceback (most recent call last):
        ...
    fxad_nn.errors.CheckpointError: ...state.safetensors: w...
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else paths
    wanted = {name: _typed(leaf) for name, leaf in named_leaves(spec)}
    where = ", ".join(map(str, files))
    found: dict[str, Any] = {}
    for tensor in stored([Path(file) for file in files]):
        name = tensor.name
        if name not in wanted:
            hint = did_you_mean(name, wanted)
            raise CheckpointError(f"{where}: {shown(name)} is no parameter of this model{hint}")
        if name in found:
            raise CheckpointError(f"{where}: {name} is there twice")
        leaf = wanted[name]
        check_shape(tensor.shape, leaf.shape, f"{where}: {name}")
        if tensor.dtype != leaf.dtype:
            raise CheckpointError(
                f"{where}: {name} is {tensor.dtype}, the model needs {leaf.dtype}"
            )
        found[name] = tensor.read()
    require_all(found, wanted, where)
    warn_if_not_finite(found, where)
    return from_named(spec, found)


def check_shape(shape: tuple[int, ...], wanted: tuple[int, ...], where: str) -> None:
    """CheckpointError where a shape is not the wanted one."""
    if shape != wanted:
        raise CheckpointError(f"{where} has shape {shape}, the model needs {wanted}")


def require_all(found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """CheckpointError naming what is missing."""
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise CheckpointError(f"{where}: {len(missing)} parameters are missing: {_listed(missing)}")


def warn_if_not_finite(found: dict[str, Any], where: str) -> None:
    """A DamageWarning that names the leaves that hold NaN or infinity, if any do."""
    names = [name for name, leaf in found.items() if not _is_finite(np.asarray(leaf))]
    if names:
        warnings.warn(
            f"{where}: {len(names)} of {len(found)} leaves hold NaN or infinity: "
            f"{_listed(sorted(names))}; a model with them computes nothing but NaN",
            DamageWarning,
            stacklevel=2,
        )


def _is_finite(leaf: np.ndarray) -> bool:
    """Whether every number is finite: of floats, whether no exponent is all ones. That is seen by
    integers, for which NumPy has vector instructions whatever the format is, a part that stays in
    the caches at a time."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return bool(np.isfinite(leaf).all())
    info = jnp.finfo(leaf.dtype)
    bits = leaf.reshape(-1).view(f"u{leaf.itemsize}")
    ones = bits.dtype.type(((1 << info.nexp) - 1) << info.nmant)
    parts = range(0, len(bits), _PART)
    return all(((bits[i : i + _PART] & ones) != ones).all() for i in parts)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
