"""A package imports only from lower levels, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
    "fxad.analysis": 5,
    "fxad.passes": 4,
    "fxad.lower": 4,
    "fxad.plan": 4,
    "fxad.rematerialization": 4,
    "fxad.backend": 7,
    "fxad.backend.numba": 7.1,
    "fxad.backend.llvm.base": 7.1,
    "fxad.backend.llvm.math": 7.2,
    "fxad.backend.llvm.native": 7.2,
    "fxad.backend.llvm.elements": 7.3,
    "fxad.backend.llvm.loops": 7.4,
    "fxad.backend.llvm.contract": 7.4,
    "fxad.backend.llvm.attention": 7.5,
    "fxad.backend.llvm.emit": 7.6,
    "fxad.backend.llvm.factors": 7.6,
    "fxad.backend.llvm.sequence": 7.7,
    "fxad.backend.llvm": 7.8,
    "fxad.cache_key": 6,
    "fxad.compiler": 7.9,
    "fxad.api": 8,
    "fxad.numpy": 9,
    "fxad.lax": 9,
    "fxad.nn": 9,
    "fxad.random": 9,
    "fxad.scipy": 9,
    "fxad.flatten_util": 9,
    "fxad.errors": 9,
    "fxad.tree": 9,
    "fxad.tree_util": 9,
    "fxad.image": 9,
    "fxad.typing": 9,
    "fxad.custom_batching": 9,
    "fxad.custom_derivatives": 9,
    "fxad.show": 9,
    "fxad.debug": 9,
    "fxad.checkify": 9,
    "fxad.profiler": 9,
    "fxad.dtypes": 9,
    "fxad.machine": 9,
    "fxad.sharding": 9,
    "fxad": 10,
    "fxad.as_jax": 10.5,
    "fxad_nn": 11,
}
# What the compiler calls: they know nothing of each other, and nobody else knows them.
ROOMS = ("fxad.passes", "fxad.lower", "fxad.plan", "fxad.rematerialization", "fxad.backend")
SAME_LEVEL_ALLOWED = {9}  # the user's namespaces share helpers
ONLY_IN = {
    "llvmlite": ("fxad/backend/llvm",),
    "numba": ("fxad/backend/numba",),
    "mpmath": ("fxad/backend/llvm/math/tables/fit_", "fxad/scipy/special/fit_"),
    "rich": ("fxad/show.py", "fxad_nn"),
}


NAMED = re.compile(r"(fxad(?:\.\w+)+)(?::\w+)?")  # a module in a string, as `core.lazy` reads it
# Imports for type checkers alone that close a circle, and why they may.
TYPED_CIRCLES = {
    # A Program has equations, those have ops, and an op's rules rewrite Programs.
    ("fxad.ir.program", "fxad.ir.rules"),
    # Declarations of what `fxad.numpy` gives arrays: never loaded, and too long for what is.
    ("fxad.trace.array", "fxad.trace.array_methods"),
}


def _package(module: str) -> str:
    parts = module.split(".")
    for count in (4, 3, 2, 1):
        name = ".".join(parts[:count])
        if name in LEVELS:
            return name
    raise AssertionError(f"{module} belongs to no known package")


LEAVES = (ast.Name, ast.expr_context, ast.operator)  # none of these names a module


class Told(NamedTuple):
    """What the tests ask of a file: so little that it is kept, and each file is parsed once."""

    names: tuple[tuple[ast.AST, bool], ...]  # (node that names a module, whether in a function)
    conditions: tuple[ast.If, ...]  # at the top
    later: int  # calls of that name


def _told(source: str) -> Told:
    tree = ast.parse(source)
    names, later = [], 0
    nodes: list[tuple[ast.AST, bool]] = [(tree, False)]
    for node, inside in nodes:  # it grows
        match node:
            case ast.Import() | ast.ImportFrom():
                names.append((node, inside))
            case ast.Constant(str(text)) if NAMED.fullmatch(text):
                names.append((node, inside))
            case ast.Call(ast.Name("later")):
                later += 1
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for value in vars(node).values():
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, ast.AST) and not isinstance(each, LEAVES):
                    nodes.append((each, inside))
    return Told(tuple(names), tuple(n for n in tree.body if isinstance(n, ast.If)), later)


@functools.cache
def _file(path: Path) -> Told:
    return _told(path.read_text())


@functools.cache
def _imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """(module, whether inside a function) for every import of a file, lazy ones included: those
    name their module in a string."""
    return tuple(_named(_file(path)))


def _named(told: Told) -> Iterator[tuple[str, bool]]:
    for node, inside in told.names:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield alias.name, inside
            case ast.ImportFrom(str(module)):
                for alias in node.names:
                    whole = f"{module}.{alias.name}"
                    yield whole if whole in LEVELS else module, inside
            case ast.Constant(str(text)) if found := NAMED.fullmatch(text):
                yield found[1], inside


@functools.cache
def _files() -> tuple[Path, ...]:
    return tuple(sorted([*ROOT.glob("fxad/**/*.py"), *ROOT.glob("fxad_nn/**/*.py")]))


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


def test_all_ways_to_import_are_seen() -> None:
    source = """
