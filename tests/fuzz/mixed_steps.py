"""The steps that random programs of mixed types (mixed.py) take.

Each is given the program's `Maker`, draws operands, and returns an expression with whether all
backends give the same bits for it where they do for the operands; None if there are no operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixed import Maker

FLOATS = ["float32", "float32", "float32", "bfloat16", "float16"]
INTS = ["int32", "int32", "int8", "uint8", "int16", "uint32"]
SMOOTH = ["sin", "cos", "tanh", "arctan", "square", "exp2", "sinh", "expm1", "arcsinh"]

Step = tuple[str, bool]  # an expression, and whether all backends give the same bits


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether arrays of these shapes go together."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def unary(m: Maker) -> Step | None:
    v = m.recent("fi")
    if v is None:
        return None
    return f"np.{m.one(SMOOTH)}(np.tanh({v.name}))", False


def positive(m: Maker) -> Step | None:
    v = m.recent("f")
    name = m.one(["np.sqrt", "np.log", "np.log1p", "np.reciprocal", "lax.rsqrt", "np.cbrt"])
    return v and (f"{name}({v.name} * {v.name} + 1)", False)


def binary(m: Maker) -> Step | None:
    v = m.recent()
    if v is None:
        return None
    w = m.partner(v)
    name = m.one(["add", "multiply", "maximum", "minimum", "add", "multiply"])
    exact = m.plain or name in ("maximum", "minimum") or "f" not in v.kind + w.kind
    return f"np.{name}({v.name}, {w.name})", exact


def scalar(m: Maker) -> Step | None:
    v = m.recent("fi")
    number = m.one([0.5, 2.0, -1.0, 1, 2, 3, -1, 0.0])
    form = m.one(["{} * {}", "{} + {}", "{1} - {0}", "np.maximum({}, {})"])
    return v and (form.format(v.name, number), m.plain)


def divide(m: Maker) -> Step | None:
    v = m.recent("fiu")
    if v is None:
        return None
    w = m.partner(v)
    if v.kind in "iu" and w.kind == v.kind:
        return f"{v.name} {m.one(['//', '%'])} {w.name}", True
    return f"{v.name} / (np.square({w.name}) + 1.0)", False


def bits(m: Maker) -> Step | None:
    v = m.recent("iub")
    if v is None:
        return None
    fits = [w for w in m.values if w.kind == v.kind and broadcast(v.shape, w.shape)]
    w = m.one(fits)
    if v.kind == "b" or m.chance(0.6):
        return f"{v.name} {m.one(['&', '|', '^'])} {w.name}", True
    return f"{m.one(['np.left_shift', 'np.right_shift'])}({v.name}, {m.one([0, 1, 3])})", True


def compare(m: Maker) -> Step | None:
    v = m.recent(exact=True)
    if v is None:
        return None
    fits = [w for w in m.values if w.exact and broadcast(v.shape, w.shape)]
    return f"{v.name} {m.one(['<', '<=', '==', '!=', '>'])} {m.one(fits).name}", True


def convert(m: Maker) -> Step | None:
    v = m.recent(exact=m.chance(0.5))
    if v is None:
        return None
    to = FLOATS if not v.exact else [*FLOATS, *INTS, "bool"]
    return f"{v.name}.astype('{m.one(to)}')", True


def reduction(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    axes = tuple(a for a in range(v.array.ndim) if m.chance(0.5)) or (m.axis(v),)
    name = m.one(["sum", "mean", "max", "min", "any", "all", "var", "std", "sum", "max"])
    if name in ("any", "all") and not v.exact:
        return None
    exact = name in ("max", "min", "any", "all") or (name == "sum" and v.kind != "f")
    keep = m.chance(0.4)
    masks = [w for w in m.values if w.kind == "b" and w.shape == v.shape]
    more = ""
    if name in ("sum", "max", "min") and masks and m.chance(0.4) and v.kind == "f":
        more = f", where={m.one(masks).name}, initial=0"
    if v.kind == "b" and name in ("max", "min", "var", "std"):
        return None
    if name == "std":
        return f"np.sqrt(np.var({v.name}, {axes}, keepdims={keep}) + 1)", False
    return f"np.{name}({v.name}, {axes}, keepdims={keep}{more})", exact


def position(m: Maker) -> Step | None:
    v = m.recent("fiu", exact=True)
    if v is None or not v.shape:
        return None
    name = m.one(["argmax", "argmin", "argsort", "sort", "sort"])
    return f"np.{name}({v.name}, axis={m.axis(v)})", True


def normalise(m: Maker) -> Step | None:
    v = m.recent("f")
    if v is None or not v.shape:
        return None
    axis, x = m.axis(v), v.name
    forms = [
        "nn.softmax({x}, axis={a})",
        "nn.log_softmax({x}, axis={a})",
        "({x} - np.mean({x}, {a}, keepdims=True)) * lax.rsqrt(np.var({x}, {a}, keepdims=True) + 1)",
        "nn.logsumexp({x}, axis={a})",
        "{x} / (np.sqrt(np.sum({x} * {x}, axis={a}, keepdims=True)) + 1)",
    ]
    return m.one(forms).format(x=x, a=axis), False


def running(m: Maker) -> Step | None:
    v = m.recent("fiu")
    if v is None or not v.shape:
        return None
    name, axis, back = m.one(["cumsum", "cummax", "cumlogsumexp"]), m.axis(v), m.chance(0.5)
    if name == "cumlogsumexp" and v.kind != "f":
        name = "cummin"
    return f"lax.{name}({v.name}, axis={axis}, reverse={back})", name in ("cummax", "cummin")


def move(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    x, axis, n = v.name, m.axis(v), v.array.ndim
    order = tuple(map(int, m.r.permutation(n)))
    shape = m.one([(-1,), (1, -1), v.shape[::-1], (*v.shape, 1)])
    low, high = int(m.r.integers(0, 3)), int(m.r.integers(0, 3))
    widths = [(low, high) if a == axis else (0, 0) for a in range(n)]
    config = [(low - 1, high, m.one([0, 1])) if a == axis else (0, 0, 0) for a in range(n)]
    forms = [
        f"np.transpose({x}, {order})",
        f"np.reshape({x}, {shape})",
        f"np.flip({x}, {axis})",
        f"np.roll({x}, {int(m.r.integers(-5, 6))}, {axis})",
        f"np.pad({x}, {widths})",
        f"np.pad({x}, {widths}, mode='{m.one(['edge', 'wrap', 'symmetric'])}')",
        f"lax.pad({x}, np.asarray(0, {x}.dtype), {config})",
        f"np.repeat({x}, 2, {axis})",
        f"np.tile({x}, {m.one([(2,), (2, 1), (1, 3)])})",
        f"np.expand_dims({x}, {axis})",
        f"np.broadcast_to({x}, (3, *{v.shape}))",
        f"np.tril({x})" if n >= 2 else f"np.diag({x})",
    ]
    return m.one(forms), True


def cut(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    items = []
    for size in v.shape:
        start, step = int(m.r.integers(0, size)), m.one([1, 1, 2, -1, 3])
        taken = f"{start}::{step}" if m.chance(0.7) else f"{start}:{start + 1}"
        items.append(m.one([":", taken, str(start), taken]))
    return f"{v.name}[{', '.join(items)}]", True


def join(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    fits = [w for w in m.values if w.shape == v.shape]
    name = m.one(["concatenate", "stack"])
    return f"np.{name}([{v.name}, {m.one(fits).name}, {v.name}], axis={m.axis(v)})", True


def product(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or v.array.ndim < 2 or v.kind == "b":
        return None
    x, fits = v.name, [w for w in m.values if w.array.ndim == 2 and w.shape[0] == v.shape[-1]]
    fits = [w for w in fits if w.kind == "f"] if v.kind == "f" else []
    if fits and m.chance(0.5):
        return f"{x} @ {m.one(fits).name} * 0.2", False
    forms = [
        f"np.matmul({x}, np.swapaxes({x}, -1, -2)) * 0.2",
        f"np.einsum('...ij,...ik->...jk', {x}, {x}) * 0.2",
        f"np.einsum('...ij->...j', {x}) * 0.5",
        f"np.dot({x}, {x}[..., 0, :].T if {x}.ndim == 2 else {x}[0, 0]) * 0.2",
    ]
    return m.one(forms), False


def choose(m: Maker) -> Step | None:
    c = m.recent("b")
    if c is None:
        return None
    w = m.partner(c)
    other = m.partner(w)
    return f"np.where({c.name}, {w.name}, {m.one([other.name, '0', '1.5'])})", True


def gather(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    index = m.recent("iu", exact=True)
    axis = m.axis(v)
    rows = [int(i) for i in m.r.integers(-v.shape[axis], v.shape[axis], 4)]
    forms = [f"np.take({v.name}, np.asarray({rows}), axis={axis}, mode='wrap')"]
    if index is not None and index.array.ndim <= 2:
        where = f"{index.name}.astype('int32')"
        forms += [
            f"{v.name}[{where} % {v.shape[0]}]",
            f"{v.name}.at[{where}].get(mode='clip')",
            f"lax.dynamic_slice_in_dim({v.name}, {where}.ravel()[0], 1, {axis})",
            f"{v.name}[..., {where} % {v.shape[-1]}]",
        ]
    return m.one(forms), True


def scatter(m: Maker) -> Step | None:
    v = m.recent()
    if v is None or not v.shape:
        return None
    index = m.recent("iu", exact=True)
    rows = [int(i) for i in m.r.integers(0, v.shape[0], 4)]
    where = f"np.asarray({rows})"
    if index is not None and index.array.ndim <= 2 and m.chance(0.6):
        where = f"{index.name}.astype('int32') % {v.shape[0]}"
    method = m.one(["set", "add", "multiply", "max", "min"]) if v.kind != "b" else "set"
    value = m.one({"f": ["0.5", "-1", "0"], "b": ["True"]}.get(v.kind, ["1", "2"]))
    return f"{v.name}.at[{where}].{method}({value})", method != "multiply" or m.plain


def loop(m: Maker) -> Step | None:
    v = m.recent("f")
    if v is None or not v.shape:
        return None
    fits = [w for w in m.values if w.shape == v.shape and w.kind == "f"]
    x, w, trips = v.name, m.one(fits).name, m.one([1, 2, 5])
    first = f"({x}[0] * 0).astype('float32')"
    forms = [
        f"lax.fori_loop(0, {trips}, lambda i, c: np.tanh(c + {w} * i).astype({x}.dtype), {x})",
        f"lax.scan(lambda c, r: (c * 0.5 + r, c), {first}, {x})[1]",
        f"lax.scan(lambda c, r: (np.tanh(c) + r, np.sum(c)), {first}, {x}, reverse=True)[1]",
        f"lax.map(lambda r: np.sin(r) * 2 + np.max(r), {x})",
        f"lax.while_loop(lambda s: s[0] < {trips}, lambda s: (s[0] + 1, s[1] * 0.5), (0, {x}))[1]",
    ]
    return m.one(forms), False


def branch(m: Maker) -> Step | None:
    v, c = m.recent("f"), m.recent(exact=True)
    if v is None or c is None:
        return None
    which = f"np.sum({c.name}.astype('int32'))"
    forms = [
        f"lax.cond({which} > 3, lambda a: np.sin(a), lambda a: a * 2, {v.name})",
        f"lax.switch({which} % 3, [np.cos, lambda a: -a, lambda a: a * a], {v.name})",
    ]
    return m.one(forms), False


STEPS: list[Callable[[Maker], Step | None]] = [
    unary, positive, binary, binary, binary, scalar, scalar, divide, bits, compare, convert,
    convert, reduction, reduction, reduction, position, normalise, normalise, running, move, move,
    move, cut, cut, join, product, product, choose, choose, gather, scatter, loop, branch,
]  # fmt: skip
