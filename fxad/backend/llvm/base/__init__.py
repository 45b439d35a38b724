"""What every writer of kernels shares: LLVM text, vectors, formats, schedules, traffic."""
