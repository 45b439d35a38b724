"""The intermediate representations: Program (typed equations), Block, Kernel (loop nests), Plan.

A Program (`program`) is lowered to a Block (`block`): steps that run Kernels (`kernel`) over
values. A Plan (`plan`) is a Block whose values have places in memory. What the stages between them
share (checkers, texts, orders of summation, use-def chains) lies here too.
"""
