"""A file has 400 lines at most and a function 40, so that each can be read at one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE, FUNCTION = 400, 40
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef)

# Longer for a reason; none may grow.
LONGER = {
    "fxad/backend/llvm/contract/piece.py:block": 42,  # one micro-kernel, in the order it is written
    "fxad/backend/llvm/executable.py:run": 41,  # every call runs it: no helpers
    "fxad/backend/numba/prims.py:_complex": 48,  # a table: two lines a primitive
    "fxad/backend/numba/prims.py:_float": 58,  # a table: two lines a primitive
    "fxad/nn/attention.py:dot_product_attention": 43,  # ten parameters, one a line
    "fxad/ops/programs/scan.py:_scan_split": 50,  # one rule: known loop, residuals, unknown loop
    "fxad/ops/programs/while_loop.py:_while_split": 51,  # one rule, as above
    "fxad/passes/offload_tapes.py:_forth": 44,  # one loop rewritten: inputs, body, outputs
}


def _files() -> list[Path]:
    return sorted([*ROOT.glob("fxad/**/*.py"), *ROOT.glob("fxad_nn/**/*.py")])


def _own_lines(function: ast.AST) -> int:
    """Lines of a function without its docstring and without the functions inside it."""
    assert isinstance(function, DEFINITION)
    apart: list[ast.stmt] = [
        node for node in ast.walk(function) if isinstance(node, DEFINITION) and node is not function
    ]
    if ast.get_docstring(function) is not None:
        apart.append(function.body[0])
    lines = set(_span(function))
    return len(lines.difference(*map(_span, apart)))


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _lengths() -> Iterator[tuple[str, int]]:
    for path in _files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DEFINITION):
                yield f"{path.relative_to(ROOT)}:{node.name}", _own_lines(node)


def test_files_are_short() -> None:
    files = [*_files(), *ROOT.glob("tests/**/*.py")]
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in files}
    assert not {name: lines for name, lines in long.items() if lines > FILE}


def test_functions_are_short() -> None:
    long = {name: n for name, n in _lengths() if n > LONGER.get(name, FUNCTION)}
    assert not long, "split them: lines without docstrings and inner functions"


def test_the_list_of_longer_functions_is_not_out_of_date() -> None:
    long = {name for name, n in _lengths() if n > FUNCTION}
    assert set(LONGER) == long
