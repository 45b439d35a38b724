"""A contraction as a matrix product: its operands as matrices, rows and columns named by lanes.

problem = Problem.of(kernel)              # sizes and strides, lanes along the stored unit axis
problem.size                              # (rows, columns, k)
"""

from __future__ import annotations

import math

import numpy as np

from fxad.core.errors import CheckError
from fxad.core.record import replace, valued
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Contract,
    Index,
    Kernel,
    Load,
    Operand,
    Store,
    exprs_of,
    walk,
)
from fxad.ir.packed import BLOCK, PER_BLOCK


@valued
class Matrix:
    """An operand or result as a matrix of elements: `base` over the grid, two strides.

    outer: stride along m for the left operand and results, along n for the right operand.
    inner: stride along k for operands, along n for results.
    """

    buffer: Buffer
    base: Index
    outer: int
    inner: int


def matrix(buffer: Buffer, index: Index, outer: Axis, inner: Axis) -> Matrix | None:
    """The matrix that `index` walks over outer and inner; None where it is not affine in them."""
    strides = index.coefficient(outer), index.coefficient(inner)
    if strides[0] is None or strides[1] is None:
        return None
    base = Index(index.const, tuple((a, c) for a, c in index.terms if a not in (outer, inner)))
    return Matrix(buffer, base, strides[0], strides[1])


def _elements(operand: Operand) -> Buffer:
    """The operand's buffer, or that of a packed one's elements if they were in memory."""
    if operand.packed is None:
        return operand.buffer
    held = operand.buffer.size // PER_BLOCK[operand.packed.format] * BLOCK
    return Buffer(operand.buffer.name, operand.dtype, held, operand.buffer.role)


@valued
class Problem:
    """A contract kernel with its rows and columns named so that columns are the lanes.

    `rows` and `columns` are the stage's m and n, or n and m where that makes the first store
    contiguous along the lanes: products commute, so the bits are the same.
    packed: the operand that `b` stands for where that is packed: its Matrix is then of elements
    that are nowhere in memory, to be unpacked a panel at a time.
    """

    kernel: Kernel
    stage: Contract
    rows: Axis
    columns: Axis
    a: Matrix
    b: Matrix
    packed: Operand | None = None

    @staticmethod
    def of(kernel: Kernel) -> Problem:
        """Raises CheckError where an operand is not affine in the stage's axes, and where it is
        packed but the other one's axis has the lanes."""
        (stage,) = kernel.body
        if not isinstance(stage, Contract):
            raise CheckError(f"{kernel.name}: expected one Contract stage, got {type(stage)}")
        m, n = stage.m, stage.n
        left, right = stage.a, stage.b
        out = stage.stores[0].index
        if out.coefficient(m) == 1 and out.coefficient(n) != 1:
            m, n, left, right = n, m, right, left
        if left.packed:
            raise CheckError(f"{kernel.name}: a packed operand has the rows, not the lanes")
        a = matrix(left.buffer, left.index, m, stage.k)
        b = matrix(_elements(right), right.index, n, stage.k)
        if a is None or b is None:
            raise CheckError(f"{kernel.name}: an operand is not affine in its matrix axes")
        if n.extent == 1:
            b = replace(b, outer=1)  # the stride of an only column says nothing
        return Problem(kernel, stage, m, n, a, b, right if right.packed else None)

    @property
    def dtype(self) -> np.dtype:
        """The accumulator's dtype."""
        return self.stage.cell.dtype

    @property
    def size(self) -> tuple[int, int, int]:
        return self.rows.extent, self.columns.extent, self.stage.k.extent

    @property
    def flops(self) -> float:
        """Of one batch element."""
        return 2.0 * math.prod(self.size)

    @property
    def b_bytes(self) -> int:
        """Of one batch element of B."""
        return self.size[1] * self.size[2] * self.b.buffer.dtype.itemsize

    def plain_result(self) -> Matrix | None:
        """The first store's matrix, if partial sums can live in it.

        It must have the accumulator's dtype and a place of its own for every element, contiguous
        along the lanes; be unguarded; and be read by nothing.
        """
        store = self.stage.stores[0]
        found = matrix(store.buffer, store.index, self.rows, self.columns)
        others = [e.buffer for root in exprs_of(self.stage) for e in walk(root) if type(e) is Load]
        others += [other.buffer for other in self.stage.stores[1:]]
        rows, columns, _ = self.size
        if (
            found is None
            or store.guard is not None
            or store.buffer.dtype != self.dtype
            or store.buffer in others
            or (found.inner != 1 and columns > 1)
            or (abs(found.outer) < columns and rows > 1)
        ):
            return None
        return found

    def is_identity(self, store: Store) -> bool:
        """Does the store write the accumulated value as it is?"""
        return getattr(store.value, "cell", None) is self.stage.cell
