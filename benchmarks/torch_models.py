"""GPT-2 and Llama in PyTorch with its own fused pieces: SDPA, norms, GELU, cross-entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.out(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Tied head, learned positions; forward gives the mean cross-entropy."""

    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Any, targets: Any) -> Any:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.dim = heads, groups, width // heads
        keys = groups * self.dim
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv = nn.Linear(width, width + 2 * keys, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any, cosines: Any, sines: Any) -> Any:
        B, T, C = x.shape
        keys = self.groups * self.dim
        q, k, v = self.qkv(self.norm_1(x)).split([C, keys, keys], dim=2)
        q, k, v = (t.view(B, T, -1, self.dim).transpose(1, 2) for t in (q, k, v))
        q, k = (_rotated(t, cosines, sines) for t in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=2)
        return x + self.down(functional.silu(gate) * up)


def _rotated(x: Any, cosines: Any, sines: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class Llama(nn.Module):
    """Grouped queries, rotary positions, SwiGLU, tied head; forward gives the mean cross-entropy.

    q, k, v and gate, up are one product each, which is faster here than five.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        c = config
        self.wte = nn.Embedding(c.vocab, c.width)
        self.blocks = nn.ModuleList(
            LlamaBlock(c.width, c.heads, c.groups, c.hidden) for _ in range(c.layers)
        )
        self.norm = nn.RMSNorm(c.width, 1e-5)
        powers = torch.arange(0, c.head_dim, 2) / c.head_dim
        angles = torch.outer(torch.arange(c.context), c.rope_theta**-powers).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Any, targets: Any) -> Any:
        x, time = self.wte(tokens), tokens.shape[1]
        for block in self.blocks:
            x = block(x, self.cosines[:time], self.sines[:time])
        logits = self.norm(x) @ self.wte.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def model_of(config: Any) -> nn.Module:
    """The peer of a configuration of fxad_nn."""
    if hasattr(config, "rope_theta"):
        return Llama(config)
    return GPT2(config.vocab, config.context, config.layers, config.heads, config.width)


def training_step(
    model: nn.Module, compiled: bool = False, narrow: bool = False, lr: float = 3e-4
) -> Any:
    """step(tokens, targets) -> loss: forward, backward, fused AdamW; eager or by torch.compile.

    narrow: under autocast to bfloat16.
    """
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )

    run = torch.compile(model) if compiled else model

    def step(tokens: Any, targets: Any) -> float:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss = run(tokens, targets)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step
