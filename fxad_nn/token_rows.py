"""Rows of a model's token tables: more of them, and some that are trained beside a frozen table.

    params, config = resized(params, config, size=1026, known=1024)
    params = add_rows(params, config, [1024, 1025])         # a copy of these rows, in float32
    trained, frozen = fxad.tree.partition(params, trainable(params))

New tokens have embeddings of their own, and a row of the head where that is not the same table. The
rows of `add_rows` stand in p["rows"] = {"ids": int32 [n], "values": float32 [n, width]} beside the
table, and take the place of its rows: what adapters are to the weights of linear layers
(`fxad_nn.lora`). The gradient of the table itself, the largest leaf of a small model, is nowhere
computed. PEFT has the same as `trainable_token_indices`. How models read them:
`fxad_nn.layers.embedding` and `head_logits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.errors import ConfigError
from fxad_nn.spec import Leaf, zeros

TABLES = {"embed": "token", "head": "weight"}
"""Where a tree has rows for tokens, and what the table is called there."""


def resized(
    params: Any, config: models.Config, size: int, known: int, fresh: Sequence[int] = ()
) -> tuple[Any, models.Config]:
    """The parameters with room for `size` ids, and the configuration that says so.

    known: ids below it have been trained. Rows that are added, and those of the ids in `fresh`, are
    the mean of the known ones, as in transformers' `resize_token_embeddings` but for its noise of
    1e-9 of their variance (Hewitt, 2021, "Initializing new word embeddings for pretrained language
    models"): what a new token adds to softmax's denominator is then about what a token adds on
    average. The vocabulary does not become smaller.
    """
    vocab = max(size, config.vocab)
    added = [*range(config.vocab, vocab)]
    rows = sorted({*fresh, *added})
    if not rows:
        return params, config
    if not 0 < known <= config.vocab or rows[0] < 0 or rows[-1] >= vocab:
        raise ConfigError(f"cannot set the rows {rows} of {vocab} by those of {known} tokens")

    def grown(table: Any) -> Any:
        found = np.asarray(table)
        mean = found[:known].astype(np.float32).mean(0).astype(found.dtype)
        new = np.concatenate([found, np.broadcast_to(mean, (len(added), found.shape[1]))])
        new[rows] = mean
        return jnp.asarray(new, copy=False)

    return _tables_changed(params, lambda p, name: {**p, name: grown(p[name])}), replace(
        config, vocab=vocab
    )


def add_rows(params: Any, config: models.Config, ids: Sequence[int]) -> Any:
    """The parameters with the rows of these ids beside every table of tokens, in float32."""
    if not ids or len(set(ids)) != len(ids) or not all(0 <= i < config.vocab for i in ids):
        raise ConfigError(f"rows need different ids below {config.vocab}, got {list(ids)}")
    if "lora" in params.get("head", {}):
        raise ConfigError("the head has an adapter: it cannot have rows of its own beside that")
    chosen = np.asarray(ids, np.int32)

    def beside(p: dict[str, Any], name: str) -> dict[str, Any]:
        values = np.asarray(p[name])[chosen].astype(np.float32)
        return {**p, "rows": {"ids": jnp.asarray(chosen), "values": jnp.asarray(values)}}

    return _tables_changed(params, beside)


def row_specs(config: models.Config, count: int) -> dict[str, dict[str, Leaf]]:
    """The leaves of the rows of so many tokens, by the place of their table."""
    rows = {
        "ids": Leaf((count,), "int32", ("token",), zeros),
        "values": Leaf((count, config.width), "float32", ("token", "width"), zeros),
    }
    return {place: rows for place in TABLES if place == "embed" or not config.tied}


def with_rows(params: Any, rows: dict[str, dict[str, Any]]) -> Any:
    """A tree with these rows, by the place of their table, in it."""
    return {**params, **{place: {**params[place], "rows": rows[place]} for place in rows}}


def rows_of(params: Any) -> dict[str, dict[str, Any]]:
    """The rows in a tree, by the place of their table; none where there are none."""
    return {p: params[p]["rows"] for p in TABLES if "rows" in params.get(p, {})}


def without_rows(params: Any) -> Any:
    """The parameters without such rows: what they were before `add_rows`."""
    found = rows_of(params)
    bare = {p: {k: v for k, v in params[p].items() if k != "rows"} for p in found}
    return {**params, **bare} if found else params


def merge_rows(params: Any) -> Any:
    """The parameters with such rows in their tables, rounded to the dtype of these."""
    rows = rows_of(params)

    def merged(p: dict[str, Any], name: str) -> dict[str, Any]:
        table = np.array(p[name])
        table[np.asarray(p["rows"]["ids"])] = np.asarray(p["rows"]["values"]).astype(table.dtype)
        return {**p, name: jnp.asarray(table, copy=False)}

    return without_rows(_tables_changed(params, merged)) if rows else params


def _tables_changed(params: Any, change: Any) -> Any:
    there = {place: name for place, name in TABLES.items() if place in params}
    return {**params, **{place: change(params[place], name) for place, name in there.items()}}
