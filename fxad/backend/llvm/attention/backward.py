"""Attention, backward: an AttentionGrad kernel -> LLVM IR.

    emitted = emit_backward(problem, stage)

A unit is one key head of one batch element, or a part of its queries with cotangents of its own: no
two units write the same. It goes through its keys in chunks that the L2 cache holds, packed once;
then for every query head of its group and every block of rows that sees the chunk: scores again,
the weights p from the saved log-sum-exp, d_out v^T, ds; then additions to dq, dk and dv, all while
p and ds are in cache (Dao et al., 2022).
"""

from __future__ import annotations

from fxad.backend.llvm.attention.backward_plan import BackwardPlan
from fxad.backend.llvm.attention.bf16x6_gradients import bf16x6_gradients
from fxad.backend.llvm.attention.bf16x6_products import Bf16x6Products, with_tiles
from fxad.backend.llvm.attention.code import (
    Code,
    View,
    begin,
    fill_rows,
    finished,
    operand_view,
    prefetch_row,
)
from fxad.backend.llvm.attention.exponential import weight
from fxad.backend.llvm.attention.gradients import Gradients, KeyChunk, Weights
from fxad.backend.llvm.attention.key_mask import with_key_mask
from fxad.backend.llvm.attention.problem import Problem
from fxad.backend.llvm.attention.products import Products, RightOperand
from fxad.backend.llvm.attention.rows import logit, walk_row, with_score
from fxad.backend.llvm.attention.vector_gradients import vector_gradients
from fxad.backend.llvm.attention.vector_products import VectorProducts
from fxad.backend.llvm.attention.weights import (
    Pending,
    at_key_0,
    store_terms,
    take_weights,
    term_rows,
)
from fxad.backend.llvm.attention.window import (
    Block,
    Range,
    Window,
    keys_of_rows,
    keys_of_tile,
    whole_window,
)
from fxad.backend.llvm.base.schedule import Emitted
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.contract.arguments import at_grid_point
from fxad.backend.llvm.elements.scope import Scope, inner, with_axes
from fxad.backend.llvm.elements.values import value
from fxad.core.record import record
from fxad.ir.kernel import AttentionGrad


@record
class Backward:
    """The function as it is written, and addresses in scratch: a chunk's packed keys and values,
    its keys as right operand of dq, a block of p and of ds, and of ds as that product reads it."""

    plan: BackwardPlan
    code: Code
    products: Products
    gradients: Gradients
    keys: str
    values: str
    key_rows: RightOperand
    p: str
    ds: str
    ds_terms: str


@record
class KeyHead:
    """A key head: the scope at its grid point, and its operands from its first key on."""

    scope: Scope
    k: View
    v: View
    dk: View
    dv: View


@record
class Head:
    """A query head: the keys it may see, and its operands from its first row on."""

    window: Window
    q: View
    d_out: View
    dq: View
    lse: View
    delta: View


def emit_backward(problem: Problem, grad: AttentionGrad) -> Emitted:
    """The function of an AttentionGrad kernel."""
    plan = BackwardPlan.of(problem, grad)
    code = begin(problem, plan.block)
    backward = _with_scratch(plan, code)
    with_tiles(code, lambda: code.f.loop("%begin", "%end", 1, lambda n, _: _unit(backward, n)))
    points = problem.kernel.points
    pairs = 1.0 * problem.queries * problem.keys * grad.group.extent * points
    flops = 2 * pairs * (3 * problem.depth + 2 * problem.width)
    return finished(code, points, flops / problem.flops_per_ns)


def _with_scratch(plan: BackwardPlan, code: Code) -> Backward:
    problem, block, chunk = plan.problem, plan.block, plan.chunk
    depth, width = problem.depth, problem.width
    products: Products = Bf16x6Products(code) if problem.bf16x6 else VectorProducts(code)
    keys, values = products.take_panels(chunk, depth), products.take_panels(chunk, width)
    key_rows = products.take_columns(chunk, depth)
    copies = products.take_rows(block.rows, depth), products.take_rows(block.rows, width)
    block_bytes = block.rows * block.stride * problem.size
    p, ds = code.take(block_bytes), code.take(block_bytes)
    ds_terms = take_weights(code, ds)
    with_sums = bf16x6_gradients if problem.bf16x6 else vector_gradients
    gradients: Gradients = with_sums(plan, code, copies)
    return Backward(plan, code, products, gradients, keys, values, key_rows, p, ds, ds_terms)


