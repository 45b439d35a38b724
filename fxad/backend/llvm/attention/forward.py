"""Attention, forward: an Attention kernel -> LLVM IR.

    emitted = emit_forward(problem)

A unit is a chunk of query blocks of the heads that share their keys and values. These are packed
once (a few values are read in place); then every block of queries goes through its keys in blocks
whose scores stay in cache: scores, running maxima, weights and their sums, the product with the
values. Last each row is divided by its sum.
"""

from __future__ import annotations

from fxad.backend.llvm.attention import online_softmax as softmax
from fxad.backend.llvm.attention.bf16x6_products import Bf16x6Products, with_tiles
from fxad.backend.llvm.attention.code import (
    Code,
    View,
    begin,
    finished,
    operand_view,
    prefetch_row,
)
from fxad.backend.llvm.attention.key_mask import with_key_mask
from fxad.backend.llvm.attention.online_softmax import RunningState
from fxad.backend.llvm.attention.problem import Problem, ScoreBlock
from fxad.backend.llvm.attention.products import Products, RightOperand
from fxad.backend.llvm.attention.vector_products import VectorProducts, whole_rows
from fxad.backend.llvm.attention.weights import at_key_0, take_weights
from fxad.backend.llvm.attention.window import (
    Block,
    Range,
    Window,
    keys_of_rows,
    keys_of_tile,
    whole_window,
)
from fxad.backend.llvm.base.schedule import Emitted
from fxad.backend.llvm.contract.arguments import at_grid_point
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.record import record
from fxad.ir.kernel import Attention, Kernel
from fxad.ir.orders import ATTENTION_PANELS, ATTENTION_VALUES, SPLIT_PANELS, SPLIT_ROWS


