"""Token-by-token generation, batch 1, against PyTorch and against reading the weights once.

    python -m benchmarks.decode --peers torch
    python -m benchmarks.decode --preset llama3.2-1b --dtype bfloat16 --peers torch

A token is one call of the compiled step of `fxad_nn.generate`: the model, its cache, and a draw
from the 200 likeliest. `of memory`: the time that a loop which only reads takes for as many bytes
as the parameters have, over ours; both alternate in one process on the same number of threads.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import ceilings, harness
from benchmarks.harness import Row
from fxad_nn import models
from fxad_nn.spec import count_params, from_named, named_leaves

CASES = [("gpt2", "float32"), ("gpt2", "bfloat16"), ("llama3.2-1b", "bfloat16")]
READ = 1 << 26  # elements of the array that is only read: 256 MiB
TOP_K, TEMPERATURE = 200, 0.8


def parameters(config: models.Config) -> Any:
    """Random parameters, quickly: every leaf repeats parts of the same million numbers."""
    import fxad.numpy as jnp

    pool = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32) * 0.02
    pool = np.asarray(jnp.asarray(pool).astype(config.dtype))
    leaves = named_leaves(models.family(config).spec(config))
    return from_named(
        models.family(config).spec(config),
        {name: jnp.asarray(np.resize(pool, leaf.shape)) for name, leaf in leaves},
    )


def read_bytes(config: models.Config) -> int:
    """Bytes of the parameters that every token reads: all but the rows of a table of positions."""
    spec = models.family(config).spec(config)
    size = np.dtype(config.dtype).itemsize if config.dtype != "bfloat16" else 2
    unread = spec["embed"]["position"].size if "position" in spec["embed"] else 0
    return (count_params(spec) - unread) * size


def ours(params: Any, config: models.Config, start: int, length: int) -> Callable[[], int]:
    """Each call decodes one token, from position `start` on."""
    import fxad
    from fxad_nn.cache import init_cache
    from fxad_nn.generate import next_token

    step, key = next_token(config, config.vocab), fxad.random.key(0)
    limits = {"temperature": np.float32(TEMPERATURE), "top_k": np.int32(TOP_K)}
    held: list[Any] = [0, start, init_cache(config, 1, length)]

    def run() -> int:
        token, position, cache = held
        given = np.array([[token]], np.int32), np.int32(position), np.int32(0)
        found, cache = step(params, cache, *given, key, limits, seen=length)
        held[:] = int(found), position + 1, cache
        return held[0]

    return run


def theirs(params: Any, config: models.Config, start: int, length: int) -> Callable[[], int]:
    from benchmarks.torch_decode import Decoder

    decoder, held = Decoder(params, config, length), [0, start]

    def run() -> int:
        held[:] = decoder.step(held[0], held[1], TEMPERATURE, TOP_K), held[1] + 1
        return held[0]

    return run


def measured(
    preset: str, dtype: str, peers: Sequence[str], rounds: int, start: int, threads: int
) -> Row:
    """One model's row."""
    config = models.preset(preset, dtype=dtype)
    length = start + 2 * (rounds + 1)  # a call to wake threads before each
    length = -(-length // 128) * 128
    params = parameters(config)
    runs: dict[str, Callable[[], Any]] = {"fxad": ours(params, config, start, length)}
    if "torch" in peers:
        runs["torch"] = theirs(params, config, start, length)
    read, size = ceilings.reading(READ, threads)
    times = harness.alternate({**runs, "read": read}, rounds, pause=harness.REST)
    reading = times.pop("read")
    row = harness.row(f"decode {preset} {dtype}, {start} tokens before", times)
    weights = read_bytes(config)
    shares = [r * weights / size / t for r, t in zip(reading, times["fxad"], strict=True)]
    row["tokens/s"] = 1 / min(times["fxad"])
    row["read GB/s"] = size / min(reading) / 1e9
    row["of memory"] = min(reading) * weights / size / min(times["fxad"])
    row["median of memory"] = statistics.median(shares)
    if "torch" in times:
        row["median ahead"] = harness.ratio(times["fxad"], times["torch"])
    return row


def rows(quick: bool, peers: Sequence[str], rounds: int = 20) -> list[Row]:
    """GPT-2 124M in both dtypes and, unless quick, a Llama of 1.2 billion parameters."""
    threads = set_threads(0, peers)
    cases = CASES[:2] if quick else CASES
    return [measured(*case, peers, rounds, 64, threads) for case in cases]


def set_threads(wanted: int, peers: Sequence[str]) -> int:
    """The same number for all; 0: as many as fxad takes by itself."""
    import fxad

    if wanted:
        fxad.set_num_threads(wanted)
    threads = fxad.get_num_threads()
    if "torch" in peers:
        import torch

        torch.set_num_threads(threads)
    return threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--start", type=int, default=64, help="tokens in the cache at first")
    parser.add_argument("--threads", type=int, default=0, help="0: the library's own choice")
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    peers = harness.installed([p for p in args.peers.split(",") if p])
    threads = set_threads(args.threads, peers)
    row = measured(args.preset, args.dtype, peers, args.rounds, args.start, threads)
    harness.report("decode", [row], args.json)


if __name__ == "__main__":
    main()