import fxad.a
from fxad.b import x
from fxad.backend import llvm
def f():
    from fxad.c import y
    g(lambda: import_module("fxad.d"), {"z": "fxad.e:other"}, "see fxad.f")
"""
    assert sorted(_named(_told(source))) == [
        ("fxad.a", False),
        ("fxad.b", False),
        ("fxad.backend.llvm", False),
        ("fxad.c", True),
        ("fxad.d", True),
        ("fxad.e", True),
    ]


def test_the_compilers_rooms_know_nothing_of_each_other() -> None:
    wrong = []
    for path in _files():
        relative = path.relative_to(ROOT)
        own = _room(".".join(relative.with_suffix("").parts))
        for module, _ in _imports(path):
            room = _room(module)
            if room not in (None, own) and str(relative) != "fxad/compiler.py":
                wrong.append(f"{relative} imports {module}")
    assert not wrong, "\n".join(wrong)


def _room(module: str) -> str | None:
    return next((r for r in ROOMS if module == r or module.startswith(f"{r}.")), None)


def test_imports_inside_functions_are_those_of_the_compilers_page() -> None:
    """What else few runs need is loaded by `core.lazy`."""
    found = {
        str(path.relative_to(ROOT))
        for path in _files()
        for module, inside in _imports(path)
        if inside and module.split(".")[0] in ("fxad", "fxad_nn")
    }
    assert found == {"fxad/compiler.py"}


def test_no_circles() -> None:
    """By no way to import: when a module is loaded, inside a function, by a name in a string, or
    for type checkers alone (but for TYPED_CIRCLES)."""
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in _files()}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    imports = {n: _own(_file(path), modules) - {n} for n, path in modules.items()}
    for module, typed in TYPED_CIRCLES:
        imports[module].remove(typed)
    assert _circle(imports) == []
    for module, typed in TYPED_CIRCLES:  # each is one, and is needed
        assert _circle({**imports, module: {*imports[module], typed}}) != []


def _circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other one after another; empty if there are none."""
    try:
        tuple(graphlib.TopologicalSorter(imports).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _own(told: Told, modules: Container[str]) -> set[str]:
    """Our own modules that a source imports, whenever that is."""
    found = set()
    for node, _ in told.names:
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(str(module)):
                names = [f"{module}.{alias.name}" for alias in node.names]
                found |= {n if n in modules else module for n in names}
            case ast.Constant(str(text)) if named := NAMED.fullmatch(text):
                found.add(named[1])
    return {name for name in found if name in modules}


def test_circles_of_every_kind_are_seen() -> None:
    sources = {
        "fxad.a": "from fxad.b import x",
        "fxad.b": "def f():\n    from fxad import c",
        "fxad.c": "d = later('fxad.d')",
        "fxad.d": "if TYPE_CHECKING:\n    import fxad.a",
    }
    imports = {name: _own(_told(source), sources) for name, source in sources.items()}
    assert {*_circle(imports)} == sources.keys()
    for name in sources:
        assert _circle({**imports, name: set()}) == []


def test_lazy_names_are_those_of_the_type_checker() -> None:
    """A lazy namespace says twice where a name is: to `core.lazy`, and under TYPE_CHECKING."""
    seen = 0
    for path in ROOT.glob("fxad/**/__init__.py"):
        source = path.read_text()
        if "= _lazy(" not in source:
            continue
        module = importlib.import_module(".".join(path.parent.relative_to(ROOT).parts))
        bound = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assign):
                bound |= {
                    n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)
                }
            if not isinstance(node, ast.ImportFrom):
                continue
            home = importlib.import_module(str(node.module))
            starred = (
                [ast.alias(name) for name in home.__all__] if node.names[0].name == "*" else []
            )
            for alias in starred or node.names:
                name = alias.asname or alias.name
                bound.add(name)
                assert getattr(module, name) is getattr(home, alias.name), f"{path}: {name}"
                # Once loaded, a module of this package would take the name.
                hidden = (path.parent / f"{name}.py", path.parent / name / "__init__.py")
                assert home is module or not any(p.exists() for p in hidden), f"{path}: {name}"
        assert bound.issuperset(module.__all__), (path, set(module.__all__) - bound)
        seen += 1
    assert seen == 5


