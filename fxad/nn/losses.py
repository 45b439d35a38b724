"""Cross-entropy of a linear head, without the logits of all tokens in memory.

    loss = linear_cross_entropy(x, table, targets)     # [..., D], [V, D], [...] ints -> scalar

The op `linear_cross_entropy` (fxad/ops/fused/linear_cross_entropy.py) takes `CHUNK` rows at a time.
"""

from __future__ import annotations

from typing import Any

from fxad.api.indices import check_indices, checking_indices
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.precision import default_terms
from fxad.ir.program import OPS
from fxad.numpy import elementwise as el
from fxad.numpy.core import cast, value_of
from fxad.numpy.reductions import sum as total
from fxad.ops.fused.linear_cross_entropy import CHUNK
from fxad.trace.array import Array, Concrete

__all__ = ["CHUNK", "linear_cross_entropy"]


def linear_cross_entropy(
    x: Any,
    table: Any,
    targets: Any,
    *,
    ignore: int = -1,
    dtype: Any = None,
    skip_ignored: bool = False,
) -> Array:
    """The mean of -log softmax(x @ table.T)[target] over targets that are not `ignore`.

    x: [..., D]; table: [V, D] of the same dtype; targets: [...] integers. Softmax and loss are
    float32. Without any target that counts the loss is 0. dtype: what the factors of all products,
    backward ones too, are rounded to, such as bfloat16; sums and results are not. float32 ones
    follow `fxad.default_matmul_precision`.

    skip_ignored: rows of targets that are ignored cost no product, unless the table is trained: the
    others are gathered and taken 128 at a time, in a loop that ends with the last of them. For
    batches in which few targets count, as answers to long prompts.

    Raises ShapeError if the shapes do not go together, TypeMismatch if targets are not integers,
    and outside jit BadArgument for other negative ones (PyTorch's labels have -100).

    >>> x, table = jnp.eye(3), 9 * jnp.eye(3)
    >>> fxad.nn.linear_cross_entropy(x, table, jnp.array([0, 1, -1])).round(4)  # -1 does not count
    Array(0.0002, dtype=float32)
    """
    x, table, targets = (value_of(a, "linear_cross_entropy") for a in (x, table, targets))
    good = x.ndim >= 1 and table.ndim == 2 and x.shape == (*targets.shape, table.shape[1])
    if not good:
        raise ShapeError(
            f"linear_cross_entropy: x {x.shape}, table {table.shape} and targets {targets.shape} "
            "do not go together; expected [..., D], [V, D] and [...]"
        )
    if not dt.is_integer(targets.dtype):
        raise TypeMismatch(f"linear_cross_entropy: targets must be integers, not {targets.type}")
    rows = targets.size
    x = OPS["reshape"](x, shape=(rows, table.shape[1]))
    targets = OPS["reshape"](targets, shape=(rows,))
    counted = cast(el.not_equal(targets, ignore), dt.float32)
    weights = counted / el.maximum(total(counted), 1.0)
    factors = x.dtype if dtype is None else dt.canonicalize(dtype, explicit=True)
    if isinstance(targets, Concrete):
        strange = targets.data[(targets.data < 0) & (targets.data != ignore)]
        if strange.size:
            raise BadArgument(
                f"linear_cross_entropy: a target is {strange[0]}, and {ignore} is what does not "
                f"count; PyTorch's labels need ignore=-100"
            )
    if checking_indices():
        named = el.where(el.not_equal(targets, ignore), targets, 0)
        check_indices("linear_cross_entropy", named, table.shape, 0, wrap=False)
    targets = cast(targets, dt.int32)
    params = {"width": 1, "factors": factors}
    if default_terms() is not None and x.dtype == factors == dt.float32:
        params["terms"] = default_terms()
    if skip_ignored:
        params["skip"] = True
    (loss,) = OPS["linear_cross_entropy"](x, table, targets, weights, **params)
    return loss
