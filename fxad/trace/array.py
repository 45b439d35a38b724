"""Array: what users hold. Concrete arrays wrap NumPy memory; tracers stand for values to come.

`fxad.numpy` installs the operators and methods on `Array`, so both kinds share them;
`fxad.trace.array_methods` declares them for type checkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.aligned import copied
from fxad.core.dtypes import key
from fxad.core.errors import BadArgument, DonatedError, TypeMismatch
from fxad.core.semantics import semantics
from fxad.core.types import ArrayType
from fxad.core.views import html_of
from fxad.trace.torch_methods import INSTEAD, TorchMethod

if TYPE_CHECKING:
    from fxad.trace.array_methods import ArrayMethods
else:
    ArrayMethods = object


KEY = ArrayType(key, ()).dtype  # the object that all types of keys have


def words_of_keys(keys: np.ndarray) -> np.ndarray:
    """The words u32[..., 2] of an array of typed keys, in the same memory."""
    return keys[..., None].view(np.uint64).view(np.uint32)


class Array(ArrayMethods):
    """An immutable n-dimensional array: concrete, or traced (`fxad.trace.tracer.Tracer`).

    NumPy's binary operators defer to ours (`__array_priority__`, no `__array_ufunc__`).

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> x.shape, x.dtype, x.T[0].tolist()
    ((2, 2), dtype('int32'), [1, 3])
    >>> isinstance(x, fxad.Array)
    True
    """

    __slots__ = ("__weakref__", "type", "weak")
    __array_priority__ = 1000
    __hash__ = None  # arrays compare element by element
    type: ArrayType
    weak: bool

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in INSTEAD]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.type.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the array stands for Python numbers and adapts to other dtypes."""
        return self.weak

    def item(self, *args: int) -> Any:
        """One element as a Python number."""
        return type(self).item(self, *args)  # each kind of Array has its own

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeMismatch(
            "arrays are immutable: write x = x.at[index].set(value) instead of x[index] = value "
            "(and .add, .multiply, .min, .max for +=, *= and the like)"
        )

    _repr_html_ = html_of("array")

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        return self

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a 0-d array")
        return self.type.shape[0]


for _name in INSTEAD:
    setattr(Array, _name, TorchMethod(_name))


class Concrete(Array):
    """An Array whose elements exist: a NumPy array that nobody else writes to."""

    __slots__ = ("_data",)

    def __init__(self, data: np.ndarray, weak: bool = False) -> None:
        self._data: np.ndarray = data
        self.type = ArrayType(data.dtype, data.shape)
        self.weak = weak

    @classmethod
    def of(cls, data: np.ndarray, type: ArrayType, weak: bool) -> Concrete:
        """An Array of memory whose type is known already (nothing is checked)."""
        made = cls.__new__(cls)
        made._data = data
        made.type = type
        made.weak = weak
        return made

    @classmethod
    def of_all(
        cls, arrays: Sequence[np.ndarray], types: Sequence[ArrayType], weak: Sequence[bool]
    ) -> list[Concrete]:
        """`of` of several, at half the cost of each."""
        new = object.__new__
        everything = []
        for data, type, is_weak in zip(arrays, types, weak):  # noqa: B905 - strict costs 0.1 us
            made = new(cls)
            made._data = data
            made.type = type
            made.weak = is_weak
            everything.append(made)
        return everything

    @property
    def data(self) -> np.ndarray:
        """The memory itself (treat as read-only). Raises DonatedError after donation."""
        try:
            return self._data
        except AttributeError:
            raise DonatedError(
                f"this array {self.type} was donated to a compiled function and its memory is "
                "reused; keep using the function's result, or drop donate_argnums"
            ) from None

    def take_memory(self) -> np.ndarray:
        """Give up the memory (donation): any later use raises."""
        data = self.data
        del self._data
        return data

    def __deepcopy__(self, memo: Any) -> Concrete:
        return Concrete.of(self.data.copy(), self.type, self.weak)

    def is_deleted(self) -> bool:
        """Whether the memory has been given away."""
        return not hasattr(self, "_data")

    def delete(self) -> None:
        """Give the memory back now: any later use raises DonatedError."""
        if not self.is_deleted():
            self.take_memory()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.type.dtype is KEY:
            raise TypeMismatch(
                f"typed keys, {self.type}, have no NumPy form; take jax.random.key_data(keys)"
            )
        view = self.data.view()
        view.flags.writeable = False
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise BadArgument(f"{self.type} cannot be seen as {np.dtype(dtype)} without a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    def __bool__(self) -> bool:
        if self.type.dtype is KEY:
            raise TypeMismatch(f"typed random keys, {self.type}, are neither true nor false")
        return bool(self.data)

    def __int__(self) -> int:
        return int(self.data)

    def __float__(self) -> float:
        return float(self.data)

    def __complex__(self) -> complex:
        return complex(self.data)

    def __index__(self) -> int:
        if self.type.dtype.kind not in "iu" or self.type.shape:
            raise TypeError(f"only a 0-d integer array can be an index, not {self.type}")
        return int(self.data)

    def item(self, *args: int) -> Any:
        """One element as a Python number."""
        return self.data.item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.data.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The elements' bytes, in C order or in Fortran's ("F")."""
        return self.data.tobytes(order)  # type: ignore[arg-type]

    def block_until_ready(self) -> Concrete:
        """Does nothing: results are ready when a call returns. Kept for ported code."""
        return self

    def __format__(self, spec: str) -> str:
        if self.type.shape or self.type.dtype is KEY:
            if spec:
                raise TypeError(
                    f"format {spec!r} is for one number, not {self.type}; use numpy.array2string"
                )
            return str(self)
        whole = not spec and semantics.numbers_format_as_arrays
        return str(self) if whole else format(self.data.item(), spec)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(<donated or deleted>, {self.type})"
        if self.type.dtype is KEY:
            words = np.array2string(words_of_keys(self._data))
            return f"Array({self.type.shape}, dtype=key<fry>) overlaying:\n{words}"
        text = np.array2string(self._data, separator=", ", prefix="Array(")
        if not self._data.size:
            text = f"[], shape={self.shape}"
        weak = ", weak_type=True" if self.weak and semantics.repr_shows_weak_types else ""
        return f"Array({text}, dtype={self.type.dtype.name}{weak})"

    def __str__(self) -> str:
        return repr(self) if self.type.dtype is KEY else str(self.data)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.data, self.weak))


class Borrowed(Concrete):
    """An Array of memory the caller may still write to: a NumPy argument while it is used.

    Its memory must not outlive the call: what is kept is copied (`kept`).
    """

    __slots__ = ()


for _kind in (Concrete, Borrowed):  # errors, Python's own too, say what users know
    _kind.__name__ = _kind.__qualname__ = "Array"


def kept(value: Any) -> Any:
    """A value that may be stored: borrowed memory is copied."""
    if isinstance(value, Borrowed):
        return Concrete(copied(value.data), value.weak)
    return copied(value) if isinstance(value, np.ndarray) else value


def _rebuild(data: np.ndarray, weak: bool) -> Concrete:
    return Concrete(data, weak)


def as_numpy(value: Any) -> np.ndarray:
    """The NumPy memory of a concrete value."""
    return value.data if isinstance(value, Concrete) else np.asarray(value)
