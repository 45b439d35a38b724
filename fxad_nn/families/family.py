"""What there is to know of a family of published models, as one record.

family = FAMILIES["qwen2"]
family.published("blocks.0.attention.q.bias")       # "model.layers.0.self_attn.q_proj.bias"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fxad.core.schema import Schema
from fxad_nn import decoder, gpt2
from fxad_nn.spec import Leaf

Config = gpt2.Config | decoder.Config


@dataclass(frozen=True)
class Family:
    """How one family of models says what it is, and what it calls its tensors.

    name: `model_type` of its config.json. schema: what that file may hold. read(values, dtype):
    the configuration it describes. write(config): what it holds, beside what all have in common.
    blocks: where layers are, such as "model.layers". inner: modules of a layer by our names;
    outer: the others. tied: whether the head is the token table where the file does not say.
    """

    name: str
    architecture: str
    schema: Schema
    read: Callable[[dict[str, Any], str], Config]
    write: Callable[[Any], dict[str, Any]]
    blocks: str
    inner: Mapping[str, str]
    outer: Mapping[str, str]
    presets: Mapping[str, Config]

    @property
    def stem(self) -> str:
        """What names of all tensors but the head begin with, such as "model."; files of a model
        without a head leave it out."""
        return self.blocks.partition(".")[0] + "."

    def published(self, name: str) -> str:
        """The published name of one of our leaves, or of a module ("blocks.0.attention.q")."""
        if not name.startswith("blocks."):
            return _renamed(name, self.outer)
        _, number, rest = name.split(".", 2)
        return f"{self.blocks}.{number}.{_renamed(rest, self.inner)}"

    def tensors(self, name: str, leaf: Leaf) -> list[str]:
        """The tensors that a leaf is published as.

        They are one of the leaf's shape, or where its module's name has a place {} for a number,
        the transposes of its matrices, each by itself: those of experts.
        """
        published = self.published(name)
        if "{}" not in published:
            return [published]
        return [published.format(number) for number in range(leaf.shape[0])]


def _renamed(name: str, modules: Mapping[str, str]) -> str:
    """A module by the table, or a leaf of one: what norms call scale is published as weight."""
    if name in modules:
        return modules[name]
    module, _, leaf = name.rpartition(".")
    return f"{modules[module]}.{'weight' if leaf == 'scale' else leaf}"
