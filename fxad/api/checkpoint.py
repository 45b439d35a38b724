"""`checkpoint`: recompute in the backward pass instead of keeping intermediate values.

    block = fxad.checkpoint(block, policy=fxad.checkpoint_policies.dots_saveable)
    loss = lambda w, x: block(w, block(w, x)).sum()

Policies say what is kept all the same: by the op that made a value, or by a name it was given
with `checkpoint_name`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from fxad.api.flat import FlatFunction, called_by_python, flatten_args, name_of
from fxad.api.naming import wraps
from fxad.core.errors import BadArgument, ConcretizationError
from fxad.core.sizes import parse_bytes
from fxad.ir.program import OPS, Program, Symbol
from fxad.ops.programs.policies import Budget, Rows, changed, ways_within
from fxad.trace.tracer import bind, stage, staging, tracing, type_of


class Policy:
    """What a checkpoint keeps of its values, as rows (see `fxad.ops.programs.policies`)."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"checkpoint_policies.{self.name}"


def _names(names: Iterable[Any], what: str) -> tuple[str, ...]:
    listed = tuple(names)
    if wrong := [n for n in listed if not isinstance(n, str)]:
        raise BadArgument(f"{what}: names are strings, not {type(wrong[0]).__name__}")
    return listed


class _Policies:
    """The policies of `checkpoint`, under JAX's names. Values no policy keeps are recomputed."""

    nothing_saveable = Policy("nothing_saveable", ())
    everything_saveable = Policy("everything_saveable", (("keep", "everything"),))
    dots_saveable = Policy("dots_saveable", (("keep", "dots"),))
    dots_with_no_batch_dims_saveable = Policy(
        "dots_with_no_batch_dims_saveable", (("keep", "plain_dots"),)
    )
    checkpoint_dots = dots = dots_saveable
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Keep the values marked by `checkpoint_name` with one of these names."""
        listed = _names(names, "save_only_these_names")
        return Policy(f"save_only_these_names{listed}", (("keep", "names", *listed),))

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Keep the values marked with a name that is none of these."""
        listed = _names(names, "save_any_names_but_these")
        return Policy(f"save_any_names_but_these{listed}", (("keep", "other_names", *listed),))

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        """Keep every value but those marked with one of these names."""
        listed = _names(names, "save_anything_except_these_names")
        rows = (("keep", "unless_names", *listed),)
        return Policy(f"save_anything_except_these_names{listed}", rows)

    @staticmethod
    def save_from_both_policies(first: Any, second: Any) -> Policy:
        """Keep what either policy keeps; where both do, as the first says."""
        one, two = _policy(first), _policy(second)
        return Policy(f"save_from_both_policies({one!r}, {two!r})", one.rows + two.rows)

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str],
        offload_src: str = "device",
        offload_dst: str = "host",
    ) -> Policy:
        """Keep values with some names in memory and values with others in `offload_dst`: "host"
        (also as JAX's "pinned_host") or "disk". `offload_src` is there for code ported from JAX."""
        kept = _names(names_which_can_be_saved, "names_which_can_be_saved")
        away = _names(names_which_can_be_offloaded, "names_which_can_be_offloaded")
        if both := sorted({*kept} & {*away}):
            raise BadArgument(f"save_and_offload_only_these_names: {both[0]!r} is in both lists")
        rows = (("keep", "names", *kept), (_place(offload_dst), "names", *away))
        return Policy(f"save_and_offload_only_these_names{(kept, away, offload_dst)}", rows)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
        """Keep results of matrix products without batch dimensions in `offload_dst`."""
        rows = ((_place(offload_dst), "plain_dots"),)
        return Policy(f"offload_dot_with_no_batch_dims({offload_dst!r})", rows)

    def __getattr__(self, name: str) -> Any:
        raise UnknownPolicy(f"unknown checkpoint policy {name!r}; known: {', '.join(_KNOWN)}")


class UnknownPolicy(BadArgument, AttributeError):
    """A name that is no policy's."""


_KNOWN = {name: p for name, p in vars(_Policies).items() if isinstance(p, Policy)}
checkpoint_policies = _Policies()


def _place(given: str) -> str:
    where = {"pinned_host": "host", "unpinned_host": "host"}.get(given, given)
    if where not in ("host", "disk"):
        raise BadArgument(f"values can be offloaded to 'host' or 'disk', not {given!r}")
    return where


def _policy(given: Any) -> Policy:
    """A Policy, the name of one, or a function (op, *operand types, **params) -> bool."""
    if isinstance(given, Policy):
        return given
    if callable(given):
        symbol = Symbol(name_of(given), given)
        return Policy(symbol.name, (("keep", "asked", symbol),))
    if isinstance(given, str) and given in _KNOWN:
        return _KNOWN[given]
    raise BadArgument(
        f"checkpoint: unknown policy {given!r}; known: {', '.join(_KNOWN)}, the functions of "
        "fxad.checkpoint_policies, and functions (op, *operand types, **params) -> bool"
    )


