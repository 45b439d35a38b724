"""Attention of a few queries, forward: a token that is generated sees all that were before it.

    emitted = emit_decode(problem)

Keys and values are read once, where they lie, so memory decides. A unit is a key head of one batch
element: the rows of a block are the queries of all heads that share it, row i being query i %
queries of head i / queries. A score is a product of two rows, lane by lane; for as many keys as
there are lanes the sums across lanes are taken together.
"""

from __future__ import annotations

from fxad.backend.llvm.attention import online_softmax as softmax
from fxad.backend.llvm.attention.code import (
    Code,
    View,
    begin,
    finished,
    operand_view,
    prefetch_row,
)
from fxad.backend.llvm.attention.forward import heads_sharing
from fxad.backend.llvm.attention.key_mask import with_key_mask
from fxad.backend.llvm.attention.online_softmax import RunningState
from fxad.backend.llvm.attention.problem import Problem, ScoreBlock, round_up
from fxad.backend.llvm.attention.products import RightOperand
from fxad.backend.llvm.attention.rows import reduce_lanes
from fxad.backend.llvm.attention.vector_products import (
    VectorProducts,
    copied_row_stride,
    whole_rows,
)
from fxad.backend.llvm.attention.weights import at_key_0
from fxad.backend.llvm.attention.window import Range, Window, keys_of_rows, keys_of_tile
from fxad.backend.llvm.base.schedule import Emitted
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.contract.arguments import at_grid_point
from fxad.backend.llvm.elements.scope import Needs
from fxad.core.record import record, replace
from fxad.ir.kernel import Attention, Kernel
from fxad.ir.orders import ATTENTION_BYTES, KEYS_DEPTH, KEYS_QUERIES, KEYS_ROWS


def uses_decode(kernel: Kernel, stage: Attention) -> bool:
    """Whether keys meet so few queries that they are read in place.

    A head's are rows of one tile, as far as weights beyond the keys they see are known to be 0.
    """
    queries = stage.rows.extent
    few = queries <= KEYS_QUERIES and queries * heads_sharing(kernel, stage) <= KEYS_ROWS
    return few and stage.depth.extent <= KEYS_DEPTH


