"""Straight-line Python for one pytree structure: `flattener` and `builder`.

>>> _, treedef = flatten({"b": [1, 2], "a": (3,)})
>>> flattener(treedef)({"b": [4, 5], "a": (6,)})
[6, 4, 5]
>>> flattener(treedef)({"b": [4, 5]}) is None
True
>>> builder(treedef)([6, 4, 5])
{'a': (6,), 'b': [4, 5]}

Walking a tree costs 50 ns or more a leaf; code written for its structure, a fifth of that. It takes
a while to make, so it is for structures that are met again and again. Parts of the same structure
(the layers of a model, its parameters and their moments) have one function together: Python would
take 10 ms and 4 MB to compile one for all leaves of a GPT-2's training state.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from fxad.core.source import Source, tupled
from fxad.core.treedef import TreeDef

MOST_LEAVES = 1 << 14  # larger structures are walked
# What taking a tree of another structure apart raises: keys or numbers of children differ.
DIFFERS = "KeyError, TypeError, ValueError"
PART = 32  # leaves of the smallest structure that is worth a function for several parts


@functools.lru_cache(maxsize=512)
def flattener(treedef: TreeDef) -> Callable[[Any], list[Any] | None]:
    """A function from a tree to its leaves, or to None if its structure is not `treedef`.

    Leaves are not looked at: what stands where a leaf should be may be a node itself.
    """
    code = Code(parts=repeated(treedef))
    leaves: list[str] = []
    with code.block("def flat(tree):"):
        with code.block("try:"):
            code.take(treedef, "tree", leaves)
            code.line(f"return [{', '.join(leaves)}]")
        with code.block(f"except ({DIFFERS}):"):
            code.line("return None")
    made: Callable[[Any], list[Any] | None] = code.function("flat", "flattener of a pytree")
    return made


@functools.lru_cache(maxsize=512)
def builder(treedef: TreeDef) -> Callable[[Sequence[Any]], Any]:
    """A function from exactly `num_leaves` leaves to the tree."""
    code = Code()
    leaves = [code.fresh("l") for _ in range(treedef.num_leaves)]
    with code.block("def build(leaves):"):
        if leaves:
            code.line(f"{', '.join(leaves)}, = leaves")
        code.line(f"return {code.put(treedef, iter(leaves))}")
    made: Callable[[Sequence[Any]], Any] = code.function("build", "builder of a pytree")
    return made


def repeated(treedef: TreeDef) -> set[TreeDef]:
    """The structures, of PART leaves and more, of several parts of a tree."""
    return {part for part, times in Counter(_parts(treedef)).items() if times > 1}


def _parts(treedef: TreeDef) -> Iterator[TreeDef]:
    for child in treedef.children():
        if child.num_leaves >= PART:
            yield child
            yield from _parts(child)


class Code(Source):
    """Source that takes pytrees apart and puts them together."""

    def __init__(self, failed: str = "None", parts: AbstractSet[TreeDef] = frozenset()) -> None:
        """failed: what the function returns for a tree of another structure. parts: structures
        that have functions of their own."""
        super().__init__()
        self.failed = failed
        self.parts = parts

    def constant(self, value: Any) -> str:
        return repr(value) if type(value) in (str, int) else super().constant(value)

    def take(self, treedef: TreeDef, tree: str, leaves: list[str]) -> None:
        """Lines that bind every leaf of the variable `tree` to a name, or several of them to a
        starred one, and guards before them."""
        node, children = treedef.node, treedef._children
        if treedef in self.parts:
            part = self.define(f"{self.constant(flattener(treedef))}({tree})", "t")
            self.line(f"if {part} is None: return {self.failed}")
            leaves.append(f"*{part}")
            return
        if node is None:
            leaves.append(tree)
            return
        parts, failed = [self.fresh("t") for _ in children], f"return {self.failed}"
        cls = self.constant(node.cls)
        if node.cls is dict:
            self.line(f"if type({tree}) is not {cls} or len({tree}) != {len(parts)}: {failed}")
            for part, key in zip(parts, treedef.data, strict=True):
                self.line(f"{part} = {tree}[{self.constant(key)}]")
        elif node.cls is type(None):
            self.line(f"if {tree} is not None: {failed}")
        else:
            self.line(f"if type({tree}) is not {cls}: {failed}")
            if node.cls not in (list, tuple):
                static = self.fresh("t")
                self.line(f"{tree}, {static} = {self.constant(node.flatten)}({tree})")
                if treedef.data is not None:
                    self.line(f"if {static} != {self.constant(treedef.data)}: {failed}")
            self.line(f"[{', '.join(parts)}] = {tree}")
        for part, child in zip(parts, children, strict=True):
            self.take(child, part, leaves)

    def put(self, treedef: TreeDef, leaves: Iterator[str]) -> str:
        """The name that holds this subtree once the lines have run."""
        node = treedef.node
        if node is None:
            return next(leaves)
        parts = [self.put(child, leaves) for child in treedef._children]
        if node.cls is dict:
            pairs = zip(treedef.data, parts, strict=True)
            text = f"{{{', '.join(f'{self.constant(key)}: {part}' for key, part in pairs)}}}"
        elif node.cls is tuple:
            text = tupled(parts)
        elif node.cls is list:
            text = f"[{', '.join(parts)}]"
        elif node.cls is type(None):
            text = "None"
        else:
            unflatten, data = self.constant(node.unflatten), self.constant(treedef.data)
            text = f"{unflatten}({data}, [{', '.join(parts)}])"
        return self.define(text, "t")
