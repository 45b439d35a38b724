"""Analyses of programs, which change nothing: sparsity, colouring, rounding errors, updates.

sparsity            which elements of the results depend on which of the inputs: loops, tapes and
                    patterns have a module each
colouring           columns of a sparse matrix that one product can find together
error_estimate      the rounding error of results, by equation
unfused_updates     gradients that cannot end in their update
"""
