"""A program written for JAX, which knows nothing of fxad, trained by fxad.

python -m fxad.as_jax examples/jax_unchanged.py
"""

import subprocess
import sys


def train(steps=400) -> float:
    """Fit two interleaved half moons with a small network; the last mean cross-entropy."""
    import jax
    import jax.numpy as jnp

    points, own = jax.random.split(jax.random.key(0))
    angle = jax.random.uniform(points, (200,)) * jnp.pi
    moon = jnp.arange(200) % 2
    x = jnp.stack([jnp.cos(angle) + moon, jnp.sin(angle) * (1 - 2 * moon) + moon / 2], axis=1)
    init = jax.nn.initializers.he_normal()
    first, second = jax.random.split(own)
    params = {"w": init(first, (2, 16)), "b": jnp.zeros(16), "v": init(second, (16, 1))}

    def loss(params):
        hidden = jax.nn.relu(x @ params["w"] + params["b"])
        return jnp.mean(jax.nn.softplus((hidden @ params["v"])[:, 0] * (1 - 2 * moon)))

    def step(params, _):
        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value

    _, losses = jax.lax.scan(step, params, length=steps)
    print(f"{jax.__name__} {jax.__version__}, which is fxad: {type(x).__module__}")
    return float(losses[-1])


def main() -> float:
    """The loss of a process of its own in which `import jax` means fxad."""
    command = [sys.executable, "-m", "fxad.as_jax", __file__]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    print("loss", train())
