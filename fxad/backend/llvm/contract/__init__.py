"""Matrix products: GEMM on vectors and on AMX, GEMV; blocking, packing, micro-kernels."""
