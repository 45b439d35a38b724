"""The same work by PyTorch and NumPy, for `--peers`; each in a process of its own.

peers.product("numpy", given, "NN")()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxad
from benchmarks import attention as attentions
from benchmarks import functions
from benchmarks.guard.case import Run
from benchmarks.guard.models import BEFORE, LENGTH, Step, Token, parameters

PEERS = ("numpy", "torch")


def of(dtype: str) -> tuple[str, ...]:
    """Who multiplies matrices of a dtype: NumPy's OpenBLAS knows no bfloat16."""
    return ("torch",) if dtype == "bfloat16" else PEERS


def product(who: str, given: Callable[[], tuple[Any, Any]], layout: str) -> Run:
    """Into a result that is there already: OpenBLAS, or PyTorch's MKL and oneDNN."""
    arrays: list[Any] = [np.asarray(x) for x in given()]
    seen = [x.T if letter == "T" else x for x, letter in zip(arrays, layout, strict=True)]
    shape = (seen[0].shape[0], seen[1].shape[1])
    if who == "numpy":
        into = np.empty(shape, seen[0].dtype)
        return lambda: np.matmul(*seen, out=into)
    import torch

    a, b = (
        _tensor(x).T if letter == "T" else _tensor(x)
        for x, letter in zip(arrays, layout, strict=True)
    )
    out = torch.empty(shape, dtype=a.dtype)
    return lambda: torch.matmul(a, b, out=out)


def _tensor(array: np.ndarray) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def training_step(step: Step) -> Run:
    """Forward, backward and fused AdamW; under autocast for bf16."""
    import torch

    from benchmarks import torch_models

    model = torch_models.model_of(step.config)
    run = torch_models.training_step(model, narrow=step.dtype == "bf16")
    tokens, targets = (torch.from_numpy(x.astype(np.int64)) for x in step.drawn())
    return lambda: run(tokens, targets)


def small_step(name: str) -> Run:
    """A step of one of `benchmarks.models`."""
    from benchmarks import torch_small

    return torch_small.training_step(name, compiled=False)


def token(token: Token) -> Run:
    """One token, at the same position each time."""
    from benchmarks.torch_decode import Decoder

    decoder = Decoder(parameters(token.config), token.config, LENGTH)
    return lambda: decoder.step(1, BEFORE, 0.8, 200)


def attention(case: attentions.Case, kind: str) -> Run:
    return attentions.theirs(case)[kind]


def function(who: str, name: str, elements: int, dtype: str) -> Run:
    """On as many threads as fxad takes; NumPy has one."""
    threads = fxad.get_num_threads()
    return functions.contenders(name, [who], elements, dtype, threads)[who]
