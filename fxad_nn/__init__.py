"""GPT-2 and Llama as pure functions over trees of parameters, trained and sampled with fxad.

    from fxad_nn import gpt2
    from fxad_nn.spec import init_params

    config = gpt2.PRESETS["tiny"]
    params = init_params(gpt2.spec(config), fxad.random.key(0))
    logits = gpt2.forward(params, tokens, config)

spec        one tree per model: shapes, dtypes, axes, initialisers
layers      linear, norms, rotary positions, causal attention
gpt2, llama, loss, models            the models, and how they are found by name
optim, step                          AdamW, schedules, one compiled training step
text, tokenizer, vocabulary          from text to ids, and which ids a model knows
subwords, byte_level, sentencepiece_file, tokenizer_config    tokenizers of published models
chat_template, answers                from messages to ids, and which of them are answers
template_process, template_worker     the process that renders a template, within limits
token_file, shards, token_cache, data    from files to batches
files, tensors, manifest, store, hf   checkpoints, and weights from Hugging Face directories
cache, sampling, generate            tokens one by one, with keys and values of earlier ones
recipe, run, train, evaluate, flops  a training run
listener, signals, directory, losses, keep, plot    what surrounds it: who listens, what it leaves
options, screen, cli                 the command line
"""