@record
class DecodePlan:
    """block: whole vectors of rows, and keys whose scores stay in cache. sharing: query heads that
    share keys and values; heads: that have their own. rows: the queries of those that share."""

    problem: Problem
    block: ScoreBlock
    sharing: int
    heads: int
    rows: int

    @staticmethod
    def of(problem: Problem) -> DecodePlan:
        kernel = problem.kernel
        sharing = heads_sharing(kernel, problem.stage)
        mask = problem.mask
        if mask and sharing > 1 and kernel.grid[-1] in Needs().of(mask.expr):
            # A mask that knows heads lets other keys through for each of those that share.
            problem = replace(problem, mask=None)
        rows = problem.queries * sharing
        panel_bytes = problem.panel * max(1, problem.depth) * problem.size
        panels = max(1, ATTENTION_BYTES // panel_bytes)
        keys = min(problem.padded_keys, panels * problem.panel)
        block = problem.score_block(round_up(rows, problem.lane_width), keys)
        return DecodePlan(problem, block, sharing, kernel.points // sharing, rows)


@record
class Decode:
    """The function as it is written, and addresses in scratch: copies of all queries and of as many
    keys as there are lanes, a block of scores, which weights replace."""

    plan: DecodePlan
    code: Code
    products: VectorProducts
    queries: View
    keys: str
    scores: str
    state: RunningState


@record
class KeyHead:
    """A key head: the keys that its rows may see, the first grid point of the query heads that
    share it, its keys and values."""

    window: Window
    point: str
    k: View
    v: View
    values: RightOperand


def emit_decode(problem: Problem) -> Emitted:
    """The function of an Attention kernel for which `uses_decode` holds."""
    plan = DecodePlan.of(problem)
    problem = plan.problem
    code = begin(problem, plan.block)
    products = VectorProducts(code)
    queries = products.take_rows(plan.rows, problem.depth)
    keys = products.take_rows(code.lanes.width, problem.depth)
    scores = code.take(plan.block.rows * plan.block.stride * problem.size)
    state = softmax.take_state(code, plan.block.rows)
    view = View(queries, copied_row_stride(problem, problem.depth))
    decode = Decode(plan, code, products, view, keys, scores, state)
    code.f.loop("%begin", "%end", 1, lambda unit, _: _unit(decode, unit))
    nbytes = plan.heads * problem.keys * (problem.depth + problem.width) * problem.size
    return finished(code, plan.heads, nbytes / problem.tuning.bytes_per_ns)


def _unit(decode: Decode, unit: str) -> None:
    code, f, problem = decode.code, decode.code.f, decode.code.problem
    stage, queries = problem.stage, str(problem.queries)
    point = f.mul(unit, decode.plan.sharing)
    f.loop(0, decode.plan.sharing, 1, lambda head, _: _copy_queries(decode, point, head))
    scope = at_grid_point(code.scope, problem.kernel, point)
    k = operand_view(code, scope, stage.k, stage.keys, stage.depth)
    v = operand_view(code, scope, stage.v, stage.keys, stage.width)
    prefetch_rows = problem.tuning.prefetch_rows
    values = whole_rows(problem, v, problem.keys, problem.width, prefetch_rows=prefetch_rows)

    def all_rows(window: Window) -> None:
        head = KeyHead(window, point, k, v, values)
        low, high = keys_of_rows(code, window, "0", queries)

        def keys(start: str, _: list[str]) -> None:
            here = start, f.least(f.add(start, code.block.keys), high)
            _keys_of_block(decode, head, here, f.op(f"icmp ne i64 {start}, {low}"))

        f.loop(low, high, code.block.keys, keys, at_least_once=True)
        _results(decode, head)

    with_key_mask(code, scope, "0", queries, all_rows)


def _copy_queries(decode: Decode, point: str, head: str) -> None:
    """Copy the queries of one of the heads from a grid point on."""
    code, f, problem = decode.code, decode.code.f, decode.code.problem
    stage = problem.stage
    here = at_grid_point(code.scope, problem.kernel, f.add(point, head))
    q = operand_view(code, here, stage.q, stage.rows, stage.depth)
    to = code.element(decode.queries, f.mul(head, problem.queries))
    decode.products.copy_rows(q, problem.depth, to, str(problem.queries))


def _at_row(decode: Decode, head: KeyHead, i: str) -> tuple[Window, str]:
    """The window of the query head that row i is of, and which of its queries it is."""
    f, problem = decode.code.f, decode.code.problem
    point = f.add(head.point, f.op(f"udiv i64 {i}, {problem.queries}"))
    scope = at_grid_point(head.window.scope, problem.kernel, point)
    return replace(head.window, scope=scope), f.op(f"urem i64 {i}, {problem.queries}")


def _keys_of_block(decode: Decode, head: KeyHead, keys: Range, is_later: str) -> None:
    """What one block of keys adds to all rows; is_later: it is not the rows' first."""
    code, f, state = decode.code, decode.code.f, decode.state
    size, count = code.problem.size, decode.plan.rows
    row_bytes = code.block.stride * size
    scores = at_key_0(code, decode.scores, keys[0], size)
    _scores(decode, head, scores, keys)

    def maximum(i: str, _: list[str]) -> None:
        at = f.offset(scores, f.mul(i, row_bytes))
        window, query = _at_row(decode, head, i)
        softmax.row_maximum(code, state, window, i, query, at, keys)

    def raise_maxima(i: str, _: list[str]) -> None:
        softmax.raise_maxima(code, state, head.window.scale, i, is_later)

    def weights_of_row(i: str, _: list[str]) -> None:
        at = f.offset(scores, f.mul(i, row_bytes))
        window, query = _at_row(decode, head, i)
        softmax.row_weights(code, state, window, i, query, at, weights, keys, is_later)

    f.loop(0, count, 1, maximum, at_least_once=True)
    f.loop(0, count, code.lanes.width, raise_maxima)
    weights = at_key_0(code, decode.scores, keys[0], size)
    f.loop(0, count, 1, weights_of_row, at_least_once=True)
    _add_products(decode, head, weights, keys, is_later)


def _results(decode: Decode, head: KeyHead) -> None:
    """The results of all rows, each beside others of its head."""
    code, f, state = decode.code, decode.code.f, decode.state
    stage, count = code.problem.stage, decode.plan.rows

    def finish(i: str, _: list[str]) -> None:
        softmax.finish_rows(code, state, head.window.scale, i)

    def result(i: str, _: list[str]) -> None:
        window, query = _at_row(decode, head, i)
        out = operand_view(code, window.scope, stage.out, stage.rows, stage.width)
        lse = operand_view(code, window.scope, stage.lse, stage.rows)
        softmax.write_result(code, state, i, query, out, lse)

    f.loop(0, count, code.lanes.width, finish, at_least_once=True)
    f.loop(0, count, 1, result, at_least_once=True)


# ---------------------------------------------------------------- products


def _scores(decode: Decode, head: KeyHead, to: str, keys: Range) -> None:
    """Scores of all rows and some keys, as many at a time as there are lanes. to: where the block
    has key 0."""
    code, f, width = decode.code, decode.code.f, decode.code.lanes.width
    problem, stride = code.problem, code.block.stride

    def some_keys(key: str, present: int = width) -> None:
        k = _keys(decode, head, key, present)

        def query(i: str, _: list[str]) -> None:
            starts = range(0, problem.depth, width)
            q = [code.load(code.element(decode.queries, i, c)) for c in starts]
            found = reduce_lanes(width, "add", lambda n: _dot(code, q if n < present else [], k, n))
            at = f.mul(f.add(f.mul(i, stride), key), problem.size)
            code.store(found, f.offset(to, at))

        f.loop(0, decode.plan.rows, 1, query, at_least_once=True)

    rest = problem.keys % width
    whole = f.least(keys[1], problem.keys - rest)
    f.loop(keys[0], whole, width, lambda j, _: some_keys(j))
    if rest:
        last = str(problem.keys - rest)
        f.when(f.op(f"icmp sgt i64 {keys[1]}, {last}"), lambda: some_keys(last, rest))


def _keys(decode: Decode, head: KeyHead, key: str, count: int) -> View:
    """So many keys; copied where several queries read them, since rows of one head may all share a
    few sets of a cache."""
    code, problem = decode.code, decode.code.problem
    keys = code.from_row(head.k, key)
    for n in range(count):
        prefetch_row(code, keys, n + problem.tuning.prefetch_rows, problem.depth, level=3)
    if decode.plan.rows == 1:
        return keys
    return decode.products.copy_rows(keys, problem.depth, decode.keys, str(count))


def _dot(code: Code, q: list[Vec], keys: View, n: int) -> Vec:
    """The vectors of a query times those of key n, lane by lane; 0 without any."""
    total, width = code.splat(0), code.lanes.width
    for i, x in enumerate(q):
        start = i * width
        count = min(width, code.problem.depth - start)
        total = fma(x, code.load(code.element(keys, n, start), count), total)
    return total


def _add_products(decode: Decode, head: KeyHead, weights: str, keys: Range, is_later: str) -> None:
    """Add the weights' product with the values."""
    code, f, problem = decode.code, decode.code.f, decode.code.problem
    low, high = keys_of_tile(code, head.window, "0", problem.queries)
    low, high = (f.least(f.most(x, keys[0]), keys[1]) for x in (low, high))
    steps = low, f.most(f.op(f"sub i64 {high}, {low}"), 0)
    values = replace(head.values, following=code.element(head.v, high))
    adds = f.op(f"zext i1 {is_later} to i64")
    decode.products.product(
        View(weights, code.block.stride),
        values,
        decode.state.products,
        (str(decode.plan.rows), decode.plan.rows),
        lambda *_: steps,
        adds,
        padded=problem.width % problem.lane_width == 0,
    )
