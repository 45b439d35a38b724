"""The models of `benchmarks.models` in PyTorch, of its own layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import models


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(64, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.gru(x)[1][0])


class VitBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norm1(x)).split(x.shape[2], dim=2)
        q, k, v = (t.view(*x.shape[:2], 3, -1).transpose(1, 2) for t in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Vit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Linear(48, width)
        self.position = nn.Parameter(torch.randn(64, width) * 0.02)
        self.blocks = nn.Sequential(*[VitBlock(width) for _ in range(6)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.blocks(self.patch(x) + self.position)
        return self.out(self.norm(x).mean(1))


def _mlp() -> nn.Module:
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def _convnet() -> nn.Module:
    """Channels last inside, which is the faster order on a CPU."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model.to(memory_format=torch.channels_last)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": _mlp,
    "convnet": _convnet,
    "gru": Gru,
    "vit": lambda: Vit(192),
}


def training_step(name: str, compiled: bool) -> Callable[[], float]:
    """One step at each call: forward, backward, fused AdamW; eager or by torch.compile."""
    model = MODELS[name]()
    x, labels = map(torch.from_numpy, models.MODELS[name][1](models.Numbers())[1])
    labels = labels.long()
    if name == "convnet":
        x = x.permute(0, 3, 1, 2)  # its memory is that of channels last
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=models.RATE,
        betas=models.BETAS,
        eps=models.EPSILON,
        weight_decay=models.DECAY,
        fused=True,
    )
    forward = torch.compile(model) if compiled else model

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(forward(x), labels)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step
