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

from fxad.core.treedef import TreeDef

MOST_LEAVES = 1 << 14  # larger structures are walked
PART = 32  # leaves of the smallest structure that is worth a function for several parts


@functools.lru_cache(maxsize=512)
def flattener(treedef: TreeDef) -> Callable[[Any], list[Any] | None]:
    """A function from a tree to its leaves, or to None if its structure is not `treedef`.

    Leaves are not looked at: what stands where a leaf should be may be a node itself.
    """
    code = Code(parts=repeated(treedef))
    code.line("try:")
    leaves: list[str] = []
    code.take(treedef, "tree", leaves)
    code.line(f" return [{', '.join(leaves)}]")
    code.line("except (KeyError, TypeError, ValueError):")  # keys or numbers of children differ
    code.line(" return None")
    return code.function("flat", "tree")


@functools.lru_cache(maxsize=512)
def builder(treedef: TreeDef) -> Callable[[Sequence[Any]], Any]:
    """A function from exactly `num_leaves` leaves to the tree."""
    code = Code()
    leaves = [f"l{i}" for i in range(treedef.num_leaves)]
    if leaves:
        code.line(f"{', '.join(leaves)}, = leaves")
    code.line(f"return {code.put(treedef, iter(leaves))}")
    return code.function("build", "leaves")


def repeated(treedef: TreeDef) -> set[TreeDef]:
    """The structures, of PART leaves and more, of several parts of a tree."""
    return {part for part, times in Counter(_parts(treedef)).items() if times > 1}


def _parts(treedef: TreeDef) -> Iterator[TreeDef]:
    for child in treedef.children():
        if child.num_leaves >= PART:
            yield child
            yield from _parts(child)


class Code:
    """Lines of one function, and the objects its constants stand for."""

    def __init__(self, failed: str = "None", parts: AbstractSet[TreeDef] = frozenset()) -> None:
        """failed: what the function returns for a tree of another structure. parts: structures
        that have functions of their own."""
        self.failed = failed
        self.parts = parts
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(f" {text}")

    def constant(self, value: Any) -> str:
        if type(value) in (str, int):
            return repr(value)
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def function(self, name: str, parameters: str) -> Any:
        text = "\n".join([f"def {name}({parameters}):", *self.lines])
        exec(compile(text, f"<{name} a pytree>", "exec"), self.names)
        return self.names[name]

    def take(self, treedef: TreeDef, tree: str, leaves: list[str]) -> None:
        """Lines that bind every leaf of the variable `tree` to a name, or several of them to a
        starred one, and guards before them."""
        node, children = treedef.node, treedef._children
        if treedef in self.parts:
            part = self.fresh()
            self.line(f" {part} = {self.constant(flattener(treedef))}({tree})")
            self.line(f" if {part} is None: return {self.failed}")
            leaves.append(f"*{part}")
            return
        if node is None:
            leaves.append(tree)
            return
        parts, failed = [self.fresh() for _ in children], f"return {self.failed}"
        cls = self.constant(node.cls)
        if node.cls is dict:
            self.line(f" if type({tree}) is not {cls} or len({tree}) != {len(parts)}: {failed}")
            for part, key in zip(parts, treedef.data, strict=True):
                self.line(f" {part} = {tree}[{self.constant(key)}]")
        elif node.cls is type(None):
            self.line(f" if {tree} is not None: {failed}")
        else:
            self.line(f" if type({tree}) is not {cls}: {failed}")
            if node.cls not in (list, tuple):
                static = self.fresh()
                self.line(f" {tree}, {static} = {self.constant(node.flatten)}({tree})")
                if treedef.data is not None:
                    self.line(f" if {static} != {self.constant(treedef.data)}: {failed}")
            self.line(f" [{', '.join(parts)}] = {tree}")
        for part, child in zip(parts, children, strict=True):
            self.take(child, part, leaves)

    def put(self, treedef: TreeDef, leaves: Any) -> str:
        """The name that holds this subtree once the lines have run."""
        node = treedef.node
        if node is None:
            return next(leaves)
        parts = [self.put(child, leaves) for child in treedef._children]
        listed = ", ".join(parts)
        tree = self.fresh()
        if node.cls is dict:
            pairs = zip(treedef.data, parts, strict=True)
            text = f"{{{', '.join(f'{self.constant(key)}: {part}' for key, part in pairs)}}}"
        elif node.cls is tuple:
            text = f"({listed},)" if parts else "()"
        elif node.cls is list:
            text = f"[{listed}]"
        elif node.cls is type(None):
            text = "None"
        else:
            text = f"{self.constant(node.unflatten)}({self.constant(treedef.data)}, [{listed}])"
        self.line(f"{tree} = {text}")
        return tree
