"""What `jit` gives and what is itself made with `jit`: `fxad` says where it is when it is imported.

above.jaxprs.Jaxpr.of(program)      # for `jit(f).trace(x).jaxpr`
"""

from __future__ import annotations

from typing import Any

jaxprs: Any  # the module fxad.api.jaxpr, loaded when it is first used
