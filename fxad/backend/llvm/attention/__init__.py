"""Flash attention: forward, backward and decoding, on vectors or as six bf16 products on AMX."""