def checkpoint_name(x: Any, name: str) -> Any:
    """The same values, marked with a name that policies of `checkpoint` can choose them by.

    >>> layer = lambda x: fxad.checkpoint_name(jnp.exp(x), "hidden") ** 2
    >>> policy = fxad.checkpoint_policies.save_only_these_names("hidden")
    >>> fxad.grad(fxad.checkpoint(layer, policy=policy))(0.0)
    Array(2., dtype=float32)
    """
    if not isinstance(name, str):
        raise BadArgument(f"checkpoint_name: a name is a string, not {type(name).__name__}")
    leaves, tree = flatten_args(x, "checkpoint_name")
    return tree.unflatten([bind(OPS["name"], leaf, name=name) for leaf in leaves])


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    policy: Any = None,
    offload: str | None = None,
    compress: str | None = None,
    budget: int | str | None = None,
    static_argnums: int | Sequence[int] = (),
    prevent_cse: bool = True,
) -> Any:
    """Recompute the function's values in the backward pass instead of keeping them.

    policy: what to keep all the same, one of fxad.checkpoint_policies, its name, or a function
    (op, *operand types, **params) -> bool like JAX's, where str(op) is the name that `make_ir`
    prints (default: nothing, or everything if one of the following is given). offload: "disk" or
    "host" offloads what is kept until the backward pass needs it, to a file written and read
    ahead in the background (see `config.offload_memory`, `config.offload_directory`) or to memory;
    this takes effect under `jit`. compress: "bf16" keeps f32 and f64 values rounded to bfloat16.
    budget: bytes (or "2GiB") of memory that kept values of one call may take under `jit`; of the
    others each is recomputed, or goes where `offload` says (default: "disk"; "none" for
    nowhere), or is rounded if `compress` allows it: whichever takes the least time by the planner's
    cost model (in loops and branches too, trip by trip). prevent_cse is there for code ported from
    JAX: recomputation is never merged with the forward pass.
    Gradients are the same bits as without checkpoint under `jit`, unless `compress` is given.

    Outside `jit` a function that looks at values (`if x > 0:`) is run as if it had no checkpoint.
    Raises BadArgument for options that do not exist, and under `jit` SizeError, which names the
    values, for a budget that cannot be kept.

    >>> block = lambda x: jnp.sin(jnp.sin(x))
    >>> fxad.debug.print_saved_residuals(block, 1.0)
    f32[] output of cos from ...
    f32[] output of cos from ...
    >>> fxad.debug.print_saved_residuals(fxad.checkpoint(block), 1.0)
    f32[] from the argument x
    >>> f"{fxad.grad(fxad.checkpoint(block))(1.0):.4f}"
    '0.3600'
    """
    rows = _rows(policy, offload, compress, budget)
    numbers = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)
    wrap = functools.partial(keeping, rows=rows, static=numbers)
    return wrap if fun is None else wrap(fun)


def keeping(
    function: Callable[..., Any], rows: Rows, static: Set[int] = frozenset()
) -> Callable[..., Any]:
    """The function as a checkpoint that keeps what the rows of a policy say."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not tracing():  # nobody will ask for a derivative of this call
            call, dynamic = _without_statics(function, args, static)
            return called_by_python(call, dynamic, kwargs, name_of(function))
        return _recorded(function, args, kwargs, rows, static)

    return wrapped


def _rows(policy: Any, offload: str | None, compress: str | None, budget: int | str | None) -> Rows:
    """What to keep, and how, as the options say."""
    selective = compress or offload or budget is not None
    default = "everything_saveable" if selective else "nothing_saveable"
    rows = _policy(default if policy is None else policy).rows
    if budget is None:
        return changed(rows, offload, compress)
    ways = ways_within("checkpoint", offload, compress)
    return (*rows, Budget(parse_bytes(budget, "checkpoint: budget"), ways).row)


def _without_statics(
    function: Callable[..., Any], args: tuple, static: Set[int]
) -> tuple[Callable[..., Any], tuple]:
    """The function of its other arguments, and those. Raises BadArgument for numbers beyond."""
    count = len(args)
    beyond = [number for number in sorted(static) if not -count <= number < count]
    if beyond:
        raise BadArgument(
            f"checkpoint({name_of(function)}): static_argnums has {beyond[0]}, and the call "
            f"{count} positional arguments"
        )
    numbers = {number % count for number in static}

    def call(*values: Any, **named: Any) -> Any:
        merged = list(values)
        for number in sorted(numbers):
            merged.insert(number, args[number])
        return function(*merged, **named)

    return call, tuple(a for i, a in enumerate(args) if i not in numbers)


def _recorded(
    function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], rows: Rows, static: Set[int]
) -> Any:
    """The call as one equation `checkpoint`, or as it is where it looks at values."""

    call, dynamic = _without_statics(function, args, static)
    leaves, tree = flatten_args((dynamic, kwargs), name_of(function))
    flat = FlatFunction(call, tree)
    try:
        program, captured = _staged(flat, leaves, name_of(function))
    except ConcretizationError:
        if staging():
            raise
        return function(*args, **kwargs)
    outs = bind(OPS["checkpoint"], *captured, *leaves, program=program, policy=rows)
    for out, weak in zip(outs, flat.weak, strict=True):
        out.weak = weak
    return flat.tree.unflatten(outs)


def _staged(flat: FlatFunction, leaves: Sequence[Any], name: str) -> tuple[Program, list[Any]]:
    """A closed program of the function, and what it captured: its leading operands."""
    weak = [bool(getattr(v, "weak", False)) for v in leaves]
    program, captured = stage(flat, [type_of(v) for v in leaves], name, weak)
    return program.closed(), captured
