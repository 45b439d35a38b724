"""Where one batch element of a matrix product lies: its grid coordinates and base addresses.

    place = Grid(kernel, f).at(batch)         # batch: position among the kernel's grid points
    a = place.address(buffer, index)          # index over grid axes only
"""

from __future__ import annotations

from fxad.backend.llvm.text import Function
from fxad.core.errors import CheckError
from fxad.ir.kernel import Axis, Buffer, Index, Kernel, Quot, Rem


class Grid:
    """Loads the kernel's buffer pointers at the start of a function."""

    def __init__(self, kernel: Kernel, f: Function) -> None:
        self.axes = kernel.grid
        self.f = f
        self.pointers: dict[Buffer, str] = {}
        for i, buffer in enumerate(kernel.buffers):
            self.pointers[buffer] = f.op(f"load ptr, ptr {f.offset('%args', 8 * i)}")

    def at(self, batch: str) -> Place:
        """Split the row-major position `batch` into coordinates."""
        f, rest = self.f, batch
        coordinates: dict[Axis, str] = {}
        for i, axis in reversed(list(enumerate(self.axes))):
            if axis.extent == 1:
                coordinates[axis] = "0"
            elif all(outer.extent == 1 for outer in self.axes[:i]):
                coordinates[axis] = rest
            else:
                coordinates[axis] = f.op(f"urem i64 {rest}, {axis.extent}")
                rest = f.op(f"udiv i64 {rest}, {axis.extent}")
        return Place(self, coordinates)


class Place:
    """One grid point."""

    def __init__(self, grid: Grid, coordinates: dict[Axis, str]) -> None:
        self.grid = grid
        self.coordinates = coordinates

    def address(self, buffer: Buffer, index: Index) -> str:
        f = self.grid.f
        return f.offset(self.grid.pointers[buffer], f.mul(self.index(index), buffer.dtype.itemsize))

    def index(self, index: Index) -> str:
        f = self.grid.f
        total: str = str(index.const)
        for atom, coefficient in index.terms:
            total = f.add(total, f.mul(self.atom(atom), coefficient))
        return total

    def atom(self, atom: object) -> str:
        match atom:
            case Axis():
                return self.coordinates[atom]
            case Quot() | Rem():
                return self._divided(atom)
        raise CheckError(f"a matrix operand cannot be indexed by {atom!r}")

    def _divided(self, atom: Quot | Rem) -> str:
        """Floor division or modulus; negative numbers are shifted up by a multiple first."""
        f, low = self.grid.f, atom.index.bounds()[0]
        steps = max(0, -(low // atom.divisor))
        value = f.add(self.index(atom.index), steps * atom.divisor)
        if isinstance(atom, Rem):
            return f.op(f"urem i64 {value}, {atom.divisor}")
        return f.add(f.op(f"udiv i64 {value}, {atom.divisor}"), -steps)
