"""Coefficients of elementary functions: data, beside the scripts that fit and write them.

    polynomials     polynomials, constant first, written by `fit_polynomials`
    floats          tables of f32 for `lookup`, by the same script
    doubles         tables and polynomials of f64, by `fit_doubles`

    python -m fxad.backend.llvm.math.tables.fit_doubles

The scripts are here so that whoever asks where a number comes from finds it in the next file, and
in what is installed. The data are Python's tuples: they need no parser and are loaded, compiled,
with the functions that read them. Bits of results depend on the data as they are; a fit on another
machine may differ in the last digits of a coefficient. Only the scripts need mpmath.
"""
