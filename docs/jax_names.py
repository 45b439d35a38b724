"""The page on JAX's names, made from the alias's tables: `docs/generate.py` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fxad.as_jax.modules import home_of, public_names
from fxad.as_jax.names import DIFFERS, MODULES, why
from fxad.as_jax.toplevel import __version__

PAGE = Path(__file__).parent / "jax-names.md"
HEAD = """# JAX's names

Every public name of JAX {version}, and what it is under [the alias](from-jax.md#unchanged): the
same, different (how), or absent (why). Made by `python docs/generate.py` from `fxad/as_jax`; the
names were read from an installed JAX by `python docs/read_jax.py`.

{here} of {all} names are here. Not counted: primitives (`..._p`), which are records of `fxad/ops`.
"""


def page() -> str:
    """The whole page."""
    names = public_names()
    counted = [(m, n) for m in names for n in names[m] if not n.endswith("_p")]
    here = sum(is_here(m, n) for m, n in counted)
    parts = [HEAD.format(version=__version__, here=here, all=len(counted))]
    parts += [f"## `{module}`\n\n{_module(module)}" for module in names]
    return "\n".join(parts)


def is_here(module: str, name: str) -> bool:
    """Whether the alias has a name."""
    if module not in MODULES:
        return False
    return f"{module}.{name}" in MODULES or home_of(module, name) is not None


def _module(module: str) -> str:
    rows = list(_rows(module))
    return "\n".join(["| names | |", "|---|---|", *rows, ""])


def _rows(module: str) -> Iterator[str]:
    names = public_names()[module]
    same = [n for n in names if is_here(module, n) and f"{module}.{n}" not in DIFFERS]
    if same:
        yield f"| {_list(same)} | same |"
    for name in names:
        if is_here(module, name) and (how := DIFFERS.get(f"{module}.{name}")):
            yield f"| `{name}` | differs: {how} |"
    absent = defaultdict(list)
    for name in names:
        if not is_here(module, name):
            absent[why(f"{module}.{name}")].append(name)
    for reason, group in absent.items():
        yield f"| {_list(group)} | absent: {reason} |"


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
