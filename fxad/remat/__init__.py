"""Automatic rematerialization: Programs that need less memory, proposed and tried.

automatic    cheap values computed again for the backward pass, where that pays
min_cut      the least that a loop keeps for the loop back over it
budget       a Program rewritten until it runs in so many bytes
checkpoints  regions with a byte budget of their own (`fxad.checkpoint`)
waiting, choose, rewrite    what waits in memory, what to do about it, and the Program that does it
attempt      what these are handed: a function from Program to what it is planned as
"""
