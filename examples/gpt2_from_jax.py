"""A GPT-2 training step as one would write it for JAX - only the three import lines changed.

import jax                       ->  import fxad as jax
import jax.numpy as jnp          ->  import fxad.numpy as jnp
from jax import random           ->  from fxad import random

python examples/gpt2_from_jax.py
"""

import functools

import fxad as jax
import fxad.numpy as jnp
from fxad import random

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 2, 2, 32, 16, 65


def init(key):
    def dense(key, n_in, n_out, std=0.02):
        return {"w": random.normal(key, (n_in, n_out)) * std, "b": jnp.zeros((n_out,))}

    def norm():
        return {"g": jnp.ones((WIDTH,)), "b": jnp.zeros((WIDTH,))}

    keys = iter(random.split(key, 4 * LAYERS + 2))
    params = {
        "wte": random.normal(next(keys), (VOCABULARY, WIDTH)) * 0.02,
        "wpe": random.normal(next(keys), (CONTEXT, WIDTH)) * 0.02,
        "ln_f": norm(),
        "blocks": [],
    }
    for _ in range(LAYERS):
        params["blocks"].append(
            {
                "ln_1": norm(),
                "qkv": dense(next(keys), WIDTH, 3 * WIDTH),
                "proj": dense(next(keys), WIDTH, WIDTH),
                "ln_2": norm(),
                "fc": dense(next(keys), WIDTH, 4 * WIDTH),
                "out": dense(next(keys), 4 * WIDTH, WIDTH),
            }
        )
    return params


def linear(p, x):
    return jnp.einsum("...i,ij->...j", x, p["w"]) + p["b"]


def layer_norm(p, x):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * p["g"] + p["b"]


def attention(p, x):
    B, T, _ = x.shape
    q, k, v = jnp.split(linear(p["qkv"], x), 3, axis=-1)
    q, k, v = (t.reshape(B, T, HEADS, WIDTH // HEADS) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(WIDTH // HEADS)
    mask = jnp.tril(jnp.ones((T, T), dtype=bool))
    scores = jnp.where(mask, scores, -1e30)
    weights = jax.nn.softmax(scores, axis=-1)
    out = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(B, T, WIDTH)
    return linear(p["proj"], out)


def forward(params, tokens):
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    for block in params["blocks"]:
        x = x + attention(block, layer_norm(block["ln_1"], x))
        h = jax.nn.gelu(linear(block["fc"], layer_norm(block["ln_2"], x)))
        x = x + linear(block["out"], h)
    return layer_norm(params["ln_f"], x) @ params["wte"].T


def loss_fn(params, tokens, targets):
    logp = jax.nn.log_softmax(forward(params, tokens), axis=-1)
    return -jnp.mean(jnp.take_along_axis(logp, targets[..., None], axis=-1))


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(params, m, v, step, tokens, targets):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, targets)
    step = step + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)

    def update(p, m, v):
        m_hat = m / (1 - 0.9**step)
        v_hat = v / (1 - 0.95**step)
        return p - 3e-3 * (m_hat / (jnp.sqrt(v_hat) + 1e-8) + 0.1 * p)

    params = jax.tree.map(update, params, m, v)
    return params, m, v, step, loss


def main(steps=60):
    key = random.PRNGKey(0)
    params = init(key)
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    step = jnp.zeros((), jnp.float32)
    data = random.randint(random.PRNGKey(1), (4, CONTEXT + 1), 0, VOCABULARY)
    for i in range(steps):
        params, m, v, step, loss = train_step(params, m, v, step, data[:, :-1], data[:, 1:])
        if i % 20 == 0:
            print(f"step {i:3d}  loss {float(loss):.4f}")
    print(f"last loss {float(loss):.4f}")
    return float(loss)


if __name__ == "__main__":
    main()
