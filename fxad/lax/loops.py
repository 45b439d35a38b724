"""Loops over pytrees: scan, while_loop, fori_loop, map.

def step(total, x):
    return total + x, total
total, before = scan(step, 0.0, xs)

They compile once, whatever the number of iterations. Inside `fxad.disable_jit()` they run as
Python loops, so that prints and breakpoints see numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.checkpoint import checkpoint
from fxad.api.flat import flatten_args, kind_of, name_of
from fxad.api.vectorise import vmap
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, ConcretizationError, ShapeError, TypeMismatch
from fxad.core.promotion import entry_of, promote
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.lax.carry import (
    Body,
    check_callable,
    described,
    marked,
    scalar_weak,
    stage_body,
    with_forwarded,
)
from fxad.lax.checkpoints import (
    Binomial,
    BinomialLoop,
    Checkpoints,
    check_checkpoints,
    in_blocks,
)
from fxad.lax.tapes import LoopTape, on_tape
from fxad.lax.while_loops import in_python, plain_while, staged_while
from fxad.numpy.core import cast, stack_values, value_of
from fxad.numpy.manipulation import slice_axis
from fxad.trace.array import Array
from fxad.trace.tracer import type_of

# ---------------------------------------------------------------- scan


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    tape: LoopTape | None = None,
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` over the leading axis of xs, stacking the ys.

    init, xs, y: pytrees of arrays; xs may be None if `length` is given. The carry keeps its
    structure, shapes and dtypes. Returns (final carry, ys with a new leading axis). `unroll` and
    `_split_transpose` are accepted for ported code. tape: where reverse mode keeps what it reads of
    every trip, made by `lax.tape` (default: in memory).

    Raises TreeError or TypeMismatch naming the leaf if the carry changes, ShapeError if leading
    axes differ.

    >>> def account(balance, payment):
    ...     balance = 1.5 * balance + payment
    ...     return balance, balance
    >>> final, history = fxad.lax.scan(account, 0.0, jnp.array([1.0, 2.0, 4.0]))
    >>> history
    Array([1.  , 3.5 , 9.25], dtype=float32)
    >>> fxad.grad(lambda xs: fxad.lax.scan(account, 0.0, xs)[0])(jnp.ones(3))
    Array([2.25, 1.5 , 1.  ], dtype=float32)
    """
    check_callable("scan", f=f)
    _check_unroll(unroll, "scan")
    f = on_tape("scan", f, tape)
    carry, tree = flatten_args(init, "scan: init")
    slices, xs_tree = flatten_args(xs, "scan: xs")
    count = _length(slices, xs, length)

    def step(state: Any, values: list[Any]) -> tuple[Any, Any]:
        result = f(state, xs_tree.unflatten(values))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeMismatch(
                f"scan: {described(f)} must return (carry, y), not {kind_of(result)}"
            )
        return result[0], result[1]

    body = Body("scan", f, step, [tree, xs_tree], tree)
    outs, ys = scan_flat(body, carry, slices, count, reverse)
    assert body.ys_tree is not None
    return tree.unflatten(outs), body.ys_tree.unflatten(ys)


def scan_flat(
    body: Body, carry: Sequence[Array], xs: Sequence[Array], length: int, reverse: bool
) -> tuple[list[Array], list[Array]]:
    """`scan` on flat values."""
    if in_python() and length:
        return _scan_python(body, carry, xs, length, reverse)
    types = [ArrayType(x.dtype, x.shape[1:]) for x in xs]
    program, captured, carry = stage_body(body, carry, types, [scalar_weak(x) for x in xs])
    outs = OPS["scan"](
        *captured,
        *carry,
        *xs,
        body=program,
        consts=len(captured),
        carry=len(carry),
        length=length,
        reverse=reverse,
    )
    outs = marked(outs, body.weak)
    state = with_forwarded(program, len(captured), carry, outs[: len(carry)])
    return state, outs[len(carry) :]


def _scan_python(
    body: Body, carry: Sequence[Array], xs: Sequence[Array], length: int, reverse: bool
) -> tuple[list[Array], list[Array]]:
    rows: list[list[Any]] = []
    state = list(carry)
    for i in reversed(range(length)) if reverse else range(length):
        outs = body(*state, *(row_of(x, i) for x in xs))
        new = outs[: len(state)]
        if i != (length - 1 if reverse else 0):
            body.check([type_of(s) for s in state], [type_of(o) for o in new])
        state = new
        rows.append(outs[len(state) :])
    if reverse:
        rows.reverse()
    return state, [stack_values(column) for column in zip(*rows, strict=True)]


