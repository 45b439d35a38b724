"""Mixtral and OLMoE: Llama whose MLPs are mixtures of experts (Jiang et al., 2024; Muennighoff et
al., 2024), computed by `fxad_nn.mixture`.

    weights, chosen = top_k(softmax(router(x)))             # [tokens, k], of 8 or 64 experts
    x += sum over the chosen of weight down(silu(gate(x)) * up(x))

Mixtral's weights are divided by their sum. OLMoE's are not, and its queries and keys go through a
norm over all heads together.
"""

from __future__ import annotations

from typing import Any

from fxad.core.schema import boolean, nullable, number, one_of
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import (
    LAYER,
    OUTER,
    POSITIVE,
    SIZE,
    decoder_schema,
    read_decoder,
    write_decoder,
)

ROUTER = {
    "num_experts_per_tok": SIZE,
    "output_router_logits": boolean,
    "router_aux_loss_coef": number(least=0),
}


def _read(values: dict[str, Any], dtype: str, **options: Any) -> Config:
    """What both have; losses of routers are used where the file asks for their logits."""
    router_losses = values.get("output_router_logits", False)
    return read_decoder(values, dtype, router_losses=router_losses, **options)


def _write(config: Config, **fields: Any) -> dict[str, Any]:
    return write_decoder(
        config,
        num_experts_per_tok=config.chosen,
        output_router_logits=config.router_losses,
        router_aux_loss_coef=config.balance_loss,
        **fields,
    )


def _read_mixtral(values: dict[str, Any], dtype: str) -> Config:
    return _read(
        {"rms_norm_eps": 1e-5, "rope_theta": 1e6, **values},
        dtype,
        family="mixtral",
        window=values.get("sliding_window"),
        experts=values.get("num_local_experts", 8),
        chosen=values.get("num_experts_per_tok", 2),
        balance_loss=float(values.get("router_aux_loss_coef", 0.001)),
    )


def _write_mixtral(config: Config) -> dict[str, Any]:
    return _write(config, num_local_experts=config.experts, sliding_window=config.window)


def _read_olmoe(values: dict[str, Any], dtype: str) -> Config:
    bias = values.get("attention_bias", False)
    return _read(
        {"rms_norm_eps": 1e-5, **values},
        dtype,
        family="olmoe",
        qkv_bias=bias,
        out_bias=bias,
        query_norms="whole",
        clip=values.get("clip_qkv"),
        experts=values.get("num_experts", 64),
        chosen=values.get("num_experts_per_tok", 8),
        renormalised=values.get("norm_topk_prob", False),
        balance_loss=float(values.get("router_aux_loss_coef", 0.01)),
    )


def _write_olmoe(config: Config) -> dict[str, Any]:
    return _write(
        config,
        attention_bias=config.qkv_bias,
        clip_qkv=config.clip,
        num_experts=config.experts,
        norm_topk_prob=config.renormalised,
    )


MIXTRAL = Family(
    name="mixtral",
    architecture="MixtralForCausalLM",
    schema=decoder_schema(
        {
            **ROUTER,
            "num_local_experts": SIZE,
            "router_jitter_noise": one_of(0, 0.0),
            "sliding_window": nullable(SIZE),
        }
    ),
    read=_read_mixtral,
    write=_write_mixtral,
    blocks="model.layers",
    inner={
        **LAYER,
        "mlp.router": "block_sparse_moe.gate",
        "mlp.experts.gate": "block_sparse_moe.experts.{}.w1",
        "mlp.experts.down": "block_sparse_moe.experts.{}.w2",
        "mlp.experts.up": "block_sparse_moe.experts.{}.w3",
    },
    outer=OUTER,
    presets={
        "mixtral-8x7b": Config(
            family="mixtral", context=32768, groups=8, hidden=14336, rope_theta=1e6, experts=8,
            chosen=2, balance_loss=0.02,
        )
    },
)  # fmt: skip
OLMOE = Family(
    name="olmoe",
    architecture="OlmoeForCausalLM",
    schema=decoder_schema(
        {
            **ROUTER,
            "attention_bias": boolean,
            "clip_qkv": nullable(POSITIVE),
            "norm_topk_prob": boolean,
            "num_experts": SIZE,
        }
    ),
    read=_read_olmoe,
    write=_write_olmoe,
    blocks="model.layers",
    inner={
        **LAYER,
        "mlp.router": "mlp.gate",
        "mlp.experts.gate": "mlp.experts.{}.gate_proj",
        "mlp.experts.up": "mlp.experts.{}.up_proj",
        "mlp.experts.down": "mlp.experts.{}.down_proj",
    },
    outer=OUTER,
    presets={
        "olmoe-1b-7b": Config(
            family="olmoe", vocab=50304, layers=16, heads=16, groups=16, width=2048, hidden=1024,
            query_norms="whole", experts=64, chosen=8, renormalised=False, balance_loss=0.01,
        )
    },
)  # fmt: skip
