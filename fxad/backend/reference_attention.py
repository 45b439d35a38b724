"""What the attention stages mean, in NumPy and double precision: see `ir.kernel.Attention`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.ir import kernel as ir


class Attention:
    """Scores and weights of all grid points of an Attention stage.

    run: the walker of `reference`, which evaluates indices and expressions over its axes.
    """

    def __init__(self, run: Any, stage: ir.Attention, *group: ir.Axis) -> None:
        self.run, self.stage, self.group = run, stage, group
        self.q = self.read(stage.q, stage.rows, stage.depth)
        self.k = self.read(stage.k, stage.keys, stage.depth)
        self.v = self.read(stage.v, stage.keys, stage.width)
        run.enter((*group, stage.rows, stage.keys))
        run.cells[stage.score] = self.q @ np.swapaxes(self.k, -1, -2)
        self.logit = np.asarray(run.value(stage.logit), np.float64)
        j = run.env[stage.keys]
        self.seen = (j >= run.index(stage.lower)) & (j < run.index(stage.upper))
        self.logit = np.where(self.seen, self.logit, -np.inf)

    def read(self, operand: ir.Operand, *axes: ir.Axis) -> np.ndarray:
        """An operand over the grid, the group and its own axes."""
        shape = self.run.enter((*self.group, *axes))
        at = np.broadcast_to(self.run.index(operand.index), shape)
        return self.run.read(operand.buffer, at).astype(np.float64)

    def write(self, operand: ir.Operand, value: np.ndarray, *axes: ir.Axis) -> None:
        shape = self.run.enter(axes)
        at = np.broadcast_to(self.run.index(operand.index), shape)
        self.run.buffers[operand.buffer][at] = value.astype(operand.buffer.dtype)


def attention(run: Any, stage: ir.Attention) -> None:
    """out and lse of every grid point."""
    here = Attention(run, stage)
    top = here.logit.max(axis=-1, initial=-np.inf, keepdims=True)
    weights = np.exp(here.logit - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    out = weights @ here.v / np.where(total == 0, 1, total)
    lse = (np.where(np.isneginf(top), 0, top) + np.log(total))[..., 0]
    here.write(stage.out, out, stage.rows, stage.width)
    here.write(stage.lse, lse, stage.rows)


def attention_grad(run: Any, stage: ir.AttentionGrad) -> None:
    """dq, dk and dv of every grid point."""
    inner = stage.forward
    here = Attention(run, inner, stage.group)
    slope = np.asarray(run.value(stage.slope), np.float64)
    d_out = here.read(inner.out, inner.rows, inner.width)
    lse, delta = (here.read(x, inner.rows)[..., None] for x in (inner.lse, stage.delta))
    p = np.where(here.seen, np.exp(here.logit - lse), 0)
    ds = np.where(here.seen, p * (d_out @ np.swapaxes(here.v, -1, -2) - delta) * slope, 0)
    here.write(stage.dq, ds @ here.k, stage.group, inner.rows, inner.depth)
    here.write(stage.dk, (np.swapaxes(ds, -1, -2) @ here.q).sum(axis=-3), inner.keys, inner.depth)
    here.write(stage.dv, (np.swapaxes(p, -1, -2) @ d_out).sum(axis=-3), inner.keys, inner.width)
