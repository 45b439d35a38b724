"""What runs beside kernels: memory, the compiler, threads, the walk over a plan, tapes."""
