"""Rewrites of Programs that keep their meaning: recognition, simplification, decomposition.

`fxad.compiler` calls them by name: `recognise` when a Program is traced; `inline`, `fold`,
`algebra`, `cse`, `rows_apart`, `widen_late` and `offload` once for each Program; `inline` (what a
backend has no code for), `complex_products`, `split_keys` and `tapes` for each candidate. `dce` is
below, in `fxad.ir.rewrite`: transformations need it too.
"""