def row_of(x: Any, number: int) -> Any:
    """x[number] along the leading axis."""
    return OPS["reshape"](slice_axis(x, 0, number, number + 1), shape=type_of(x).shape[1:])


def _length(leaves: Sequence[Array], xs: Any, wanted: int | None) -> int:
    seen = []
    for (path, _), leaf in zip(pytree.leaves_with_path(xs), leaves, strict=True):
        if not leaf.shape:
            raise ShapeError(
                f"scan got value with no leading axis to scan over: xs{pytree.keystr(path)} is "
                f"{leaf.type}"
            )
        seen.append((pytree.keystr(path), leaf.shape[0]))
    sizes = {size for _, size in seen}
    if wanted is not None:
        length = _size_of(wanted, "The `length` argument to `scan`", "`int`")
        if sizes - {length}:
            raise ShapeError(
                f"scan got `length` argument of {length} which disagrees with leading axis sizes "
                f"{sorted(sizes)}"
            )
        return length
    if not sizes:
        raise BadArgument("scan: without xs, give length=")
    if len(sizes) > 1:
        shown = ", ".join(f"xs{path}: {size}" for path, size in seen)
        raise ShapeError(f"scan: lengths of the leading axes differ: {shown}")
    return sizes.pop()


def _size_of(number: Any, what: str, kinds: str = "`int`") -> int:
    try:
        return operator.index(number)
    except ConcretizationError as error:
        made = ConcretizationError(f"{what} expects a concrete {kinds} value. {error}")
        made.value = error.value
        raise made from None
    except TypeError:
        raise TypeMismatch(f"{what} must be an int, not {number!r}") from None


