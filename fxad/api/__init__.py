"""The user's transformations: jit, grad, vjp, jvp, vmap, checkpoint, custom rules and friends."""
