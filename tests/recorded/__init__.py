"""Recorded code: what hundreds of functions compile to, for every instruction set, without a run.

    python -m tests.recorded check                        # is anything compiled otherwise?
    python -m tests.recorded show products/nn-64 avx512   # every stage of one case as text
    python -m tests.recorded diff --base HEAD~1           # unified diffs against another commit
    python -m tests.recorded write                        # record what is compiled now

A change that only moves or renames parts of the compiler leaves all records as they are; one that
means to change code shows in its diff of `tests/recorded/records` which functions it changed.
"""