@record
class ForwardPlan:
    """block: queries and keys whose scores stay in cache. sharing: query heads that one copy of
    keys and values serves; heads: that have keys of their own. unit_blocks: query blocks in a unit,
    of which a head has `head_units`. packs_values: else they are read in place."""

    problem: Problem
    block: ScoreBlock
    sharing: int
    heads: int
    unit_blocks: int
    head_units: int
    packs_values: bool

    @staticmethod
    def of(problem: Problem) -> ForwardPlan:
        tuning, split = problem.tuning, problem.bf16x6
        rows = SPLIT_ROWS if split else tuning.block_queries
        panels = SPLIT_PANELS if split else ATTENTION_PANELS
        blocks = -(-problem.queries // rows)
        sharing = heads_sharing(problem.kernel, problem.stage)
        heads = problem.kernel.points // sharing
        fewest, most = (max(1, -(-n // heads)) for n in (tuning.fewest_units, tuning.units))
        wanted = min(most, max(fewest, problem.queries * sharing // tuning.unit_queries))
        unit_blocks = -(-blocks // wanted)
        whole_vectors = problem.width % problem.lane_width == 0
        in_place = sharing == 1 and whole_vectors and problem.keys <= tuning.keys_in_place
        return ForwardPlan(
            problem=problem,
            block=problem.score_block(rows, min(problem.padded_keys, panels * problem.panel)),
            sharing=sharing,
            heads=heads,
            unit_blocks=unit_blocks,
            head_units=-(-blocks // unit_blocks),
            packs_values=split or not in_place,
        )


@record
class Forward:
    """The function as it is written, and addresses in scratch: packed keys and values (None: in
    place), a copy of a block of queries (None: in place), a block of scores and of weights."""

    plan: ForwardPlan
    code: Code
    products: Products
    queries: str | None
    keys: str
    values: RightOperand | None
    scores: str
    weights: str
    state: RunningState


@record
class Head:
    """A query head: the keys it may see, its operands, and the values that it shares."""

    window: Window
    q: View
    out: View
    lse: View
    values: RightOperand


def heads_sharing(kernel: Kernel, stage: Attention) -> int:
    """Query heads that read the same keys and values: neighbours among the grid's points."""
    for group in kernel.grid[-1:]:
        if all(o.index.coefficient(group) == 0 for o in (stage.k, stage.v)):
            return group.extent
    return 1


def emit_forward(problem: Problem) -> Emitted:
    """The function of an Attention kernel of many queries."""
    plan = ForwardPlan.of(problem)
    code = begin(problem, plan.block)
    forward = _with_scratch(plan, code)
    with_tiles(code, lambda: code.f.loop("%begin", "%end", 1, lambda n, _: _unit(forward, n)))
    pairs = 2.0 * problem.queries * problem.keys
    flops = pairs * (problem.depth + problem.width) * problem.kernel.points
    return finished(code, plan.heads * plan.head_units, flops / problem.flops_per_ns)


def _with_scratch(plan: ForwardPlan, code: Code) -> Forward:
    problem, block = plan.problem, plan.block
    products = Bf16x6Products(code) if problem.bf16x6 else VectorProducts(code)
    queries = products.take_rows(block.rows, problem.depth) if problem.bf16x6 else None
    keys = products.take_panels(problem.padded_keys, problem.depth)
    values = None
    if plan.packs_values:
        values = products.take_columns(problem.keys, problem.width)
    scores = code.take(block.rows * block.stride * problem.size)
    weights = take_weights(code, scores)
    state = softmax.take_state(code, block.rows)
    return Forward(plan, code, products, queries, keys, values, scores, weights, state)


# ---------------------------------------------------------------- units


def _unit(forward: Forward, unit: str) -> None:
    """Last chunks first: where queries see what is before them, these take longest."""
    plan, code, f, problem = forward.plan, forward.code, forward.code.f, forward.code.problem
    number = f.op(f"sub i64 {plan.head_units - 1}, {f.op(f'udiv i64 {unit}, {plan.heads}')}")
    point = f.mul(f.op(f"urem i64 {unit}, {plan.heads}"), plan.sharing)
    scope = at_grid_point(code.scope, problem.kernel, point)
    unit_rows = plan.unit_blocks * plan.block.rows
    first = f.mul(number, unit_rows)
    end = f.least(f.add(first, unit_rows), problem.queries)
    rows = f.op(f"sub i64 {end}, {first}")
    low, high = keys_of_rows(code, whole_window(code, scope), first, rows)
    stage = problem.stage
    k = operand_view(code, scope, stage.k, stage.keys, stage.depth)
    forward.products.pack_panels(k, problem.depth, forward.keys, low, high)
    values = _values(forward, scope, low, high)

    def head(n: str, _: list[str]) -> None:
        _head(forward, scope, f.add(point, n), values, first, end)

    f.loop(0, plan.sharing, 1, head)


def _values(forward: Forward, scope: Scope, low: str, high: str) -> RightOperand:
    """The values of keys low ... high - 1, packed or in place."""
    code, f, problem = forward.code, forward.code.f, forward.code.problem
    v = operand_view(code, scope, problem.stage.v, problem.stage.keys, problem.stage.width)
    if forward.values is not None:
        count = f.most(f.op(f"sub i64 {f.least(high, problem.keys)}, {low}"), 0)
        forward.products.pack_columns(v, forward.values, low, count)
        return forward.values
    return whole_rows(problem, v, problem.keys, problem.width)


def _head(
    forward: Forward, scope: Scope, point: str, values: RightOperand, first: str, end: str
) -> None:
    """A chunk of rows of the query head at a grid point."""
    code, stage = forward.code, forward.code.problem.stage
    here = at_grid_point(scope, code.problem.kernel, point)
    q = operand_view(code, here, stage.q, stage.rows, stage.depth)
    out = operand_view(code, here, stage.out, stage.rows, stage.width)
    lse = operand_view(code, here, stage.lse, stage.rows)

    def blocks(window: Window) -> None:
        head = Head(window, q, out, lse, values)
        code.f.loop(
            first, end, code.block.rows, lambda i, _: _block(forward, head, i), at_least_once=True
        )

    with_key_mask(code, here, first, end, blocks)


# ---------------------------------------------------------------- blocks of queries


def _block(forward: Forward, head: Head, first: str) -> None:
    """A block of query rows of a head."""
    code, f, problem, state = forward.code, forward.code.f, forward.code.problem, forward.state
    count = f.least(f.op(f"sub i64 {problem.queries}, {first}"), code.block.rows)
    rows = Block(first, count)
    low, high = keys_of_rows(code, head.window, first, count)
    q = code.from_row(head.q, first)
    if forward.queries is not None:
        q = forward.products.copy_rows(q, problem.depth, forward.queries, count)

    def keys(start: str, _: list[str]) -> None:
        here = start, f.least(f.add(start, code.block.keys), high)
        _keys_of_block(forward, head, q, rows, here, f.op(f"icmp ne i64 {start}, {low}"))

    f.loop(low, high, code.block.keys, keys, at_least_once=True)

    def finish(i: str, _: list[str]) -> None:
        softmax.finish_rows(code, state, head.window.scale, i)

    def result(i: str, _: list[str]) -> None:
        softmax.write_result(code, state, i, f.add(first, i), head.out, head.lse)

    f.loop(0, count, code.lanes.width, finish, at_least_once=True)
    f.loop(0, count, 1, result, at_least_once=True)


def _keys_of_block(
    forward: Forward, head: Head, q: View, rows: Block, keys: Range, is_later: str
) -> None:
    """What one block of keys adds to a block of rows; is_later: it is not the rows' first."""
    code, f, window, state = forward.code, forward.code.f, head.window, forward.state
    row_bytes = code.block.stride * code.problem.size
    scores = at_key_0(code, forward.scores, keys[0], code.problem.size)
    forward.products.scores(window, q, code.problem.depth, forward.keys, scores, rows, keys)

    def maximum(i: str, _: list[str]) -> None:
        row = f.add(rows.first, i)
        at = f.offset(scores, f.mul(i, row_bytes))
        softmax.row_maximum(code, state, window, i, row, at, keys)

    def raise_maxima(i: str, _: list[str]) -> None:
        softmax.raise_maxima(code, state, window.scale, i, is_later)

    def weights_of_row(i: str, _: list[str]) -> None:
        row = f.add(rows.first, i)
        at = f.offset(scores, f.mul(i, row_bytes))
        _prefetch_next_rows(forward, head, row)
        softmax.row_weights(code, state, window, i, row, at, weights, keys, is_later)

    f.loop(0, rows.count, 1, maximum, at_least_once=True)
    f.loop(0, rows.count, code.lanes.width, raise_maxima)
    weights = at_key_0(code, forward.weights, keys[0], code.problem.weight_size)
    f.loop(0, rows.count, 1, weights_of_row, at_least_once=True)
    _add_products(forward, head, weights, rows, keys, is_later)


def _prefetch_next_rows(forward: Forward, head: Head, row: str) -> None:
    """A row of the next block of queries, and one of this block's results: beside exponentials,
    memory has time to bring them."""
    code, problem = forward.code, forward.code.problem
    prefetch_row(code, head.q, code.f.add(row, code.block.rows), problem.depth)
    prefetch_row(code, head.out, row, problem.width, write=True)


def _add_products(
    forward: Forward, head: Head, weights: str, rows: Block, keys: Range, is_later: str
) -> None:
    """Add the weights' product with the values, some rows of values at a time."""
    code, f = forward.code, forward.code.f
    end = f.least(keys[1], code.problem.keys)

    def some(start: str, _: list[str]) -> None:
        stop = f.least(f.add(start, ATTENTION_VALUES), end)

        def steps(i: str, height: int) -> tuple[str, str]:
            low, high = keys_of_tile(code, head.window, f.add(rows.first, i), height)
            low = f.least(f.most(low, start), stop)
            return low, f.most(f.op(f"sub i64 {f.least(high, stop)}, {low}"), 0)

        adds = f.op(f"or i1 {is_later}, {f.op(f'icmp ne i64 {start}, {keys[0]}')}")
        adds = f.op(f"zext i1 {adds} to i64")
        a, count = View(weights, code.block.stride), (rows.count, code.problem.queries)
        products = forward.state.products
        forward.products.product(a, head.values, products, count, steps, adds, padded=True)

    f.loop(keys[0], end, ATTENTION_VALUES, some, at_least_once=True)
