"""Loops and their backward loops, branches and their backward branches, with both bodies joined."""
