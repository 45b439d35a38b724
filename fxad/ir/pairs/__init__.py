"""Loops and the loops back over them, branches and those back over them: each pair as one line."""
