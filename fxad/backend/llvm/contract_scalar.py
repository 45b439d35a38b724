"""Matrix products by plain loops."""
def emit_scalar_contract(*a): raise NotImplementedError