# ---------------------------------------------------------------- chunks of keys


def _unit(backward: Backward, unit: str) -> None:
    plan, code, stage = backward.plan, backward.code, backward.code.problem.stage
    scope = at_grid_point(code.scope, code.problem.kernel, unit)
    head = KeyHead(
        scope,
        k=operand_view(code, scope, stage.k, stage.keys, stage.depth),
        v=operand_view(code, scope, stage.v, stage.keys, stage.width),
        dk=operand_view(code, scope, plan.grad.dk, stage.keys, stage.depth),
        dv=operand_view(code, scope, plan.grad.dv, stage.keys, stage.width),
    )
    # Once without keys, too: dq is set then.
    keys, chunk = max(code.problem.keys, 1), max(plan.chunk, 1)
    code.f.loop(0, keys, chunk, lambda start, _: _key_chunk(backward, head, start))


def _key_chunk(backward: Backward, head: KeyHead, start: str) -> None:
    """One chunk of keys of a key head, for all queries of the unit."""
    plan, code, f, problem = backward.plan, backward.code, backward.code.f, backward.code.problem
    products, gradients = backward.products, backward.gradients
    skip = f.op(f"sub i64 0, {start}")
    packed_k = f.offset(backward.keys, f.mul(skip, products.key_bytes(problem.depth)))
    packed_v = f.offset(backward.values, f.mul(skip, products.key_bytes(problem.width)))
    keys = start, f.least(f.add(start, plan.chunk), problem.padded_keys)
    count = f.op(f"sub i64 {f.least(keys[1], problem.keys)}, {start}")
    low, high = keys_of_rows(code, whole_window(code, head.scope), "0", str(problem.queries))
    to = code.from_row(head.dk, start), code.from_row(head.dv, start)
    sums = gradients.sums(*to)
    chunk = KeyChunk(start, keys, packed_k, packed_v, sums)
    if plan.writes_directly:
        ends = f.op(f"icmp slt i64 {high}, {f.add(start, count)}")
        some = f.op(f"or i1 {f.op(f'icmp sgt i64 {low}, {start}')}, {ends}")
        f.when(some, lambda: gradients.clear(sums, count))
    else:
        gradients.clear(sums, count)
    before = f.op(f"icmp slt i64 {start}, {high}")
    visible = f.op(f"and i1 {before}, {f.op(f'icmp slt i64 {low}, {keys[1]}')}")
    is_first = f.op(f"icmp eq i64 {start}, 0")  # then dq is set, too
    wanted = f.op(f"or i1 {is_first}, {visible}")
    f.when(wanted, lambda: _all_heads(backward, head, chunk, count))
    gradients.finish(sums, to, count)


def _all_heads(backward: Backward, head: KeyHead, chunk: KeyChunk, count: str) -> None:
    """All queries of the unit and one chunk of `count` keys."""
    code, products, group = backward.code, backward.products, backward.plan.grad.group
    f, problem = code.f, code.problem

    def panel(start: str, _: list[str]) -> None:
        end = f.add(start, problem.panel)
        _prefetch_keys(code, head.k, end, problem.depth)
        _prefetch_keys(code, head.v, end, problem.width)
        products.pack_panels(head.k, problem.depth, chunk.packed_k, start, end)
        products.pack_panels(head.v, problem.width, chunk.packed_v, start, end)

    f.loop(*chunk.keys, problem.panel, panel)
    products.pack_columns(code.from_row(head.k, chunk.start), backward.key_rows, "0", count)

    def query_head(n: str, _: list[str]) -> None:
        scope = inner(head.scope, axes=with_axes(head.scope, {group: n}))
        _head(backward, scope, chunk)

    f.loop(0, group.extent, 1, query_head)


