"""Families of published models: what each has of the decoder's options, and how it names things.

    family = FAMILIES["llama"]                          # by `model_type` of config.json
    config = family.read(values, "bfloat16")
    family.published("blocks.0.mlp.gate.weight")        # "model.layers.0.mlp.gate_proj.weight"

family      the record
fields      fields of config.json that several families share
gpt2, llama, qwen, ...      one short file for each
"""

from fxad_nn.families import gemma, gpt2, llama, mistral, mixtral, phi3, qwen
from fxad_nn.families.family import Config, Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        gpt2.GPT2,
        llama.LLAMA,
        mistral.MISTRAL,
        qwen.QWEN2,
        qwen.QWEN3,
        gemma.GEMMA2,
        gemma.GEMMA3,
        phi3.PHI3,
        mixtral.MIXTRAL,
        mixtral.OLMOE,
    )
}


def family_of(config: Config) -> Family:
    """The family that a configuration belongs to."""
    return FAMILIES[config.family]


__all__ = ["FAMILIES", "Family", "family_of"]
