"""A step of fine-tuning against transformers and PEFT in PyTorch, on random weights of real shapes.

    python -m benchmarks.finetune --peers torch,torch-f32
    python -m benchmarks.finetune --model qwen2.5-0.5b --full --peers torch,torch-compile
    python -m benchmarks.finetune --quantize nf4 --memory-only

LoRA of rank 16 beside every linear layer but the head, or all weights with `--full`; AdamW, no
dropout, one row of tokens that are all answers (`--answers 0.25`: the last quarter). Weights are
bfloat16; with `--full` ours are held in float32 with bfloat16 factors of products, the peers' run
under autocast, so that small updates are not lost in either. `torch-f32` is the peer with float32
weights and products, which some processors are faster at. With `--quantize` our frozen matrices are
in 4 or 8 bits and blocks are recomputed for their gradient, as `fxad_nn finetune --quantize` does.

Steps alternate in one process with the same number of threads. Peak memory and the first call's
time are of each contender alone, in a fresh process. `compile s` is what of ours is tracing and
compiling; what else the first call takes over a step is memory that is touched for the first time.
`FXAD_CACHE=0` has it compiled anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from fxad_nn.decoder import Config

RANK, ALPHA, RATE = 16, 32.0, 1e-4
PEAK_STEPS = 2
MODELS = {
    "llama3.2-1b": Config(
        vocab=128256, context=131072, layers=16, heads=32, groups=8, width=2048, head_dim=64,
        hidden=8192, rope_theta=500000.0, tied=True, dtype="bfloat16",
    ),
    "llama3.1-8b": Config(
        vocab=128256, context=131072, layers=32, heads=32, groups=8, width=4096, head_dim=128,
        hidden=14336, rope_theta=500000.0, dtype="bfloat16",
    ),
    "qwen2.5-0.5b": Config(
        vocab=151936, context=32768, layers=24, heads=14, groups=2, width=896, head_dim=64,
        hidden=4864, rope_theta=1e6, norm_epsilon=1e-6, tied=True, qkv_bias=True,
        family="qwen2", dtype="bfloat16",
    ),
}  # fmt: skip
Contender = tuple[Callable[[], float], dict[str, float]]  # a step, and seconds that it took first


def ours(args: argparse.Namespace) -> Contender:
    import fxad
    from fxad_nn import models, optim
    from fxad_nn.lora import add_lora, trainable
    from fxad_nn.objective import Answers
    from fxad_nn.quantized import is_quantized
    from fxad_nn.step import tuning_step

    config, key = MODELS[args.model], fxad.random.key(0)
    if args.full:
        config = replace(config, dtype="float32", products="bfloat16")
    if args.quantize:
        config = replace(config, recompute=True)
    params = random_params(models.family(config).spec(config), args.quantize)
    chosen: Any = True
    if not args.full:
        params = add_lora(params, config, RANK, ALPHA, "all-linear", key)
        chosen = trainable(params)
    trained, frozen = fxad.tree.partition(params, chosen, is_leaf=is_quantized)
    del params
    optimizer = optim.adamw(optim.constant(RATE))
    step = tuning_step(Answers(config), optimizer, None)
    tokens, targets = _batch(args)
    held = [trained, optimizer.init(trained)]
    del trained

    given = tokens[None], targets[None], np.int32(0)
    start = time.perf_counter()
    step.lower(held[0], held[1], frozen, None, *given).compile()
    compiled = time.perf_counter() - start

    def run() -> float:
        held[0], held[1], loss = step(held[0], held[1], frozen, None, *given)
        return float(loss)

    run, seconds = _started(run)
    return run, {"first call s": compiled + seconds["first call s"], "compile s": compiled}


def random_params(spec: Any, quantize: str | None) -> Any:
    """Arrays for the leaves of a spec: a block of random numbers repeated, some rows at a time;
    matrices of blocks in few bits where asked for."""
    import fxad
    from fxad_nn.arrays import from_rows
    from fxad_nn.quantized import PART, quantized_by_rows

    block = np.random.default_rng(0).normal(0.0, 0.02, 1 << 16)

    def filled(path: Any, leaf: Any) -> Any:
        numbers = block.astype(leaf.dtype)

        def made(start: int, stop: int) -> np.ndarray:
            return np.resize(numbers, (stop - start, *leaf.shape[1:]))

        if quantize and "blocks" in str(path[0]) and len(leaf.shape) == 2:
            return quantized_by_rows(made, *leaf.shape, quantize)
        step = max(PART * leaf.shape[0] // leaf.size, 1)
        return from_rows(lambda start, stop: [made(start, stop)], leaf.shape[0], step)[0]

    return fxad.tree.map_with_path(filled, spec)


def _batch(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    vocabulary = MODELS[args.model].vocab
    rows = np.random.default_rng(0).integers(0, vocabulary, (args.batch, args.tokens + 1))
    tokens, targets = (np.array(part, np.int32) for part in (rows[:, :-1], rows[:, 1:]))
    targets[:, : round(args.tokens * (1 - args.answers))] = -1
    return tokens, targets


def _started(run: Callable[[], float]) -> Contender:
    start = time.perf_counter()
    run()
    return run, {"first call s": time.perf_counter() - start}


def in_torch(
    args: argparse.Namespace, compiled: bool = False, dtype: str = "bfloat16"
) -> Contender:
    import torch
    from torch.nn import functional

    model = _published(MODELS[args.model], "float32" if args.full else dtype)
    model.config.use_cache = False
    if not args.full:
        from peft import LoraConfig, get_peft_model

        wanted = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", lora_dropout=0.0)
        model = get_peft_model(model, wanted)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    tokens, targets = (torch.from_numpy(a.astype(np.int64)) for a in _batch(args))
    mixed = bool(args.full and dtype == "bfloat16")

    def loss_of(tokens: Any, targets: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            logits = model(input_ids=tokens).logits
        return functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=-1
        )

    if compiled:
        loss_of = torch.compile(loss_of)

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(tokens, targets)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return _started(run)


def _published(c: Config, dtype: str) -> Any:
    """The same shape as a model of transformers, with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    made = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
    described, kind = made[c.family]
    config = described(
        vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.hidden,
        num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.groups,
        max_position_embeddings=c.context, rms_norm_eps=c.norm_epsilon, tie_word_embeddings=c.tied,
        rope_theta=c.rope_theta, attn_implementation="sdpa",
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        return kind(config).train()
    finally:
        torch.set_default_dtype(before)


def torch_compiled(args: argparse.Namespace) -> Contender:
    return in_torch(args, compiled=True)


def torch_float32(args: argparse.Namespace) -> Contender:
    return in_torch(args, dtype="float32")


CONTENDERS = {
    "fxad": ours,
    "torch": in_torch,
    "torch-compile": torch_compiled,
    "torch-f32": torch_float32,
}

CASES = [("llama3.2-1b", False), ("qwen2.5-0.5b", False), ("qwen2.5-0.5b", True)]


def rows(quick: bool, peers: Sequence[str]) -> list[harness.Row]:
    """A step of LoRA on Llama 3.2 1B and Qwen 2.5 0.5B, and one of all of the latter's weights, on
    1 x 512 tokens; if quick, none: they take minutes."""
    if quick:
        return []
    found = []
    for model, full in CASES:
        args = argparse.Namespace(model=model, full=full, quantize=None, batch=1, tokens=512)
        args.rounds, args.memory_only, args.answers = 3, False, 1.0
        wanted = [name for name in CONTENDERS if name in peers]
        found += measured(["fxad", *wanted], args)
    return found


def memory_of(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Peak resident memory, first call, compiling and fastest step of one contender in its own
    process."""
    command = [sys.executable, "-m", "benchmarks.finetune", "--alone", name, "--model", args.model]
    command += ["--batch", str(args.batch), "--tokens", str(args.tokens)]
    command += ["--answers", str(args.answers)]
    command += ["--full"] if args.full else []
    command += ["--quantize", args.quantize] if args.quantize else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def alone(args: argparse.Namespace) -> None:
    run, first = CONTENDERS[args.alone](args)
    seconds = []
    for _ in range(PEAK_STEPS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    figures = {"peak MB": harness.peak_memory(), **first, "step s": min(seconds)}
    print(json.dumps(figures))


def measured(names: Sequence[str], args: argparse.Namespace) -> list[harness.Row]:
    """A row for every contender."""
    kind = "all weights" if args.full else f"LoRA {RANK}"
    kind += f" beside {args.quantize}" if args.quantize else ""
    what = f"{args.model} {kind} ({args.batch},{args.tokens})"
    what += f" {args.answers:.0%} answers" if args.answers < 1 else ""
    memory = {name: memory_of(name, args) for name in names}
    if args.memory_only:
        return [{"what": what, "who": name} | memory[name] for name in names]
    runs: dict[str, Callable[[], Any]] = {name: CONTENDERS[name](args)[0] for name in names}
    times = harness.alternate(runs, args.rounds, pause=harness.REST, woken=False)
    found = []
    for name in names:
        figures = harness.summary(times[name])
        made: harness.Row = {
            "what": what,
            "who": name,
            "ms": figures["median"],
            "min": figures["min"],
            "max": figures["max"],
            "speedup": f"{harness.ratio(times['fxad'], times[name]):.2f}",
        }
        found.append(made | memory[name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help=f"comma-separated: {', '.join(CONTENDERS)}")
    parser.add_argument("--model", default="llama3.2-1b", choices=sorted(MODELS))
    parser.add_argument("--full", action="store_true", help="train all weights, not adapters")
    parser.add_argument("--quantize", choices=("nf4", "int8"), help="our frozen matrices")
    parser.add_argument("--memory-only", action="store_true", help="each alone, once")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--answers", type=float, default=1.0, help="share of tokens with a target")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        alone(args)
        return
    names = ["fxad", *(p for p in args.peers.split(",") if p)]
    if unknown := [name for name in names if name not in CONTENDERS]:
        parser.error(f"no peer named {', '.join(unknown)}; there are {', '.join(CONTENDERS)}")
    harness.report("finetune", measured(names, args), args.json)


if __name__ == "__main__":
    main()
