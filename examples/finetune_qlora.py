"""QLoRA by hand: adapters learn a text beside frozen weights in 4 bits, in 8 bits and as stored.

python examples/finetune_qlora.py

`python -m fxad_nn finetune --quantize nf4 --lora 16` does it with conversations; see
docs/finetune.md.
"""

import tempfile
from pathlib import Path

import numpy as np

import fxad
import fxad_nn
from fxad_nn import models, optim
from fxad_nn.lora import ALL_LINEAR, adapters_of, add_lora, merge_lora, trainable, with_adapters
from fxad_nn.quantized import is_quantized
from fxad_nn.spec import init_params

TEXT = "Quantised weights stay as they are; what is learned lies beside them. " * 2


def tiny_model(directory):
    """A Llama of random weights that reads bytes, in the form in which models are published."""
    sizes = {"width": 128, "heads": 4, "groups": 2, "head_dim": 32, "hidden": 384}
    config = models.preset("llama-tiny", vocab=256, context=160, dtype="bfloat16", **sizes)
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    # Weights of the size of trained ones: frozen ones near zero could not be made to say anything.
    params = fxad.tree.map(lambda p: (4 * p if p.ndim == 2 else p).astype("bfloat16"), params)
    fxad_nn.save(fxad_nn.Model(params, config), directory)


def tuned(model, steps=60):
    """The loss after some steps, the trained part, the whole parameters, and bytes of the step's
    intermediate values."""
    config, tokens = model.config, np.frombuffer(TEXT.encode(), np.uint8).astype(np.int32)
    batch = tokens[None, :-1], tokens[None, 1:]
    params = add_lora(model.params, config, 8, 16.0, ALL_LINEAR, fxad.random.key(1))
    trained, frozen = fxad.tree.partition(params, trainable(params), is_leaf=is_quantized)
    optimizer = optim.adamw(5e-3)
    state = optimizer.init(trained)

    def step(trained, state, frozen):
        def loss(trained):
            whole = fxad.tree.combine(trained, frozen)
            return models.family(config).loss(whole, batch, config)

        value, grads = fxad.value_and_grad(loss)(trained)
        trained, state = optimizer.update(grads, state, trained)
        return trained, state, value

    step = fxad.jit(step, donate_argnums=(0, 1))
    arena = step.lower(trained, state, frozen).memory()["arena_bytes"]
    for _ in range(steps):
        trained, state, value = step(trained, state, frozen)
    return float(value), fxad.tree.combine(trained, frozen), arena


def main() -> float:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        tiny_model(room / "model")
        learned = {}
        for format in ("nf4", "int8", None):
            model = fxad_nn.load(room / "model", quantize=format)
            size = sum(leaf.nbytes for leaf in fxad.tree.leaves(model.params["blocks"]))
            loss, params, arena = tuned(model)
            learned[format] = loss, params
            print(
                f"{format or 'as stored':9}: layers {size:7,} bytes, intermediate values "
                f"{arena:,}, loss {loss:.3f}"
            )
        # What was learned beside weights in 4 bits belongs to those that they were made of.
        loss, params = learned["nf4"]
        base = fxad_nn.load(room / "model")
        beside = with_adapters(base.params, adapters_of(params))
        merged, rounding = merge_lora(beside, base.config)
        fxad_nn.save(fxad_nn.Model(merged, base.config), room / "merged")
        print(f"merged; the largest rounding is {rounding.largest:.1e}, in {rounding.name}")
        return loss


if __name__ == "__main__":
    main()
