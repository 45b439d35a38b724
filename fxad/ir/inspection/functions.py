"""Python functions as self-contained source: `Definitions` collects what they lean on.

    defs = Definitions()
    name = defs.name(OPS["tanh"].numpy, "tanh")      # "tanh"
    print("\\n\\n".join(defs.texts))                 # def is_float(...), ..., tanh = ...

A function is printed from its own source, without annotations and docstrings; what it reads from
its module or closure is defined before it, in the same way. Nothing of fxad is left in the text.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import keyword
import math
import sys
import textwrap
import types
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fxad.core import aligned
from fxad.core import dtypes as dt
from fxad.core.errors import FxadError, TypeMismatch
from fxad.core.source import Source, close_to, number, tupled
from fxad.core.types import ArrayType, TapeType
from fxad.ir.program import OPS, Program, Symbol
from fxad.ir.rewrite import evaluate

# Stand-ins for what references look at: records, and functions that know where memory begins.
_GIVEN: dict[Any, tuple[str, str]] = {
    ArrayType: (
        "ArrayType",
        'class ArrayType(collections.namedtuple("ArrayType", "dtype shape")):\n'
        "    ndim = property(lambda self: len(self.shape))\n\n"
        "    def with_dtype(self, dtype):\n"
        "        return ArrayType(dtype, self.shape)\n\n"
        "    def with_shape(self, shape):\n"
        "        return ArrayType(self.dtype, shape)",
    ),
    Program: ("Program", "class Program:\n    pass"),
    Symbol: ("Symbol", 'Symbol = collections.namedtuple("Symbol", "name value")'),
    dt.complex_of: (
        "complex_of",
        "def complex_of(dtype):\n"
        '    wide = dtype.name in ("float64", "complex128")\n'
        '    return np.dtype("complex128" if wide else "complex64")',
    ),
    aligned.empty: ("empty", "def empty(shape, dtype):\n    return np.empty(shape, dtype)"),
    evaluate: ("evaluate", "def evaluate(program, args):\n    return program(*args)"),
}
_MODULES = {
    np: "np",
    ml_dtypes: "ml_dtypes",
    math: "math",
    functools: "functools",
    builtins: "builtins",
}
_IMPORTS = {
    "np": "import numpy as np",
    "math": "import math",
    "functools": "import functools",
    "builtins": "import builtins",
    "collections": "import collections",
    "ml_dtypes": "import ml_dtypes",
}
_LIBRARIES = {  # modules whose functions are called by name, where loaded
    "numpy": "np",
    "numpy.linalg": "np.linalg",
    "numpy.fft": "np.fft",
    "math": "math",
    "functools": "functools",
    "builtins": "",
}
_CACHED = type(functools.cache(len))
RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | set(_IMPORTS)


class Definitions:
    """Module-level definitions in an order in which each needs only earlier ones."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.taken: set[str] = set(RESERVED)
        self._names: dict[object, str] = {}
        self._keep: list[Any] = []  # whose id is a key
        self._modules: set[str] = {"np"}

    @property
    def imports(self) -> list[str]:
        return [text for name, text in sorted(_IMPORTS.items()) if name in self._modules]

    def fresh(self, hint: str) -> str:
        """A name nothing else has, close to the hint."""
        return close_to(hint.strip("_<>") or "value", self.taken)

    def name(self, value: Any, hint: str) -> str:
        """The expression that stands for a value in the text, defining it if need be.

        Raises TypeMismatch for a value that has no source.
        """
        if isinstance(value, _CACHED):
            value = value.__wrapped__
        if isinstance(value, types.FunctionType):
            value = getattr(value, "undivided", value)  # an op's function, without its threads
        simple = self._simple(value)
        if simple is not None:
            return simple
        key = id(value) if not isinstance(value, np.dtype) else value
        if key not in self._names:
            self._keep.append(value)
            self._names[key] = self._define(value, hint)
        return self._names[key]

    def _simple(self, value: Any) -> str | None:
        """What needs no definition: numbers, tuples, library functions."""
        if value is None or isinstance(value, bool | str | int) or value is Ellipsis:
            return repr(value)
        if isinstance(value, float | complex) and not isinstance(value, np.generic):
            return number(value)
        if isinstance(value, tuple | list):
            parts = [self.name(v, "item") for v in value]
            return tupled(parts) if isinstance(value, tuple) else f"[{', '.join(parts)}]"
        if isinstance(value, types.ModuleType) and value in _MODULES:
            return self._use(_MODULES[value])
        found = getattr(value, "__name__", "")
        for module, path in _LIBRARIES.items():
            if found and module in sys.modules and vars(sys.modules[module]).get(found) is value:
                self._use(path.split(".")[0])
                return f"{path}.{found}" if path else found
        return None

    def _use(self, module: str) -> str:
        if module:
            self._modules.add(module)
        return module

    def _define(self, value: Any, hint: str) -> str:
        if isinstance(value, type | types.FunctionType) and value in _GIVEN:
            name, text = _GIVEN[value]
            self._use("collections")
            self.taken.add(name)
            self.texts.append(text)
            return name
        if isinstance(value, np.dtype):
            return self._dtype(value)
        if isinstance(value, ArrayType):
            return f"{self.name(ArrayType, '')}({self.name(value.dtype, '')}, {value.shape})"
        if isinstance(value, TapeType):
            return f"{self.name(TapeType, '')}({self._simple(value.blocks)}, {value.lanes})"
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(value, hint)
        return self._assigned(hint, self._expression(value))

    def _expression(self, value: Any) -> str:
        if isinstance(value, dict):
            items = [f"{self.name(k, 'key')}: {self.name(v, 'item')}" for k, v in value.items()]
            return "{" + ", ".join(items) + "}"
        if isinstance(value, frozenset | set):
            items = [self.name(v, "item") for v in sorted(value, key=str)]
            return f"frozenset([{', '.join(items)}])"
        if isinstance(value, functools.partial):
            self._use("functools")
            parts = [self.name(v, "part") for v in (value.func, *value.args)]
            parts += [f"{k}={self.name(v, k)}" for k, v in value.keywords.items()]
            return f"functools.partial({', '.join(parts)})"
        if isinstance(value, np.ndarray | np.generic):
            return self.array(np.asarray(value))
        raise TypeMismatch(f"to_python: {type(value).__name__} {value!r:.60} has no source")

    def array(self, value: np.ndarray) -> str:
        """An expression of exactly this array."""
        if value.dtype.kind not in "biufc":
            wide = value.astype(np.float64)
            return f"{self.array(wide)}.astype({self.name(value.dtype, '')})"
        numbers = ", ".join(map(number, value.reshape(-1).tolist()))
        text = f"np.array([{numbers}], {self.name(value.dtype, '')})"
        return text if value.ndim == 1 else f"{text}.reshape({value.shape})"

    def _assigned(self, hint: str, expression: str) -> str:
        name = self.fresh(hint)
        self.texts.append(f"{name} = {expression}")
        return name

    def _dtype(self, value: np.dtype) -> str:
        if hasattr(ml_dtypes, value.name):
            self._use("ml_dtypes")
            return self._assigned(value.name, f"np.dtype(ml_dtypes.{value.name})")
        if value.names:  # typed random keys
            return self._assigned("key_dtype", f"np.dtype({value.descr!r})")
        return self._assigned(value.name, f'np.dtype("{value.name}")')

    def _class(self, value: type) -> str:
        if issubclass(value, FxadError):
            base = next(b for b in value.__mro__ if b.__module__ == "builtins")
            return base.__name__
        node = _parsed(value).body[0]
        assert isinstance(node, ast.ClassDef)
        node.name = self._names[id(value)] = self.fresh(value.__name__)
        method = next(m for m in vars(value).values() if isinstance(m, types.FunctionType))
        self.texts.append(self._resolved(node, method.__globals__, ()))
        return node.name

    # ------------------------------------------------------------ functions

    def _function(self, function: types.FunctionType, hint: str) -> str:
        """A function of its module; one with a closure is the result of a factory, defined once."""
        code = function.__code__
        if not code.co_freevars:
            node = _definition(function)
            if isinstance(node, ast.Lambda):
                return self._assigned(hint, self._resolved(node, function.__globals__, ()))
            name = node.name = self._names[id(function)] = self.fresh(hint)  # it may call itself
            self.texts.append(self._resolved(node, function.__globals__, ()))
            return name
        cells = function.__closure__ or ()
        values = [
            self.name(c.cell_contents, n) for n, c in zip(code.co_freevars, cells, strict=True)
        ]
        if code not in self._names:
            self._names[code] = self._factory(function)
        return self._assigned(hint, f"{self._names[code]}({', '.join(values)})")

    def _factory(self, function: types.FunctionType) -> str:
        free = function.__code__.co_freevars
        node = _definition(function)
        inner = self._resolved(node, function.__globals__, free)
        name = self.fresh(function.__qualname__.split(".")[0])
        source = Source()
        with source.block(f"def {name}({', '.join(free)}):"):
            if isinstance(node, ast.Lambda):
                source.line(f"return {inner}")
            else:
                source.extend(inner.split("\n"))
                source.line(f"return {node.name}")
        self.texts.append("\n".join(source.lines))
        return name

    def _resolved(self, node: ast.AST, scope: dict[str, Any], free: Sequence[str]) -> str:
        """The node's text with what it reads from its module replaced by names of this text."""
        bound = _bound(node) | set(free)
        return ast.unparse(_Resolve(self, scope, bound).visit(node))


