"""What can be done with an Array: signatures and one line each, for type checkers and editors.

    def normalized(x: Array) -> Array:
        return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)

`fxad.numpy.methods` gives `Array` these operators, methods and properties at run time; this class
is its base for type checkers alone, since `fxad.trace` lies below `fxad.numpy`. The functions of
the same name in `fxad.numpy` say more about each. `other` is an Array, a NumPy array or a number.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fxad.trace.array import Array


class ArrayMethods:
    """Declarations only: nothing here runs."""

    __slots__ = ()

    # ------------------------------------------------------------ operators

    def __add__(self, other: Any) -> Array: ...
    def __radd__(self, other: Any) -> Array: ...
    def __sub__(self, other: Any) -> Array: ...
    def __rsub__(self, other: Any) -> Array: ...
    def __mul__(self, other: Any) -> Array: ...
    def __rmul__(self, other: Any) -> Array: ...
    def __truediv__(self, other: Any) -> Array: ...
    def __rtruediv__(self, other: Any) -> Array: ...
    def __floordiv__(self, other: Any) -> Array: ...
    def __rfloordiv__(self, other: Any) -> Array: ...
    def __mod__(self, other: Any) -> Array: ...
    def __rmod__(self, other: Any) -> Array: ...
    def __divmod__(self, other: Any) -> tuple[Array, Array]: ...
    def __rdivmod__(self, other: Any) -> tuple[Array, Array]: ...
    def __pow__(self, other: Any) -> Array: ...
    def __rpow__(self, other: Any) -> Array: ...
    def __matmul__(self, other: Any) -> Array: ...
    def __rmatmul__(self, other: Any) -> Array: ...
    def __and__(self, other: Any) -> Array: ...
    def __rand__(self, other: Any) -> Array: ...
    def __or__(self, other: Any) -> Array: ...
    def __ror__(self, other: Any) -> Array: ...
    def __xor__(self, other: Any) -> Array: ...
    def __rxor__(self, other: Any) -> Array: ...
    def __lshift__(self, other: Any) -> Array: ...
    def __rlshift__(self, other: Any) -> Array: ...
    def __rshift__(self, other: Any) -> Array: ...
    def __rrshift__(self, other: Any) -> Array: ...

    def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
    def __lt__(self, other: Any) -> Array: ...
    def __le__(self, other: Any) -> Array: ...
    def __gt__(self, other: Any) -> Array: ...
    def __ge__(self, other: Any) -> Array: ...

    def __neg__(self) -> Array: ...
    def __pos__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __invert__(self) -> Array: ...

    def __getitem__(self, index: Any) -> Array: ...
    def __iter__(self) -> Iterator[Array]: ...
    def __contains__(self, item: Any) -> bool: ...

    __hash__ = None  # type: ignore[assignment]  # they compare element by element

    def __round__(self, decimals: int | None = None) -> Array: ...

    # ------------------------------------------------------------ shape

    @property
    def T(self) -> Array:
        """Axes in reverse order."""

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""

    @property
    def flat(self) -> Array:
        """One axis with all elements."""

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        """The elements under another shape; one size may be -1."""

    def transpose(self, *axes: Any) -> Array:
        """Axes permuted (reversed by default)."""

    def ravel(self, order: str = "C") -> Array:
        """One axis with all elements."""

    def flatten(self, order: str = "C") -> Array:
        """One axis with all elements."""

    def squeeze(self, axis: Any = None) -> Array:
        """Axes of length 1 removed."""

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """Two axes exchanged."""

    def repeat(
        self, repeats: Any, axis: int | None = None, total_repeat_length: int | None = None
    ) -> Array:
        """Each element repeated; counts must be concrete numbers."""

    # ------------------------------------------------------------ elements

    @property
    def at(self) -> Any:
        """x.at[index].set(value), .add, .multiply, .min, .max ...: a changed copy."""

    @property
    def real(self) -> Array:
        """Real part."""

    @property
    def imag(self) -> Array:
        """Imaginary part."""

    def conj(self) -> Array:
        """Complex conjugate."""

    def conjugate(self) -> Array:
        """Complex conjugate."""

    def astype(self, dtype: Any, copy: bool = False) -> Array:
        """Converted to a dtype."""

    def view(self, dtype: Any = None) -> Array:
        """The same bits read as another dtype; the last axis gets as many more or fewer elements
        as these take fewer or more bytes."""

    def byteswap(self) -> Array:
        """Elements with their bytes in reverse order, those of a complex number part by part."""

    def copy(self) -> Array:
        """The same values."""

    def round(self, decimals: int = 0) -> Array:
        """Rounded half to even."""

    def clip(
        self, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None
    ) -> Array:
        """Elements limited to [min, max]; either bound may be None. (a_min, a_max: old names.)"""

    def take(
        self,
        indices: Any,
        axis: int | None = None,
        out: None = None,
        mode: str | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
        fill_value: Any = None,
    ) -> Array:
        """Elements at positions along an axis; mode "fill", "clip" or "wrap"."""

    def nonzero(self, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
        """Positions of non-zero elements; traced input needs a fixed `size`."""

    def sort(
        self,
        axis: int | None = -1,
        *,
        descending: bool = False,
        stable: bool = True,
        kind: None = None,
        order: None = None,
    ) -> Array:
        """Ascending order along an axis, NaN last."""

    def argsort(
        self,
        axis: int | None = -1,
        *,
        descending: bool = False,
        stable: bool = True,
        kind: None = None,
        order: None = None,
        dtype: Any = None,
    ) -> Array:
        """Positions that sort along an axis; equal elements keep their order."""

    def argpartition(self, kth: int, axis: int = -1) -> Array:
        """Positions of a partition."""

    def choose(self, choices: Any, out: None = None, mode: str = "raise") -> Array:
        """choices[self] element by element."""

    def compress(self, condition: Any, axis: int | None = None) -> Array:
        """The parts along an axis for which a vector of bools is true."""

    def searchsorted(
        self, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
    ) -> Array:
        """Where elements of v would go in this sorted vector."""

    # ------------------------------------------------------------ reductions

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
        promote_integers: bool = True,
    ) -> Array:
        """Sum over axes (all by default)."""

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
        promote_integers: bool = True,
    ) -> Array:
        """Product over axes."""

    def mean(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Any = None,
    ) -> Array:
        """Arithmetic mean; integers give floats."""

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = None,
        correction: float | None = None,
        mean: Any = None,
    ) -> Array:
        """Variance; the divisor is the count minus ddof."""

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = None,
        correction: float | None = None,
        mean: Any = None,
    ) -> Array:
        """Standard deviation; its gradient at 0 is 0."""

    def max(
        self,
        axis: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """Largest element; NaN wins. At ties the gradient is split evenly."""

    def min(
        self,
        axis: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """Smallest element; NaN wins. At ties the gradient is split evenly."""

    def ptp(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
        """max - min."""

    def any(
        self, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
    ) -> Array:
        """Whether some element is non-zero."""

    def all(
        self, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
    ) -> Array:
        """Whether every element is non-zero."""

    def argmax(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
        """Position of the first largest element (of the first NaN, if any)."""

    def argmin(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
        """Position of the first smallest element (of the first NaN, if any)."""

    def cumsum(self, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
        """Running sum."""

    def cumprod(self, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
        """Running product."""

    def dot(self, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
        """NumPy's dot: sum over the last axis and the second to last of b."""

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
    ) -> Array:
        """Sum of the diagonal; small integers add up in the default integer."""

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """Elements of the diagonal."""

    # ------------------------------------------------------------ array API

    @property
    def device(self) -> Any:
        """Where the elements are: the only device."""

    @property
    def aval(self) -> Any:
        """Shape, dtype and weakness as a ShapedArray."""

    @property
    def sharding(self) -> Any:
        """Where the elements are, as a sharding of the one device."""

    @property
    def committed(self) -> bool:
        """Whether the array was put on a device on purpose, by `device_put`."""

    @property
    def addressable_shards(self) -> list[Any]:
        """The array's parts by device: one, the whole."""

    @property
    def global_shards(self) -> list[Any]:
        """The array's parts by device: one, the whole."""

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has all elements: always."""

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has all elements: always."""

    def devices(self) -> set[Any]:
        """The devices that hold the elements: a set of the one there is."""

    def is_ready(self) -> bool:
        """Whether the elements are computed: always."""

    def addressable_data(self, index: int) -> Array:
        """The part on a device of this process: the array."""

    def on_device_size_in_bytes(self) -> int:
        """Bytes of the elements."""

    def copy_to_host_async(self) -> None:
        """Does nothing: the elements are in the host's memory."""

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array itself: there is one device."""

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """`fxad.numpy`."""

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule; consumers older than DLPack 1.0 get a copy."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the device: (1, 0), the CPU."""

    # ------------------------------------------------------------ to Python and NumPy
    # Concrete arrays answer; traced ones raise ConcretizationError.

    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...

    def item(self, *args: int) -> Any:
        """One element as a Python number."""

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""

    def tobytes(self, order: str = "C") -> bytes:
        """The elements' bytes, in C order or in Fortran's ("F")."""
