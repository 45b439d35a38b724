"""Elements of arrays as LLVM values: scopes, expressions, loads, stores, monoids."""
