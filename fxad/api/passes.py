"""The passes that the api runs, loaded when the first program is traced or compiled.

program, captured = recognise(program, captured)
"""

from __future__ import annotations

from fxad.core.late import called_late

optimise = called_late("fxad.passes.pipeline", "optimise")
recognise = called_late("fxad.passes.recognise", "recognise")