class _Resolve(ast.NodeTransformer):
    """Replaces reads of module globals; drops annotations, decorators and docstrings."""

    def __init__(self, defs: Definitions, scope: dict[str, Any], bound: set[str]) -> None:
        self.defs = defs
        self.scope = scope
        self.bound = bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id not in self.bound and node.id in self.scope:
            return self._reference(self.scope[node.id], node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node:
            case ast.Attribute(ast.Subscript(ast.Name("OPS"), ast.Constant(name)), "numpy"):
                return self._reference(OPS[str(name)].numpy, str(name))
        base = node.value
        if isinstance(base, ast.Name) and base.id not in self.bound and base.id in self.scope:
            module = self.scope[base.id]
            if isinstance(module, types.ModuleType) and module.__name__.startswith("fxad"):
                return self._reference(getattr(module, node.attr), node.attr)
        self.generic_visit(node)
        return node

    def _reference(self, value: Any, hint: str) -> ast.expr:
        text = self.defs.name(value, hint)
        if text in self.bound:  # a local of this function has the name
            text = self.defs._assigned(f"the_{text}", text)
        return ast.parse(text, mode="eval").body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = []
        for arg in _arguments(node.args):
            arg.annotation = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        plain = ast.Assign([node.target], node.value)
        return self.visit(ast.copy_location(plain, node))


def _arguments(args: ast.arguments) -> list[ast.arg]:
    extra = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def _bound(node: ast.AST) -> set[str]:
    """Names that the code binds itself, at any depth."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            found.add(part.id)
        elif isinstance(part, ast.arg):
            found.add(part.arg)
        elif isinstance(part, ast.FunctionDef) and part is not node:
            found.add(part.name)
    return found


def _parsed(thing: Any) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError) as error:
        raise TypeMismatch(f"to_python: the source of {thing!r:.60} is not to be had") from error


@functools.lru_cache(maxsize=64)
def _file(path: str) -> str:
    with open(path, encoding="utf-8") as source:
        return source.read()


def _definition(function: types.FunctionType) -> Any:
    """The `def` or `lambda` a function was made by (a fresh tree, to be changed at will)."""
    code = function.__code__
    if code.co_name != "<lambda>":
        return _parsed(function).body[0]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    places = {(p[0], p[2], p[1], p[3]) for p in code.co_positions()}
    for node in ast.walk(ast.parse(_file(code.co_filename))):
        if not isinstance(node, ast.Lambda) or node.lineno != code.co_firstlineno:
            continue
        own = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        body = node.body
        place = (body.lineno, body.col_offset, body.end_lineno, body.end_col_offset)
        if tuple(own) == names and place in places:
            return node
    raise TypeMismatch(f"to_python: the lambda at {code.co_filename}:{code.co_firstlineno} is lost")