def _prefetch_keys(code: Code, view: View, first: str, columns: int) -> None:
    """Prefetch a panel's rows of keys or values, as far as there are any."""
    f, problem = code.f, code.problem
    end = f.least(f.add(first, problem.panel), problem.keys)
    f.loop(first, end, 1, lambda j, _: prefetch_row(code, view, j, columns))


# ---------------------------------------------------------------- blocks of queries


def _head(backward: Backward, scope: Scope, chunk: KeyChunk) -> None:
    """All rows of the query head at whose point the scope is."""
    code, problem, grad = backward.code, backward.code.problem, backward.plan.grad
    stage, queries = problem.stage, str(problem.queries)
    q = operand_view(code, scope, stage.q, stage.rows, stage.depth)
    d_out = operand_view(code, scope, stage.out, stage.rows, stage.width)
    dq = operand_view(code, scope, grad.dq, stage.rows, stage.depth)
    lse = operand_view(code, scope, stage.lse, stage.rows)
    delta = operand_view(code, scope, grad.delta, stage.rows)

    def blocks(window: Window) -> None:
        head = Head(window, q, d_out, dq, lse, delta)
        code.f.loop(0, queries, code.block.rows, lambda i, _: _block(backward, head, chunk, i))

    with_key_mask(code, scope, "0", queries, blocks)


def _block(backward: Backward, head: Head, chunk: KeyChunk, first: str) -> None:
    """One block of query rows, if it sees any key of the chunk.

    The first chunk sets dq to 0 where it sees none.
    """
    code, f, problem = backward.code, backward.code.f, backward.code.problem
    count = f.least(f.op(f"sub i64 {problem.queries}, {first}"), code.block.rows)
    low, high = keys_of_rows(code, head.window, first, count)
    keys = f.most(low, chunk.keys[0]), f.least(high, chunk.keys[1])
    dq = code.from_row(head.dq, first)

    def clear() -> None:
        fill_rows(code, dq, count, problem.depth, lambda *_: code.splat(0))

    some = f.op(f"icmp slt i64 {keys[0]}, {keys[1]}")
    is_first = f.op(f"icmp eq i64 {chunk.start}, 0")
    f.when(f.op(f"and i1 {is_first}, {f.op(f'xor i1 {some}, true')}"), clear)
    f.when(some, lambda: _all_keys(backward, head, chunk, Block(first, count), keys))


def _all_keys(backward: Backward, head: Head, chunk: KeyChunk, rows: Block, keys: Range) -> None:
    """A block of rows and the keys of the chunk that it sees."""
    code, f = backward.code, backward.code.f
    q, d_out = code.from_row(head.q, rows.first), code.from_row(head.d_out, rows.first)
    q, d_out = backward.gradients.pack_queries(q, d_out, rows.count)

    def some(start: str, _: list[str]) -> None:
        here = start, f.least(f.add(start, code.block.keys), keys[1])
        is_later = f.op(f"icmp ne i64 {start}, {keys[0]}")
        is_later = f.op(f"or i1 {is_later}, {f.op(f'icmp ne i64 {chunk.start}, 0')}")
        _keys_of_block(backward, head, chunk, rows, here, q, d_out, is_later)

    f.loop(*keys, code.block.keys, some, at_least_once=True)


def _keys_of_block(
    backward: Backward,
    head: Head,
    chunk: KeyChunk,
    rows: Block,
    keys: Range,
    q: View,
    d_out: View,
    is_later: str,
) -> None:
    """A block of rows and one of keys. is_later: these keys are not the first for dq."""
    code, f, problem = backward.code, backward.code.f, backward.code.problem
    products, gradients, window = backward.products, backward.gradients, head.window
    skip = f.op(f"sub i64 0, {f.mul(keys[0], problem.size)}")
    p, ds = f.offset(backward.p, skip), f.offset(backward.ds, skip)
    ds_terms = at_key_0(code, backward.ds_terms, keys[0], problem.weight_size)
    weights = Weights(backward.p, backward.ds, p, ds, ds_terms)
    products.scores(window, q, problem.depth, chunk.packed_k, p, rows, keys)
    products.scores(window, d_out, problem.width, chunk.packed_v, ds, rows, keys)

    def row(i: str, _: list[str]) -> None:
        _row(backward, head, chunk, weights, i, f.add(rows.first, i), keys)

    f.loop(0, rows.count, 1, row, at_least_once=True)
    to, adds = gradients.dq_product(head.dq, rows.first, is_later)
    _product_for_dq(backward, window, chunk, rows, keys, to, adds)
    gradients.finish_dq(head.dq, rows.first, rows.count, is_later)
    gradients.add(chunk, window, weights, rows, keys)


