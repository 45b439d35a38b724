"""A package imports only from lower levels, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEVELS = {
    "fxad.core": 0,
    "fxad.ir": 1,
    "fxad.runtime": 1,
    "fxad.trace": 2,
    "fxad.ops.base": 3,
    "fxad.ops.elements": 3.1,
    "fxad.ops.arrays": 3.2,
    "fxad.ops.matrices": 3.3,
    "fxad.ops.programs": 3.3,
    "fxad.ops.fused": 3.4,
    "fxad.ops": 3.5,
    "fxad.transform": 4,
    "fxad.passes": 4,
    "fxad.lower": 5,
    "fxad.plan": 6,
    "fxad.backend": 7,
    "fxad.backend.numba": 7.1,
    "fxad.backend.llvm.base": 7.1,
    "fxad.backend.llvm.math": 7.2,
    "fxad.backend.llvm.native": 7.2,
    "fxad.backend.llvm.elements": 7.3,
    "fxad.backend.llvm.loops": 7.4,
    "fxad.backend.llvm.contract": 7.4,
    "fxad.backend.llvm.attend": 7.5,
    "fxad.backend.llvm.emit": 7.6,
    "fxad.backend.llvm.factors": 7.6,
    "fxad.backend.llvm.sequence": 7.7,
    "fxad.backend.llvm": 7.8,
    "fxad.api": 8,
    "fxad.numpy": 9,
    "fxad.lax": 9,
    "fxad.nn": 9,
    "fxad.random": 9,
    "fxad.scipy": 9,
    "fxad.flatten_util": 9,
    "fxad.linalg": 9,
    "fxad.errors": 9,
    "fxad.tree": 9,
    "fxad.tree_util": 9,
    "fxad.typing": 9,
    "fxad.custom_batching": 9,
    "fxad.custom_derivatives": 9,
    "fxad.show": 9,
    "fxad.debug": 9,
    "fxad": 10,
    "fxad_nn": 11,
}
SAME_LEVEL_ALLOWED = {9}  # the user's namespaces share helpers
ONLY_IN = {
    "llvmlite": ("fxad/backend/llvm",),
    "numba": ("fxad/backend/numba",),
    "rich": ("fxad/show.py", "fxad_nn"),
}


def _package(module: str) -> str:
    parts = module.split(".")
    for count in (4, 3, 2, 1):
        name = ".".join(parts[:count])
        if name in LEVELS:
            return name
    raise AssertionError(f"{module} belongs to no known package")


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, whether inside a function) for every import of a file."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in inside
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (
                    (whole if node.module == "fxad" and whole in LEVELS else node.module),
                    (id(node) in inside),
                )


def _files() -> list[Path]:
    return sorted([*ROOT.glob("fxad/**/*.py"), *ROOT.glob("fxad_nn/**/*.py")])


def test_imports_point_downwards() -> None:
    wrong = []
    for path in _files():
        relative = path.relative_to(ROOT)
        own = _package(".".join(relative.with_suffix("").parts))
        for module, _ in _imports(path):
            if module.split(".")[0] not in ("fxad", "fxad_nn"):
                continue
            target = _package(module)
            if target == own:
                continue
            level, other = LEVELS[own], LEVELS[target]
            same = level == other and level in SAME_LEVEL_ALLOWED
            if other > level or (other == level and not same):
                wrong.append(f"{relative} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_no_imports_of_our_own_packages_inside_functions() -> None:
    late = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in _files()
        for module, inside in _imports(path)
        if inside and module.split(".")[0] in ("fxad", "fxad_nn")
    ]
    assert not late, "\n".join(late)


def test_heavy_libraries_stay_in_their_place() -> None:
    wrong = []
    for path in _files():
        relative = str(path.relative_to(ROOT))
        for module, _ in _imports(path):
            places = ONLY_IN.get(module.split(".")[0])
            if places and not relative.startswith(places):
                wrong.append(f"{relative} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_fxad_nn_uses_only_the_public_namespace() -> None:
    """Beside the readers of files and the operating system, which know nothing of arrays."""
    shared = ("fxad.core.schema", "fxad.core.system")
    private = ("fxad.core", "fxad.ir", "fxad.ops", "fxad.trace", "fxad.transform", "fxad.lower")
    private += ("fxad.plan", "fxad.backend", "fxad.api", "fxad.passes")
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in _files()
        if path.is_relative_to(ROOT / "fxad_nn")
        for module, _ in _imports(path)
        if module.startswith(private) and module not in shared
    ]
    assert not wrong, "\n".join(wrong)


def test_import_loads_no_compiler() -> None:
    late = ("numba", "llvmlite", "rich", "json", "difflib", "statistics", "mmap", "resource")
    late += ("fxad.scipy", "fxad.api.sparse", "fxad.debug", "fxad.runtime")  # what few use
    late += ("fxad.ir.python", "fxad.ir.functions")
    late += ("fxad.passes", "fxad.lower", "fxad.plan", "fxad.backend")  # what compiles
    code = f"import sys, fxad; print([m for m in {late} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_public_name_is_there() -> None:
    code = (
        "import sys, fxad; late = 'fxad.api.profile' in sys.modules; "
        "print(late, [n for m in (fxad, fxad.lax) for n in m.__all__ if not hasattr(m, n)], "
        "sorted(set(fxad.__all__) - set(dir(fxad))), hasattr(fxad, 'no_such_name'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False [] [] False", done.stdout + done.stderr


def test_no_two_test_files_have_one_name() -> None:
    """Folders of tests are no packages: of two such files pytest can only collect one."""
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert len(names) == len(set(names))