def _check_unroll(unroll: Any, what: str) -> None:
    number = _size_of(unroll, f"The `unroll` argument to `{what}`", "`int` or `bool`")
    if number < 0:
        raise BadArgument(
            f"{what}: `unroll` must be a bool or an int that is not negative: {number}"
        )


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply f to each slice along the leading axis of xs, one after another.

    xs and the result are pytrees of arrays. With batch_size that many slices are computed at a
    time, as by `fxad.vmap`; what is left over in one smaller batch.

    >>> matrices = jnp.stack([jnp.eye(2), 3 * jnp.eye(2), jnp.ones((2, 2))])
    >>> fxad.lax.map(jnp.linalg.det, matrices)  # one at a time: memory for one
    Array([1., 9., 0.], dtype=float32)
    >>> fxad.lax.map(jnp.trace, matrices, batch_size=2)
    Array([2., 6., 2.], dtype=float32)
    """
    if batch_size is not None:
        return _map_in_batches(f, xs, batch_size)

    def step(carry: tuple, x: Any) -> tuple[tuple, Any]:
        return carry, f(x)

    step.__name__ = name_of(f)
    return scan(step, (), xs)[1]


def _map_in_batches(f: Callable[[Any], Any], xs: Any, batch_size: int) -> Any:
    size = _size_of(batch_size, "map: batch_size")
    if size < 1:
        raise BadArgument(f"map: batch_size must be at least 1, not {size}")
    leaves, tree = flatten_args(xs, "map: xs")
    length = _length(leaves, xs, None)
    whole = length // size * size
    parts = []
    if whole:
        batches = [
            OPS["reshape"](slice_axis(x, 0, 0, whole), shape=(whole // size, size, *x.shape[1:]))
            for x in leaves
        ]
        found = map(vmap(f), tree.unflatten(batches))
        parts.append(
            pytree.map(lambda y: OPS["reshape"](y, shape=(whole, *type_of(y).shape[2:])), found)
        )
    if whole < length or not length:
        parts.append(vmap(f)(tree.unflatten([slice_axis(x, 0, whole, length) for x in leaves])))
    if len(parts) == 1:
        return parts[0]
    return pytree.map(lambda a, b: OPS["concatenate"](a, b, axis=0), *parts)


# ---------------------------------------------------------------- while


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    checkpoints: Checkpoints = None,
    tape: LoopTape | None = None,
) -> Any:
    """Run `val = body_fun(val)` while `cond_fun(val)` is true.

    val: a pytree of arrays that keeps its structure, shapes and dtypes; cond_fun gives one bool.
    checkpoints: what reverse mode keeps. None: every trip's residuals. An integer k: every k-th
    state, other trips are recomputed. `binomial(k)`: at most k states however many trips there
    are; trips are recomputed as the binomial schedule says (`fxad.lax.checkpoints`).
    tape: where that is kept, made by `lax.tape` (default: in memory; not with `binomial`).

    Raises TreeError or TypeMismatch naming the leaf if the value changes type, BadArgument for
    other checkpoints and tapes.

    >>> def halvings(x):
    ...     halve = lambda s: (s[0] / 2, s[1] + 1)
    ...     return fxad.lax.while_loop(lambda s: s[0] > 1, halve, (x, 0))[1]
    >>> halvings(100.0)
    Array(7, dtype=int32)
    >>> def newton(a):
    ...     above = lambda x: x * x - a > 1e-6
    ...     return fxad.lax.while_loop(above, lambda x: (x + a / x) / 2, a)
    >>> # through the loop: 1 / (2 sqrt(4))
    >>> print(f"{newton(4.0):.4f} {fxad.grad(newton)(4.0):.4f}")
    2.0000 0.2500
    """
    check_checkpoints("while_loop", checkpoints)
    kept = on_tape("while_loop", body_fun, tape)
    if checkpoints is None or in_python():
        return plain_while(cond_fun, kept, init_val)
    if not isinstance(checkpoints, Binomial):
        wrap = checkpoint if tape is None else tape.block
        return in_blocks(cond_fun, body_fun, init_val, int(checkpoints), wrap)
    if tape is not None:
        raise BadArgument("while_loop: the states of binomial(k) stay in memory; give k or a tape")
    loop = staged_while(cond_fun, body_fun, init_val)
    run = BinomialLoop(loop.cond, loop.body, checkpoints.states)
    return loop.finished(run(loop.cond_captured, loop.captured, loop.state))


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    checkpoints: Checkpoints = None,
    tape: LoopTape | None = None,
) -> Any:
    """Run `val = body_fun(i, val)` for i in range(lower, upper).

    Known bounds give a scan, traced bounds or `checkpoints` (see while_loop) a while loop; reverse
    mode works through both. i is weakly typed, an integer unless a bound is a float. `unroll` is
    accepted for ported code, where the bounds are known. tape: see while_loop.

    >>> fxad.lax.fori_loop(1, 6, lambda i, product: product * i, 1)
    Array(120, dtype=int32)
    >>> power = lambda x, n: fxad.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> fxad.jit(fxad.grad(power))(2.0, 5)  # n is traced: one program for all n
    Array(80., dtype=float32)
    """
    check_callable("fori_loop", body_fun=body_fun)
    check_checkpoints("fori_loop", checkpoints)
    kept = on_tape("fori_loop", body_fun, tape)
    _check_unroll(0 if unroll is None else unroll, "fori_loop")
    for bound, name in ((lower, "lower"), (upper, "upper")):
        type_ = value_of(bound, f"fori_loop: {name}").type
        if type_.shape or not (dt.is_integer(type_.dtype) or dt.is_float(type_.dtype)):
            raise TypeMismatch(f"fori_loop: {name} must be one integer or float, not {type_}")
    dtype = promote(entry_of(lower), entry_of(upper))[0]
    first, last = cast(value_of(lower), dtype), cast(value_of(upper), dtype)
    if checkpoints is not None or dt.is_float(dtype):
        return _fori_while(first, last, body_fun, init_val, checkpoints, tape)
    try:
        count = max(0, int(last) - int(first))
    except ConcretizationError:
        if unroll:
            raise BadArgument(
                "Can only use `unroll` in `fori_loop` if the loop bounds are statically known"
            ) from None
        return _fori_while(first, last, body_fun, init_val, None, tape)

    def step(state: tuple[Any, Any], _: Any) -> tuple[Any, Any]:
        i, value = state
        return (OPS["add"](i, 1), kept(_weakly(i), value)), ()

    leaves, tree = flatten_args((first, init_val), "fori_loop: initial value")
    body = Body("fori_loop", body_fun, step, tree.children(), tree)
    outs, _ = scan_flat(body, leaves, [], count, reverse=False)
    return tree.unflatten(outs)[1]


def _fori_while(
    first: Array,
    last: Array,
    body_fun: Callable[[Any, Any], Any],
    init: Any,
    checkpoints: Checkpoints,
    tape: LoopTape | None,
) -> Any:
    def test(state: tuple[Any, Any]) -> Any:
        return OPS["lt"](state[0], last)

    def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return OPS["add"](state[0], 1), body_fun(_weakly(state[0]), state[1])

    step.__name__ = name_of(body_fun)
    return while_loop(test, step, (first, init), checkpoints=checkpoints, tape=tape)[1]


def _weakly(counter: Any) -> Any:
    """The counter as a weakly typed value of its own."""
    value = OPS["copy"](counter)
    value.weak = True
    return value
