"""Processes of their own that begin with the library loaded.

context = children.context()
process = context.Process(target=..., args=...)

What they run must stand in a module that imports no test library: then a process takes 10 ms to
begin, where importing pytest and the library takes 0.8 s.
"""

import multiprocessing

LOADED = ["fxad_nn.train", "fxad_nn.model"]


def context():
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(LOADED)
    return made
