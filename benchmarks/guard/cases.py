"""What is timed: about sixty cases, each the whole of what a user would call, on random data.

    CASES["exp, float32"].build().run()

Cases use the public API alone, for they run on commits that know nothing of them. A call takes 80
ms at most on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks import attention, functions, loops, models, overhead
from benchmarks.guard import peers
from benchmarks.guard.case import Built, Case, jitted, normal, uniform
from benchmarks.guard.models import Step, Token
from benchmarks.row_kernels import adamw, back, cross_entropy, gelu, layer_norm, rms_norm, softmax

Cases = dict[str, Case]


def steps() -> Cases:
    found = {}
    for step in (
        Step("gpt2", 1, 16),
        Step("gpt2", 1, 64),
        Step("gpt2", 2, 64),
        Step("gpt2", 2, 64, "bf16"),
        Step("llama-110m", 1, 64),
        Step("llama-110m", 2, 64, "bf16"),
    ):
        name = f"step {step.preset} ({step.batch}, {step.tokens}), {step.dtype}"
        ceiling = {"f32": "float32", "bf16": "bfloat16"}[step.dtype]
        beside = {"torch": partial(peers.training_step, step)}
        found[name] = Case(step.build, ceiling, step.operations, beside)
    mlp = partial(models.training_step, models.MINE, "mlp")
    found["step MLP 784-512-512-10"] = Case(
        lambda: Built(mlp()), peers={"torch": partial(peers.small_step, "mlp")}
    )
    return found


def generation() -> Cases:
    found = {}
    for token in (
        Token("gpt2", "float32", 50_257),
        Token("gpt2", "bfloat16", 50_257),
        Token("llama3.2-1b", "float32", 16_384),
        Token("llama3.2-1b", "bfloat16", 32_064),
    ):
        beside = {"torch": partial(peers.token, token)}
        name = f"token {token.preset}, {token.dtype}"
        found[name] = Case(token.build, "reading", token.bytes, beside)
    return found


# what, m, n, k, layouts of a and b (T: transposed), dtype
PRODUCTS = [
    ("square", 1000, 1000, 1000, "NN", "float32"),
    ("forward", 256, 3072, 768, "NN", "float32"),
    ("dX", 256, 768, 3072, "NT", "float32"),
    ("dW", 768, 3072, 256, "TN", "float32"),
    ("tall", 20_000, 64, 64, "NN", "float32"),
    ("odd", 257, 1000, 771, "NN", "float32"),
    ("small", 33, 65, 129, "NN", "float32"),
    ("1 row", 1, 16_384, 4096, "NN", "float32"),
    ("1 row, transposed", 1, 16_384, 4096, "NT", "float32"),
    ("4 rows", 4, 2304, 768, "NN", "float32"),
    ("forward", 256, 3072, 768, "NN", "bfloat16"),
    ("dX", 256, 768, 3072, "NT", "bfloat16"),
    ("transposed", 1024, 2048, 2048, "NT", "bfloat16"),
    ("1 row", 1, 16_384, 4096, "NN", "bfloat16"),
    ("square", 500, 500, 500, "NN", "float64"),
]  # fmt: skip


def products() -> Cases:
    found = {}
    for what, m, n, k, layout, dtype in PRODUCTS:
        size = f"{m}x{n}x{k} {layout}"
        ceiling, amount = dtype, 2.0 * m * n * k
        if m == 1:
            ceiling, amount = "reading", n * k * (4.0 if dtype == "float32" else 2.0)
        given = partial(_factors, m, n, k, layout, dtype)
        others = {who: partial(peers.product, who, given, layout) for who in peers.of(dtype)}
        found[f"product {what}, {size} {dtype}"] = Case(
            partial(_product, given, layout), ceiling, amount, others
        )
    found["product batched, 96 of 64x64x64 float32"] = Case(
        lambda: jitted(jnp.matmul, normal(96, 64, 64), normal(96, 64, 64)),
        "float32",
        96 * 2.0 * 64**3,
    )
    return found


def _factors(m: int, n: int, k: int, layout: str, dtype: str) -> tuple[Any, Any]:
    left = (m, k) if layout[0] == "N" else (k, m)
    right = (k, n) if layout[1] == "N" else (n, k)
    return normal(*left, dtype=dtype), normal(*right, dtype=dtype)


def _product(given: Callable[[], tuple[Any, Any]], layout: str) -> Built:
    def product(a: Any, b: Any) -> Any:
        return (a.T if layout[0] == "T" else a) @ (b.T if layout[1] == "T" else b)

    return jitted(product, *given())


def attentions() -> Cases:
    found = {}
    for case, kinds in (
        (attention.Case(4, 256, 12, 12, 64), attention.PASSES),
        (attention.Case(1, 1024, 8, 2, 128), attention.PASSES),
        (attention.Case(1, 2048, 4, 4, 64, window=256), attention.PASSES[:1]),
        (attention.Case(1, 4096, 12, 12, 64, new=1), attention.PASSES[:1]),
        (attention.Case(1, 4096, 32, 8, 128, new=4), attention.PASSES[:1]),
    ):
        for kind in kinds:
            found[f"attention {case.name}, {kind}"] = Case(
                partial(_attention, case, kind),
                peers={"torch": partial(peers.attention, case, kind)},
            )
    return found


def _attention(case: attention.Case, kind: str) -> Built:
    given = [jnp.asarray(x) for x in attention.draw(case)]
    forward, both = attention.functions(case)
    return jitted(forward, *given[:3]) if kind == "forward" else jitted(both, *given)


WIDE = (2048, 768)
LOGITS = (256, 50_257)  # GPT-2's vocabulary


def rows() -> Cases:
    scale = partial(normal, WIDE[1])
    return {
        f"{what}, {high} x {wide}": Case(build)
        for what, (high, wide), build in (
            ("layer norm", WIDE, lambda: jitted(layer_norm, normal(*WIDE), scale(), scale())),
            ("layer norm, backward", WIDE,
             lambda: jitted(back(layer_norm, 3), normal(*WIDE), scale(), scale(), normal(*WIDE))),
            ("RMS norm", WIDE, lambda: jitted(rms_norm, normal(*WIDE), scale())),
            ("softmax", WIDE, lambda: jitted(softmax, normal(*WIDE))),
            ("softmax, backward", WIDE,
             lambda: jitted(back(softmax, 1), normal(*WIDE), normal(*WIDE))),
            ("GELU, backward", WIDE, lambda: jitted(back(gelu, 1), normal(*WIDE), normal(*WIDE))),
            ("AdamW", WIDE, lambda: jitted(adamw, *4 * [normal(*WIDE)])),
            ("cross-entropy", LOGITS, lambda: jitted(cross_entropy, normal(*LOGITS))),
            ("cross-entropy, backward", LOGITS,
             lambda: jitted(fxad.grad(cross_entropy), normal(*LOGITS))),
        )
    }  # fmt: skip


ELEMENTS = 1 << 17
FUNCTIONS = [
    *((name, "float32") for name in ("exp", "tanh", "erf", "log", "sin", "power")),
    *((name, "float64") for name in ("exp", "log")),
]


def elementary() -> Cases:
    return {
        f"{name}, {dtype}": Case(
            partial(_function, name, dtype),
            peers={
                who: partial(peers.function, who, name, ELEMENTS, dtype)
                for who in ("numpy", "torch")
                if not (who == "numpy" and functions.FUNCTIONS[name][1] is None)
            },
        )
        for name, dtype in FUNCTIONS
    }


def _function(name: str, dtype: str) -> Built:
    given = (jnp.asarray(x, dtype=dtype) for x in functions.draw(name, ELEMENTS, dtype))
    return jitted(lambda *xs: functions.FUNCTIONS[name][0](*xs), *given)


def looping() -> Cases:
    def loop(name: str, derive: Callable[..., Any] = lambda f: f) -> Case:
        return Case(partial(_loop, name, derive))

    return {
        "loop scan": loop("scan"),
        "loop scan, gradient": loop("scan", fxad.grad),
        "loop while": loop("while"),
        "loop Kalman filter": loop("kalman"),
        "loop with cond": Case(lambda: jitted(_branching, np.float32(0.3), uniform(-1, 1, 20_000))),
    }


def _loop(name: str, derive: Callable[..., Any]) -> Built:
    make, trips, args = loops.cases()[name]
    function = derive(make(jnp, fxad.lax, min(trips, 100_000)))
    return jitted(function, *map(jnp.asarray, args))


def _branching(start: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> tuple[Any, None]:
        return fxad.lax.cond(x > 0, lambda: jnp.sin(c) + x, lambda: c * x), None

    return fxad.lax.scan(step, start, xs)[0]


def sorts() -> Cases:
    top = partial(fxad.lax.top_k, k=200)
    return {
        "sort, 1,000": Case(lambda: jitted(jnp.sort, normal(1000))),
        "sort, 100,000": Case(lambda: jitted(jnp.sort, normal(100_000))),
        "sort, 64 rows of 1,000": Case(lambda: jitted(jnp.sort, normal(64, 1000))),
        "argsort, 10,000": Case(lambda: jitted(jnp.argsort, normal(10_000))),
        "top_k, 200 of 50,257": Case(lambda: jitted(top, normal(50_257))),
    }


def others() -> Cases:
    def positive(n: int) -> Any:
        a = normal(n, n)
        return a @ a.T + n * jnp.eye(n, dtype="float32")

    return {
        "Cholesky, 200 x 200": Case(lambda: jitted(jnp.linalg.cholesky, positive(200))),
        "solve, 200 x 200": Case(lambda: jitted(jnp.linalg.solve, positive(200), normal(200, 8))),
        "sum over columns, 1024 x 1024": Case(
            lambda: jitted(lambda x: jnp.sum(x, axis=0), normal(1024, 1024))
        ),
        "transpose, 1024 x 1024": Case(
            lambda: jitted(lambda x: jnp.transpose(x) + 1, normal(1024, 1024))
        ),
        "random normal, 131,072": Case(
            lambda: jitted(lambda key: fxad.random.normal(key, (1 << 17,)), fxad.random.key(0))
        ),
    }


EAGER = ("eager x + y", "eager sin(x)", "eager x @ x", "eager x.sum()", "eager x[1:3]")


def calls() -> Cases:
    """What a call costs: without programs, so that they are timed whatever has changed."""
    found = {what: Case(partial(_call, *call[:2])) for what, call in overhead.CALLS.items()}
    found |= {what: Case(partial(_eager, overhead.EAGER[what])) for what in EAGER}
    found["eager gradient"] = Case(_eager_gradient)
    return found


def _call(function: Callable[..., Any], args: tuple) -> Built:
    compiled, given = fxad.jit(function), fxad.tree.map(jnp.asarray, args)
    return Built(lambda: compiled(*given))


def _eager(op: Callable[[Any, Any], Any]) -> Built:
    x = normal(overhead.WIDTH)
    return Built(lambda: op(x, jnp))


def _eager_gradient() -> Built:
    gradient, x = fxad.grad(lambda x: jnp.sum(jnp.tanh(x) * x)), normal(overhead.WIDTH)
    return Built(lambda: gradient(x))


CASES: Cases = {
    **steps(),
    **generation(),
    **products(),
    **attentions(),
    **rows(),
    **elementary(),
    **looping(),
    **sorts(),
    **others(),
    **calls(),
}
