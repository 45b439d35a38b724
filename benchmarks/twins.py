"""Training beside the same model in PyTorch: same weights, batches and rates, losses compared.

    python -m benchmarks.twins gpt2 --text input.txt --vocabulary DIR
    python -m benchmarks.twins qwen --text input.txt --vocabulary DIR --precision mixed

Two models of GPT-2's vocabulary: a GPT-2 of 37M parameters and a Qwen 2.5 of 16M. Ours is saved in
Hugging Face's format, from which transformers makes the twin; both are then trained by AdamW,
clipped at 1, on 4 x 256 tokens a step of the text's first nine tenths. Losses are over the whole
last tenth. The twin computes in float32; with `--precision` bfloat16 or mixed, under autocast.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import Model, models, optim, save, spec
from fxad_nn.data import open_data, random_batch, windows
from fxad_nn.evaluate import Evaluator
from fxad_nn.step import train_step

ROWS, CONTEXT, CLIP = 4, 256, 1.0
BETAS, DECAY = (0.9, 0.95), 0.1
PEAK, FINAL, WARMUP = 1e-3, 1e-4, 20
VOCAB = 50257
MODELS = {
    "gpt2": models.preset("gpt2", layers=6, heads=6, width=384, context=CONTEXT),
    "qwen": models.preset(
        "qwen2.5-0.5b", vocab=VOCAB, context=CONTEXT, layers=12, width=192, heads=6, groups=2,
        head_dim=32, hidden=768,
    ),
}  # fmt: skip
Contender = tuple[Callable[[int], float], Callable[[], float]]  # a step by number; validation loss


def ours(config: Any, params: Any, data: Any, args: argparse.Namespace) -> Contender:
    rate = optim.cosine(PEAK, FINAL, WARMUP, args.steps)
    optimizer = optim.adamw(rate, *BETAS, weight_decay=DECAY)
    step = train_step(config, optimizer, CLIP, dtype=args.precision)
    evaluate = Evaluator(config)
    held = [params, optimizer.init(params)]

    def run(number: int) -> float:
        held[0], held[1], loss = step(held[0], held[1], *_batch(data, number))
        return float(loss)

    return run, lambda: evaluate(held[0], data.val, CONTEXT, ROWS)


def in_torch(directory: Path, data: Any, args: argparse.Namespace) -> Contender:
    import torch
    from torch.nn import functional
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).train()
    for module in model.modules():  # ours has no dropout
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    groups = [[p for p in model.parameters() if (p.ndim >= 2) == wide] for wide in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": g, "weight_decay": d} for g, d in zip(groups, (DECAY, 0.0), strict=True)],
        betas=BETAS,
    )
    rate = optim.cosine(PEAK, FINAL, WARMUP, args.steps)
    rounded = args.precision in ("bfloat16", "mixed")

    def loss_of(tokens: Any, targets: Any, reduction: str) -> Any:
        ids, wanted = (torch.from_numpy(a.astype(np.int64)) for a in (tokens, targets))
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded and reduction == "mean"):
            logits = model(input_ids=ids).logits
        return functional.cross_entropy(
            logits.float().flatten(0, 1), wanted.flatten(), ignore_index=-1, reduction=reduction
        )

    def run(number: int) -> float:
        for group in optimizer.param_groups:
            group["lr"] = float(rate(np.float32(number)))
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*_batch(data, number), "mean")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return float(loss.detach())

    def validated() -> float:
        with torch.no_grad():
            parts = list(windows(data.val, ROWS, CONTEXT))
            total = sum(float(loss_of(*part, "sum")) for part in parts)
        return total / sum(int((targets >= 0).sum()) for _, targets in parts)

    return run, validated


def _batch(data: Any, number: int) -> Any:
    return random_batch(data.train, ROWS, CONTEXT, seed=1, index=number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--vocabulary", type=Path, required=True, help="with GPT-2's BPE files")
    parser.add_argument("--precision", choices=("bfloat16", "mixed"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=100, help="steps between validations")
    args = parser.parse_args()

    config, data = MODELS[args.model], open_data(args.text, "gpt2", args.vocabulary)
    params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    size = sum(p.size for p in fxad.tree.leaves(params))
    print(f"{args.model}: {size / 1e6:.1f}M parameters, {args.steps} steps", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        save(Model(params, config), directory)
        twin = in_torch(Path(directory), data, args)
    sides = {"fxad": ours(config, params, data, args), "PyTorch": twin}
    seconds = dict.fromkeys(sides, 0.0)
    print("step  " + "".join(f"{name + ' train':>15}{'validation':>12}" for name in sides))
    for number in range(args.steps):
        losses = {}
        for name, (run, _) in sides.items():
            start = time.perf_counter()
            losses[name] = run(number)
            seconds[name] += time.perf_counter() - start
        if (number + 1) % args.every == 0 or number == 0:
            shown = "".join(f"{losses[n]:15.4f}{check():12.4f}" for n, (_, check) in sides.items())
            print(f"{number + 1:<6}{shown}", flush=True)
    print("s     " + "".join(f"{s:15.0f}{'':12}" for s in seconds.values()))


if __name__ == "__main__":
    main()
