"""Attention, forward and forward with backward, against PyTorch's fused attention.

    python -m benchmarks.attention --peers torch --rounds 7
    python -m benchmarks.attention --peers torch --only window --cpu    # on a busy machine

Times alternate in one process with the same number of threads; the backward pass gives all three
cotangents. Where PyTorch runs too, results are compared first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import Row

Calls = dict[str, Callable[[], Any]]
PASSES = ("forward", "with backward")


@dataclass(frozen=True)
class Case:
    """q [batch, time, heads, width]; k and v with `groups` heads.

    window: keys before a query that it sees (0: all). padded: sequences end early, the first after
    half its length. new: only the last so many positions are queries (0: all); forward only.
    documents: of equal length in each row, which do not see each other (0: one).
    """

    batch: int
    time: int
    heads: int
    groups: int
    width: int
    causal: bool = True
    window: int = 0
    padded: bool = False
    new: int = 0
    documents: int = 0

    @property
    def queries(self) -> int:
        return self.new or self.time

    @property
    def name(self) -> str:
        heads = f"{self.heads}/{self.groups}" if self.groups != self.heads else f"{self.heads}"
        kind = "causal" if self.causal else "padding" if self.padded else "full"
        kind = f"window {self.window}" if self.window else kind
        kind += f", {self.documents} documents" if self.documents else ""
        time = f"last {self.new} of {self.time}" if self.new else str(self.time)
        return f"{self.batch} x {time}, {heads} heads of {self.width}, {kind}"

    @property
    def pairs(self) -> float:
        """Pairs of a query and a key, masked ones included."""
        return float(self.batch * self.heads * self.queries * self.time)

    @property
    def segments(self) -> np.ndarray:
        """Which document each position is of: [batch, time]."""
        ids = np.arange(self.time, dtype=np.int32) * self.documents // self.time
        return np.broadcast_to(ids, (self.batch, self.time)).copy()

    @property
    def lengths(self) -> np.ndarray:
        return np.linspace(self.time // 2, self.time, self.batch).astype(np.int32)


CASES = [
    Case(4, 64, 12, 12, 64),
    Case(4, 256, 12, 12, 64),
    Case(1, 1024, 12, 12, 64),
    Case(1, 1024, 8, 8, 32),
    Case(1, 1024, 8, 8, 128),
    Case(1, 1024, 4, 4, 256),
    Case(2, 256, 8, 2, 64),
    Case(1, 2048, 8, 2, 128),
    Case(1, 4096, 4, 4, 64, window=512),
    Case(4, 512, 8, 8, 64, causal=False, padded=True),
    Case(4, 512, 8, 8, 64, causal=False),
    Case(1, 4096, 4, 4, 64),
    Case(1, 8192, 2, 1, 64),
    Case(1, 256, 12, 12, 64, new=1),
    Case(1, 4096, 12, 12, 64, new=1),
    Case(8, 1024, 12, 12, 64, new=1),
    Case(1, 8192, 2, 1, 64, new=1),
    Case(1, 4096, 32, 8, 128, new=1),
    Case(1, 4096, 32, 8, 128, new=4),
    Case(1, 4096, 12, 12, 64, new=128),
    Case(1, 2048, 12, 12, 64),
    Case(1, 2048, 12, 12, 64, documents=8),
]


def draw(case: Case) -> list[np.ndarray]:
    """q, k, v and the cotangent of the result."""
    r = np.random.default_rng(0)
    heads = (case.heads, case.groups, case.groups, case.heads)
    times = (case.queries, case.time, case.time, case.queries)
    shapes = [(case.batch, t, h, case.width) for t, h in zip(times, heads, strict=True)]
    return [r.standard_normal(shape).astype(np.float32) for shape in shapes]


def functions(case: Case) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Attention of (q, k, v), and of (q, k, v, cotangent) with the backward pass."""
    import fxad

    options: dict[str, Any] = {"is_causal": case.causal}
    if case.window:
        options["local_window_size"] = (case.window, 0)
    if case.new:
        options = {"local_window_size": (case.time, case.time - case.new)}
    if case.padded:
        options["key_value_seq_lengths"] = case.lengths
    if case.documents:
        options["segment_ids"] = case.segments

    def attention(q: Any, k: Any, v: Any) -> Any:
        return fxad.nn.dot_product_attention(q, k, v, **options)

    def both(q: Any, k: Any, v: Any, d_out: Any) -> Any:
        out, back = fxad.vjp(attention, q, k, v)
        return out, back(d_out)

    return attention, both