def test_lazy_modules_are_those_of_the_type_checker() -> None:
    """`name = later("module")` stands in the `else` of an `if TYPE_CHECKING` that imports the
    module under that name."""
    seen = 0
    for path in _files():
        told = _file(path)
        checked, loaded = {}, {}
        for node in told.conditions:
            if ast.unparse(node.test) != "TYPE_CHECKING":
                continue
            for each in node.body:
                assert isinstance(each, ast.ImportFrom), path
                for alias in each.names:
                    checked[alias.asname or alias.name] = f"{each.module}.{alias.name}"
            for each in node.orelse:
                match each:
                    case ast.Assign([ast.Name(name)], ast.Call(ast.Name("later"), [where])):
                        loaded[name] = ast.literal_eval(where)
        assert loaded.items() <= checked.items(), path
        assert told.later == len(loaded), path
        seen += len(loaded)
    assert seen == 29


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
    shared = ("fxad.core.schema", "fxad.core.sizes", "fxad.core.system")
    private = ("fxad.core", "fxad.ir", "fxad.ops", "fxad.trace", "fxad.transform", "fxad.lower")
    private += ("fxad.plan", "fxad.rematerialization", "fxad.backend", "fxad.api", "fxad.passes")
    private += ("fxad.analysis", "fxad.cache_key", "fxad.compiler")
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in _files()
        if path.is_relative_to(ROOT / "fxad_nn")
        for module, _ in _imports(path)
        if module.startswith(private) and module not in shared
    ]
    assert not wrong, "\n".join(wrong)


def test_import_loads_no_compiler_and_every_public_name_is_there() -> None:
    lazy = ("numba", "llvmlite", "rich", "json", "difflib", "statistics", "mmap", "resource")
    lazy += ("fxad.scipy", "fxad.api.sparse", "fxad.debug", "fxad.runtime")  # what few use
    lazy += ("fxad.profiler", "fxad.checkify")
    lazy += ("fxad.analysis", "fxad.ir.inspection", "fxad.api.stages", "fxad.ir.cost")
    lazy += ("fxad.passes", "fxad.lower", "fxad.plan", "fxad.rematerialization")  # what compiles
    lazy += ("fxad.backend.llvm", "fxad.backend.numba")
    code = (
        f"import sys, fxad; print([m for m in {lazy} if m in sys.modules])\n"
        "lazy = 'fxad.api.profile' in sys.modules; "
        "print(lazy, [n for m in (fxad, fxad.lax) for n in m.__all__ if not hasattr(m, n)], "
        "sorted(set(fxad.__all__) - set(dir(fxad))), hasattr(fxad, 'no_such_name'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\nFalse [] [] False\n", done.stdout + done.stderr


def test_no_two_test_files_have_one_name() -> None:
    """Folders of tests are no packages: of two such files pytest can only collect one."""
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert len(names) == len(set(names))
