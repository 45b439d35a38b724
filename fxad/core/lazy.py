"""Names of a namespace that are loaded when they are first asked for.

    if not TYPE_CHECKING:
        __getattr__, __dir__ = lazy(globals(), {"hvp": "fxad.api.curvature"}, modules=("scipy",))

At the end of a module this makes `module.hvp` load `fxad.api.curvature` and `module.scipy` load
`module.scipy`, once. `dir(module)` lists both. Type checkers want the same imports once more, under
`if TYPE_CHECKING:`, and are not to see a `__getattr__`, which has every name;
`tests/test_layers.py` compares the two. One function that is rarely called
needs none of this: it imports what it needs in its body (the same test lists who does).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any


def lazy(
    namespace: dict[str, Any],
    homes: Mapping[str, str] = MappingProxyType({}),
    *,
    modules: Sequence[str] = (),
    missing: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of the module whose `globals()` are `namespace`.

    `homes` says which module a name is in: "module", or "module:other" where it is called
    otherwise there. `modules` are submodules. A name that is in neither: AttributeError, which says
    for those of `missing` what to do instead.
    """
    own = namespace["__name__"]

    def getattr_(name: str) -> Any:
        if name in modules:
            found: Any = importlib.import_module(f"{own}.{name}")
        elif name in homes:
            home, _, other = homes[name].partition(":")
            found = getattr(importlib.import_module(home), other or name)
        else:
            instead = f": {missing[name]}" if name in missing else ""
            raise AttributeError(f"module {own!r} has no attribute {name!r}{instead}")
        namespace[name] = found
        return found

    return getattr_, lambda: sorted({*namespace, *homes, *modules})
