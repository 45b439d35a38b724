"""Flash attention: forward, backward and decoding, on vectors or as six bf16 products on AMX.

| file | what is in it |
|---|---|
| `problem`, `logits` | sizes, register tiles, what a logit is made of |
| `code` | a function as it is written, and values in it |
| `window`, `key_mask` | which keys a row sees, and which rows see a key |
| `products` | the protocol of matrix products; `vector_products`, `bf16x6_products` |
| `split`, `split_pack` | a float32 as three terms of bf16, packed into tiles |
| `rows`, `exponential`, `weights` | a row of scores: masks, reductions, exponentials |
| `online_softmax` | running maxima and sums |
| `forward`, `decode` | the kernels of many queries, and of few |
| `backward_plan`, `backward` | the gradient's kernel |
| `gradients` | the protocol of its sums; `vector_gradients`, `bf16x6_gradients` |
| `emit` | which kernel suits |
"""