def _product_for_dq(
    backward: Backward,
    window: Window,
    chunk: KeyChunk,
    rows: Block,
    keys: Range,
    to: View,
    adds: str,
) -> None:
    """to = ds k, or to + ds k where `adds` is 1."""
    code, f, problem = backward.code, backward.code.f, backward.code.problem
    end = f.least(keys[1], problem.keys)

    def steps(i: str, height: int) -> tuple[str, str]:
        low, high = keys_of_tile(code, window, f.add(rows.first, i), height)
        low, high = f.least(f.most(low, keys[0]), end), f.least(high, end)
        return (
            f.op(f"sub i64 {low}, {chunk.start}"),
            f.most(f.op(f"sub i64 {high}, {low}"), 0),
        )

    # Where the row would have the chunk's first key.
    skipped = f.op(f"sub i64 {keys[0]}, {chunk.start}")
    ds = View(at_key_0(code, backward.ds_terms, skipped, problem.weight_size), code.block.stride)
    count = rows.count, problem.queries
    backward.products.product(ds, backward.key_rows, to, count, steps, adds)


def _row(
    backward: Backward,
    head: Head,
    chunk: KeyChunk,
    weights: Weights,
    i: str,
    row: str,
    keys: Range,
) -> None:
    """p in place of row i of scores, ds in place of a row of d_out v^T. row: its number in its
    head."""
    code, f, problem, window = backward.code, backward.code.f, backward.code.problem, head.window
    width = code.lanes.width
    _prefetch_next_rows(backward, head, chunk, i, row)
    skip = f.mul(i, code.block.stride * problem.size)
    pointers = [(f.offset(block, skip), problem.size) for block in (weights.p, weights.ds)]
    pointers += term_rows(code, weights.ds_terms, i)
    lse = code.load_scalar(code.element(head.lse, row)).splat(width)
    delta = code.load_scalar(code.element(head.delta, row)).splat(width)
    pending: Pending | None = None

    def body(here: Scope, at: list[str]) -> None:
        nonlocal pending
        score, mask, scale = code.load(at[0]), here.copy.mask, window.scale
        here = with_score(code, here, score)
        if scale is None:
            p = weight(code, mask, logit(code, here) - lse)
        else:
            p = weight(code, mask, fma(score, scale, -lse))
        slope = scale or value(here, backward.plan.grad.slope)
        ds = p * (code.load(at[1]) - delta)
        ds = ds * (slope.splat(width) if isinstance(slope, Vec) else slope)
        code.store(p, at[0])
        ds = mask.where(ds, code.splat(0)) if mask is not None else ds
        code.store(ds, at[1])
        if at[2:]:
            pending = store_terms(code, ds, at[2:], pending)

    walk_row(code, window, row, keys, pointers, body)


def _prefetch_next_rows(backward: Backward, head: Head, chunk: KeyChunk, i: str, row: str) -> None:
    """A row of the next block of queries, and one of dk and dv that this block writes."""
    code, f, problem = backward.code, backward.code.f, backward.code.problem
    rows = code.block.rows
    for view, columns in ((head.q, problem.depth), (head.d_out, problem.width)):
        prefetch_row(code, view, f.add(row, rows), columns)
    prefetch_row(code, head.dq, f.add(row, rows), problem.depth, write=True)
    if backward.plan.writes_directly:
        for view, columns in zip(chunk.sums, (problem.depth, problem.width), strict=True):
            prefetch_row(code, view, i, columns, write=True)
