"""The peer: one token of GPT-2 or Llama in eager PyTorch, with a cache of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fxad_nn.rotary import rotary_tables


def tensor(array: Any, turned: bool = False) -> torch.Tensor:
    """A parameter as PyTorch keeps it: matrices [out, in]."""
    found = np.array(array)
    if found.dtype.name == "bfloat16":
        made = torch.from_numpy(found.view(np.int16)).view(torch.bfloat16)
    else:
        made = torch.from_numpy(found)
    return made.T.contiguous() if turned else made


class Decoder:
    """step(token, position) -> the next token, drawn at a temperature from the `top_k` likeliest.

    params: the tree of fxad_nn, read once.
    """

    def __init__(self, params: Any, config: Any, length: int) -> None:
        self.config = c = config
        self.table = tensor(params["embed"]["token"])
        self.gpt2 = "position" in params["embed"]
        groups, dim = (c.heads if self.gpt2 else c.groups), c.head_dim
        self.blocks = [self._block(p) for p in params["blocks"]]
        self.norm = {k: tensor(v) for k, v in params["norm"].items()}
        shape, dtype = (1, groups, length, dim), self.table.dtype
        self.cache = [
            (torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in self.blocks
        ]
        if self.gpt2:
            self.places = tensor(params["embed"]["position"])
        else:
            tables = rotary_tables(length, dim, c.rope_theta, c.rope_scaling)
            self.tables = [torch.from_numpy(t.astype(np.float32)).to(dtype) for t in tables]

    def _block(self, p: Any) -> dict[str, Any]:
        """Norms, and linear layers as (weight, bias); products of one input are one."""
        found: dict[str, Any] = {
            name: {k: tensor(v) for k, v in p[name].items()} for name in ("norm1", "norm2")
        }
        layers = {**p["attention"], **p["mlp"]}
        together = {"qkv": "qkv", "out": "out", "up": "up", "down": "down"}
        if "q" in layers:
            together = {"qkv": "q k v", "out": "out", "up": "gate up", "down": "down"}
        for name, parts in together.items():
            weights = [tensor(layers[part]["weight"], turned=self.gpt2) for part in parts.split()]
            bias = layers[parts.split()[0]].get("bias")
            whole = weights[0] if len(weights) == 1 else torch.cat(weights)
            found[name] = (whole, None if bias is None else tensor(bias))
        return found

    def _normed(self, p: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        if self.gpt2:
            bias, epsilon = p.get("bias"), self.config.norm_epsilon
            return functional.layer_norm(x, x.shape[-1:], p["scale"], bias, epsilon)
        return functional.rms_norm(x, x.shape[-1:], p["scale"], self.config.norm_epsilon)

    def _turned(self, x: torch.Tensor, position: int) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        cosines, sines = (t[position] for t in self.tables)
        return x * cosines + torch.cat([-second, first], dim=-1) * sines

    def logits(self, token: int, position: int) -> torch.Tensor:
        """[vocab], after writing the token's keys and values."""
        c, dim = self.config, self.config.head_dim
        x = self.table[token]
        if self.gpt2:
            x = x + self.places[position]
        for p, (keys, values) in zip(self.blocks, self.cache, strict=True):
            heads = functional.linear(self._normed(p["norm1"], x), *p["qkv"]).view(-1, dim)
            q, k, v = heads.split([c.heads, keys.shape[1], keys.shape[1]])
            if not self.gpt2:
                q, k = self._turned(q, position), self._turned(k, position)
            keys[0, :, position], values[0, :, position] = k, v
            seen = keys[:, :, : position + 1], values[:, :, : position + 1]
            y = functional.scaled_dot_product_attention(
                q[None, :, None], *seen, enable_gqa=c.heads != keys.shape[1]
            )
            x = x + functional.linear(y.reshape(-1), *p["out"])
            up = functional.linear(self._normed(p["norm2"], x), *p["up"])
            if self.gpt2:
                up = functional.gelu(up, approximate="tanh")
            else:
                gate, up = up.chunk(2)
                up = functional.silu(gate) * up
            x = x + functional.linear(up, *p["down"])
        return functional.linear(self._normed(self.norm, x), self.table)

    @torch.inference_mode()
    def step(self, token: int, position: int, temperature: float, top_k: int) -> int:
        likeliest, ids = torch.topk(self.logits(token, position).float(), top_k)
        drawn = torch.multinomial(torch.softmax(likeliest / temperature, -1), 1)
        return int(ids[drawn])
