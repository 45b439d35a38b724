"""Elements of arrays as LLVM values: primitives, complex numbers, loads, stores, monoids."""
