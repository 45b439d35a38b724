"""What is decided of attention's kernels before their code is written."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad.backend.llvm.attention.backward_plan import BackwardPlan
from fxad.backend.llvm.attention.code import View
from fxad.backend.llvm.attention.decode import DecodePlan, uses_decode
from fxad.backend.llvm.attention.forward import ForwardPlan
from fxad.backend.llvm.attention.problem import Problem
from fxad.backend.llvm.attention.vector_products import whole_rows
from fxad.backend.llvm.base.schedule import Target
from fxad.ir.kernel import Attention, AttentionGrad, Kernel

TARGETS = [Target(isa) for isa in ("avx512", "avx2", "neon", "generic")]
TILES = Target("avx512", frozenset({"amx_bf16", "amx_float32"}))


def kernel_of(
    kind: type, queries: int, keys: int, heads=2, groups=2, mask=None, **options
) -> Kernel:
    """The kernel of that kind of stage, of heads of 64."""

    def loss(q, k, v):
        return fxad.nn.dot_product_attention(q, k, v, mask=mask, **options).sum()

    shapes = (queries, heads), (keys, groups), (keys, groups)
    args = [fxad.ShapeDtypeStruct((1, time, count, 64), "float32") for time, count in shapes]
    function = loss if kind is Attention else fxad.grad(loss, argnums=(0, 1, 2))
    (found,) = (k for k in fxad.jit(function).lower(*args).kernels if isinstance(k.body[0], kind))
    return found


def problem_of(kernel: Kernel, target: Target) -> Problem:
    (stage,) = kernel.body
    forward = stage.forward if isinstance(stage, AttentionGrad) else stage
    return Problem.of(kernel, forward, "attention", target)


def padding(keys: int, heads: int = 1) -> np.ndarray:
    """A mask [1, heads, 1, keys] that lets fewer keys through for each head."""
    return (np.arange(keys) < keys // 2 + np.arange(heads)[:, None])[None, :, None]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_panels_hold_all_keys_and_register_tiles_fit_the_registers(target):
    problem = problem_of(kernel_of(Attention, 100, 333), target)
    assert problem.panel == problem.panel_vectors * target.lanes(problem.dtype)
    assert problem.keys <= problem.padded_keys < problem.keys + problem.panel
    assert problem.tile_rows * problem.panel_vectors < target.registers


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_groups_of_columns_follow_each_other_and_their_tiles_fit_the_registers(target):
    problem = problem_of(kernel_of(Attention, 100, 333), target)
    for columns in (1, 15, 16, 17, 64, 80, 100, 128, 257, 640):
        right = whole_rows(problem, View("%b", columns), 333, columns)
        ends = [group.start + group.count for group in right.groups]
        assert [group.start for group in right.groups] == [0, *ends[:-1]]
        assert ends[-1] == columns
        widest = max(group.stride for group in right.groups) // problem.lane_width
        assert 48 % right.tile_rows == 0 and right.tile_rows * widest < target.registers


def test_a_scale_alone_is_recognised_and_a_bias_is_not():
    plain = problem_of(kernel_of(Attention, 100, 333), TARGETS[0])
    assert plain.scale == 0.125 and plain.mask is None
    biased = kernel_of(Attention, 100, 333, bias=np.ones((1, 1, 100, 333), np.float32))
    assert problem_of(biased, TARGETS[0]).scale is None


def test_a_mask_of_keys_is_recognised_and_one_of_queries_is_not():
    found = problem_of(kernel_of(Attention, 100, 333, mask=padding(333)), TARGETS[0])
    assert found.mask is not None and found.mask.scale == 0.125 and found.scale is None
    of_pairs = np.random.default_rng(0).random((1, 1, 100, 333)) < 0.5
    assert problem_of(kernel_of(Attention, 100, 333, mask=of_pairs), TARGETS[0]).mask is None


@pytest.mark.parametrize("heads", [1, 4], ids=["mask of all heads", "mask of each head"])
def test_decoding_takes_no_mask_that_differs_between_heads_that_share_keys(heads):
    kernel = kernel_of(Attention, 1, 333, heads=4, groups=1, mask=padding(333, heads))
    problem = problem_of(kernel, TARGETS[0])
    assert uses_decode(kernel, problem.stage)
    plan = DecodePlan.of(problem)
    assert (plan.sharing, plan.heads, plan.rows) == (4, 1, 4)
    assert (plan.problem.mask is None) == (heads > 1)


@pytest.mark.parametrize("queries", [97, 1024, 5000])
@pytest.mark.parametrize("target", [*TARGETS, TILES], ids=[*(t.isa for t in TARGETS), "tiles"])
def test_units_cover_all_blocks_of_queries_and_none_is_empty(queries, target):
    kernel = kernel_of(Attention, queries, 1024, heads=4, groups=2)
    plan = ForwardPlan.of(problem_of(kernel, target))
    assert (plan.sharing, plan.heads) == (2, 2)
    unit_rows = plan.unit_blocks * plan.block.rows
    assert (plan.head_units - 1) * unit_rows < queries <= plan.head_units * unit_rows
    assert plan.block.keys % plan.problem.panel == 0


def test_few_values_are_read_in_place_and_those_of_shared_heads_are_packed():
    in_place = [(128, 2), (129, 2), (128, 1)]
    plans = [
        ForwardPlan.of(problem_of(kernel_of(Attention, 100, keys, groups=groups), TARGETS[0]))
        for keys, groups in in_place
    ]
    assert [plan.packs_values for plan in plans] == [False, True, True]


@pytest.mark.parametrize(
    ("queries", "heads", "mask", "target", "directly"),
    [
        (96, 2, None, TARGETS[0], True),
        (97, 2, None, TARGETS[0], False),
        (96, 4, None, TARGETS[0], False),
        (96, 2, padding(600), TARGETS[0], False),
        (128, 2, None, TILES, False),
    ],
    ids=["a block", "two blocks", "two heads", "a mask", "tiles"],
)
def test_cotangents_of_keys_are_written_directly_where_one_block_gives_them(
    queries, heads, mask, target, directly
):
    kernel = kernel_of(AttentionGrad, queries, 600, heads=heads, mask=mask)
    (stage,) = kernel.body
    plan = BackwardPlan.of(problem_of(kernel, target), stage)
    assert plan.writes_directly == directly
    assert plan.chunk % plan.problem.panel == 0 and plan.block.keys <= plan.chunk
    assert plan.problem.bf16x6 == (target is TILES)
