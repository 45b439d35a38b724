"""Cross-entropy of a linear head, without the logits of all tokens in memory.

    loss = linear_cross_entropy(x, table, targets)     # [..., D], [V, D], [...] ints -> scalar

Rows are taken `CHUNK` at a time. Where a gradient is asked for, a chunk's logits become their own
cotangent in place, and that the chunk's parts of the gradients, before the next chunk begins: no
logit is computed twice, and logits never exist whole.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fxad.api.custom_vjp import custom_vjp
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy import elementwise as el
from fxad.numpy.core import cast, value_of
from fxad.numpy.creation import arange, zeros, zeros_like
from fxad.numpy.joining import concatenate
from fxad.numpy.reductions import logsumexp
from fxad.numpy.reductions import sum as total
from fxad.trace.array import Array

CHUNK = 512  # rows: their logits cost less memory traffic than the table's gradient, once a chunk


def linear_cross_entropy(
    x: Any, table: Any, targets: Any, *, ignore: int = -1, dtype: Any = None
) -> Array:
    """The mean of -log softmax(x @ table.T)[target] over targets that are not `ignore`.

    x: [..., D]; table: [V, D] of the same dtype; targets: [...] integers. Softmax and loss are
    float32. Without any target that counts the loss is 0. dtype: what the factors of all products,
    backward ones too, are rounded to, such as bfloat16; sums and results are not.

    Raises ShapeError if the shapes do not go together, TypeMismatch if targets are not integers.
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
    narrow = x.dtype if dtype is None else dt.canonicalize(dtype, explicit=True)
    return _weighted(x, table, cast(targets, dt.int32), weights, narrow)


def _chunks(rows: int) -> list[slice]:
    """Equal parts of at most CHUNK rows."""
    count = max(1, -(-rows // CHUNK))
    each = -(-rows // count)
    return [slice(start, min(start + each, rows)) for start in range(0, rows, max(each, 1))]


def _product(a: Any, b: Any, axes: tuple[int, int], narrow: Any, dtype: Any) -> Any:
    """Sum over one axis of each, of factors rounded to `narrow`."""
    contract = ((axes[0],), (axes[1],))
    factors = cast(a, narrow), cast(b, narrow)
    return OPS["dot"](*factors, contract=contract, batch=((), ()), dtype=dtype)


def _rows(x: Any, table: Any, targets: Any, weights: Any, narrow: Any) -> tuple:
    """Logits of some rows, their log-sum-exp, where the targets are, and the weighted loss."""
    logits = cast(_product(x, table, (1, 1), narrow, x.dtype), dt.float32)
    lse = logsumexp(logits, axis=1, keepdims=True)
    hot = el.equal(arange(table.shape[0], dtype=dt.int32)[None, :], targets[:, None])
    # A sum over the row instead of a gather: the same pass over the logits that sums exponentials.
    picked = total(el.where(hot, logits, 0.0), axis=1)
    return logits, lse, hot, total((lse[:, 0] - picked) * weights)


@partial(custom_vjp, nondiff_argnums=(4,))
def _weighted(x: Any, table: Any, targets: Any, weights: Any, narrow: Any) -> Any:
    """The sum of the rows' losses times their weights."""
    parts = [_rows(x[c], table, targets[c], weights[c], narrow)[3] for c in _chunks(x.shape[0])]
    return sum(parts[1:], parts[0]) if parts else zeros((), dt.float32)


def _forward(
    x: Any, table: Any, targets: Any, weights: Any, narrow: Any
) -> tuple[Any, tuple[Any, Any]]:
    """The loss, and its gradients with respect to x and table."""
    loss, d_table = zeros((), dt.float32), None
    d_rows = []
    for c in _chunks(x.shape[0]):
        logits, lse, hot, part = _rows(x[c], table, targets[c], weights[c], narrow)
        d_logits = (el.exp(logits - lse) - cast(hot, dt.float32)) * weights[c][:, None]
        loss = loss + part
        d_rows.append(_product(d_logits, table, (1, 0), narrow, x.dtype))
        d_part = _product(d_logits, x[c], (0, 0), narrow, table.dtype)
        d_table = d_part if d_table is None else d_table + d_part
    if d_table is None:
        return loss, (zeros_like(x), zeros_like(table))
    return loss, (concatenate(d_rows, axis=0), d_table)


def _backward(narrow: Any, residuals: tuple[Any, Any], d_loss: Any) -> tuple[Any, ...]:
    d_x, d_table = residuals
    scaled = [cast(d_loss, d.dtype) * d for d in (d_x, d_table)]
    return (*scaled, None, None)


_weighted.defvjp(_forward, _backward)
