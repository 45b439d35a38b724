"""Matrix products: plans, packing, micro-kernels for vectors and for AMX, epilogues."""
