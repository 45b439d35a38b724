"""Online softmax: what is known of rows whose keys come block by block.

    state = take_state(code, rows)
    row_maximum(...)       # of a row's logits in a block, lane by lane
    raise_maxima(...)      # running maxima; where one grew, the row's sums so far are scaled down
    row_weights(...)       # exp(logit - maximum), and their sum, lane by lane
    finish_rows(...)       # after the last block: log-sum-exps, reciprocals of sums
    write_result(...)      # a row's product with the values, over its sum

(Milakov and Gimelshein, 2018.) As a rule maxima stop growing after a few blocks.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.code import Code, View
from fxad.backend.llvm.attention.exponential import weight
from fxad.backend.llvm.attention.problem import round_up
from fxad.backend.llvm.attention.rows import logit, reduce_rows, walk_row, with_score
from fxad.backend.llvm.attention.weights import Pending, store_terms, term_rows
from fxad.backend.llvm.attention.window import Range, Window
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.record import record


@record
class RunningState:
    """Addresses in scratch: of a block's rows the running products with the values, maxima (then
    log-sum-exps) and the sums' reciprocals; factors that some rows are scaled by; maxima and sums
    lane by lane."""

    products: View
    maxima: str
    inverses: str
    factors: str
    lane_maxima: View
    lane_sums: View


def take_state(code: Code, rows: int) -> RunningState:
    """Room for the state of so many rows."""
    problem, size, width = code.problem, code.problem.size, code.lanes.width
    line = round_up(problem.width, width)
    return RunningState(
        products=View(code.take(rows * line * size), line),
        maxima=code.take(rows * size),
        inverses=code.take(rows * size),
        factors=code.take(width * size),
        lane_maxima=View(code.take(rows * width * size), width),
        lane_sums=View(code.take(rows * width * size), width),
    )


# ---------------------------------------------------------------- of every block of keys


def row_maximum(
    code: Code, state: RunningState, window: Window, i: str, row: str, scores: str, keys: Range
) -> None:
    """The maximum of row i of a block, lane by lane. Logits in place of scores, unless a factor
    makes them that.

    row: its number in its head. scores: where the row has key 0.
    """
    plain = window.scale is not None

    def body(here: Scope, pointers: list[str]) -> Vec:
        x, mask = code.load(pointers[0]), here.copy.mask
        x = x if plain else logit(code, with_score(code, here, x))
        x = mask.where(x, code.splat(-float("inf"))) if mask is not None else x
        if not plain:
            code.store(x, pointers[0])
        return x

    found = walk_row(code, window, row, keys, [(scores, code.problem.size)], body, "max")
    assert found is not None
    code.store(found, code.element(state.lane_maxima, i))


def raise_maxima(
    code: Code, state: RunningState, scale: float | None, i: str, is_later: str
) -> None:
    """Running maxima of a vector of rows from i on; what the rows have so far is scaled to them.

    is_later: whether this block of keys is not the rows' first.
    """
    f, size = code.f, code.problem.size
    found = reduce_rows(code, "max", state.lane_maxima, i)
    at = f.offset(state.maxima, f.mul(i, size))
    known = _if_later(code, is_later, code.load(at), -float("inf"))
    code.store(found.at_least(known), at)
    grown = found > known
    bits = f.op(f"bitcast {grown.type} {grown.text} to i{grown.width}")
    some = f.op(f"icmp ne i{grown.width} {bits}, 0")

    def rescale() -> None:
        factors = weight(code, grown, known - found, scale or 1.0)
        code.store(grown.where(factors, 1.0), state.factors)
        f.loop(0, code.lanes.width, 1, lambda n, _: _rescale(code, state, f.add(i, n), n))

    f.when(f.op(f"and i1 {is_later}, {some}"), rescale)


def _rescale(code: Code, state: RunningState, i: str, n: str) -> None:
    """Scale what row i has so far by factor n."""
    f, products = code.f, state.products
    factor = code.load_scalar(f.offset(state.factors, f.mul(n, code.problem.size)))
    places = [code.element(state.lane_sums, i)]
    places += [
        code.element(products, i, c) for c in range(0, products.row_stride, code.lanes.width)
    ]

    def scale() -> None:
        for place in places:
            code.store(code.load(place) * factor, place)

    f.when(factor.compare("une", 1.0).text, scale)


def row_weights(
    code: Code,
    state: RunningState,
    window: Window,
    i: str,
    row: str,
    scores: str,
    weights: str,
    keys: Range,
    is_later: str,
) -> None:
    """exp(logit - maximum) of row i's scores, and their sum, lane by lane.

    A loop of its own, so that one row's maximum does not wait for the row before. scores: where the
    row has key 0; weights: where the block's weights have it, if they are split.
    """
    f, size = code.f, code.problem.size
    top = _finite(code.load_scalar(f.offset(state.maxima, f.mul(i, size))))
    top = top.splat(code.lanes.width)
    pending: Pending | None = None

    def body(here: Scope, pointers: list[str]) -> Vec:
        nonlocal pending
        x = code.load(pointers[0]) - top
        found = weight(code, here.copy.mask, x, window.scale or 1.0)
        if pointers[1:]:
            pending = store_terms(code, found, pointers[1:], pending)
        else:
            code.store(found, pointers[0])
        return found

    pointers = [(scores, size), *term_rows(code, weights, i)]
    total = walk_row(code, window, row, keys, pointers, body, "add")
    assert total is not None
    at = code.element(state.lane_sums, i)
    code.store(total + _if_later(code, is_later, code.load(at), 0), at)


def _if_later(code: Code, is_later: str, known: Vec, otherwise: float) -> Vec:
    """What is known of rows, unless this is their first block of keys."""
    return Vec(code.scope.code, "i1", 1, is_later).where(known, code.splat(otherwise))


def _finite(maximum: Vec) -> Vec:
    """What is taken off logits: 0 where nothing is visible."""
    return maximum.equals(-float("inf")).where(maximum.like(0), maximum)


# ---------------------------------------------------------------- after the last block


def finish_rows(code: Code, state: RunningState, scale: float | None, i: str) -> None:
    """Maxima to log-sum-exps, and sums to their reciprocals, of a vector of rows from i on."""
    f = code.f
    maxima, inverses = (
        f.offset(p, f.mul(i, code.problem.size)) for p in (state.maxima, state.inverses)
    )
    total = reduce_rows(code, "add", state.lane_sums, i)
    lse = fma(_finite(code.load(maxima)), scale or 1.0, code.apply("log", total))
    code.store(lse, maxima)
    code.store(total.equals(0).where(total.like(0), total.like(1) / total), inverses)


def write_result(code: Code, state: RunningState, i: str, row: str, out: View, lse: View) -> None:
    """Row i of a block, over its sum, to its row of the result; 0 if it sees nothing."""
    f, width = code.f, code.lanes.width
    here = f.mul(i, code.problem.size)
    code.store_scalar(code.load_scalar(f.offset(state.maxima, here)), code.element(lse, row))
    inverse = code.load_scalar(f.offset(state.inverses, here))
    wide, none = inverse.splat(width), inverse.equals(0).splat(width)
    for start in range(0, code.problem.width, width):
        value = code.load(code.element(state.products, i, start))
        scaled = none.where(value.like(0), value * wide)
        count = min(width, code.problem.width - start)
        code.store(scaled, code.element(out, row, start), count)