def ours(case: Case) -> Calls:
    """Closures: forward alone, and with the backward pass."""
    import fxad
    import fxad.numpy as jnp

    q, k, v, d_out = (jnp.asarray(x) for x in draw(case))
    forward, step = map(fxad.jit, functions(case))
    return dict(zip(PASSES, (lambda: forward(q, k, v), lambda: step(q, k, v, d_out)), strict=True))


def theirs(case: Case) -> Calls:
    import torch

    q, k, v, d_out = (torch.from_numpy(x).transpose(1, 2) for x in draw(case))
    leaves = [x.requires_grad_(True) for x in (q, k, v)]
    options: dict[str, Any] = {"enable_gqa": case.groups != case.heads}
    if case.window:
        i, j = np.ogrid[: case.time, : case.time]
        options["attn_mask"] = torch.from_numpy((j <= i) & (j >= i - case.window))
    elif case.documents:
        (ids, *_), (i, j) = case.segments, np.ogrid[: case.time, : case.time]
        options["attn_mask"] = torch.from_numpy((ids[:, None] == ids) & (j <= i))
    elif case.padded:
        mask = np.arange(case.time) < case.lengths[:, None, None, None]
        options["attn_mask"] = torch.from_numpy(mask)
    elif case.new > 1:
        i, j = np.ogrid[: case.new, : case.time]
        options["attn_mask"] = torch.from_numpy(j <= i + case.time - case.new)
    elif not case.new:
        options["is_causal"] = case.causal

    def attention() -> Any:
        query, key, value = leaves
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)

    def forward() -> Any:
        with torch.no_grad():
            return attention().transpose(1, 2)

    return dict(
        zip(PASSES, (forward, lambda: torch.autograd.grad(attention(), leaves, d_out)), strict=True)
    )


def measured(
    cases: Sequence[Case],
    peers: Sequence[str],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Row]:
    """Both passes of every case, as soon as they are known."""
    for case in cases:
        made = {"fxad": ours(case)} | ({"torch": theirs(case)} if "torch" in peers else {})
        results = [np.asarray(of["forward"]()) for of in made.values()]
        for result in results[1:]:
            np.testing.assert_allclose(results[0], result, rtol=1e-4, atol=1e-5)
        work = case.pairs * case.width + 16.0 * case.batch * case.time * case.groups * case.width
        calls = max(1, int(2e9 / work))
        for kind in PASSES[:1] if case.new else PASSES:
            runs = {who: harness.repeated(of[kind], calls) for who, of in made.items()}
            times = harness.alternate(runs, rounds, clock=clock, pause=harness.REST)
            yield harness.row(f"{case.name}, {kind}", times, calls=calls)


def rows(quick: bool, peers: Sequence[str], rounds: int = 7) -> list[Row]:
    """Both passes of every case."""
    return list(measured(CASES[:3] if quick else CASES, peers, rounds))


def one_thread(peers: Sequence[str]) -> None:
    import fxad

    fxad.set_num_threads(1)
    if "torch" in peers:
        import torch

        torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--cpu", action="store_true", help="one thread, the processor's time")
    args = parser.parse_args()
    peers = harness.installed([p for p in args.peers.split(",") if p])
    if args.cpu:
        one_thread(peers)
    cases = [case for case in CASES if args.only in case.name]
    clock = time.process_time if args.cpu else time.perf_counter
    found = []
    for row in measured(cases, peers, args.rounds, clock):
        found.append(row)
        print(
            *harness.table([row]).splitlines()[0 if len(found) == 1 else 2 :], sep="\n", flush=True
        )


if __name__ == "__main__":
    main()
