"""Automatic rematerialization: Programs that need less memory, proposed and tried.

automatic    cheap residuals recomputed for the backward pass, where that pays
min_cut      the fewest bytes of residuals from a loop to its backward loop
budget       a Program rewritten until it runs in so many bytes
checkpoints  regions with a byte budget of their own (`fxad.checkpoint`)
boundary     an equation and the residuals that are live across it
choose       which of them are recomputed, offloaded or rounded
rewrite      the Program in which they are
attempt      what these are handed: a function from Program to what it is planned as
"""
