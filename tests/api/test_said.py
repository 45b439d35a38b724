"""What things say of themselves: reprs, hints at names, TAB completion, tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.lax
import fxad.numpy as jnp
import fxad.show
from fxad.core import notebook, tracebacks
from fxad.core.config import ConfigError, config
from fxad.errors import ConcretizationError, ShapeError
from fxad.trace import location

W, X = np.ones((4, 2), np.float32), np.ones((3, 4), np.float32)


def loss(w, x):
    return jnp.sum(jnp.tanh(x @ w))


# ---------------------------------------------------------------- reprs


def test_functions_say_what_they_are() -> None:
    f = fxad.jit(fxad.grad(loss, argnums=1))
    assert repr(f) == "<jit(grad(loss, argnums=1)), not traced yet>"
    f(W, X)
    assert repr(f).endswith("traced for 1 signature>")
    f(W, np.ones((5, 4), np.float32))
    assert repr(f).endswith("traced for 2 signatures>")
    assert "vmap(grad(grad(loss)), in_axes=(None, 0))" in repr(
        fxad.vmap(fxad.grad(fxad.grad(loss)), (None, 0))
    )
    assert "value_and_grad(loss, has_aux=True)" in repr(fxad.value_and_grad(loss, has_aux=True))
    assert "jacfwd(jacrev(loss))" in repr(fxad.hessian(loss))
    assert fxad.grad(loss).__name__ == "grad_loss"

    def inner(x):
        return x

    assert "grad(inner)" in repr(fxad.grad(inner))


def test_lowered_functions_say_what_they_take_and_give() -> None:
    lowered = fxad.jit(loss).lower(W, X)
    assert repr(lowered) == "<Lowered loss(w: f32[4,2], x: f32[3,4]) -> f32[], 3 equations>"
    assert repr(lowered.compile()).startswith("<Compiled loss(")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [(fxad, "gard", "grad"), (jnp, "meen", "mean"), (fxad.lax, "while_lop", "while_loop")],
)
def test_hints_at_names_that_look_alike(module, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean {meant}\\?"):
        getattr(module, name)


def test_no_hints_at_names_that_look_like_none() -> None:
    with pytest.raises(AttributeError, match="'zzzzz'$"):
        _ = fxad.zzzzz
    with pytest.raises(AttributeError, match="'_private'$"):
        _ = fxad._private
    with pytest.raises(ConfigError, match="did you mean traceback"):
        config.tracebak = "full"


@pytest.mark.parametrize("module", [fxad, jnp, fxad.lax])
def test_completion_lists_what_is_public(module) -> None:
    listed = set(dir(module))
    assert listed >= set(module.__all__)
    others = {name for name in listed - set(module.__all__) if not name.startswith("__")}
    assert others == set()


# ---------------------------------------------------------------- tracebacks


def run(tmp_path: Path, code: str, **environment: str) -> str:
    """What a script prints as it ends with an error."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(code))
    environment = {**os.environ, "PYTHONPATH": str(Path(fxad.__file__).parents[1]), **environment}
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    return done.stderr


WRONG = """
    import numpy as np
    import fxad
    import fxad.numpy as jnp

    def loss(w):
        return jnp.sum(w @ w)

    fxad.jit(fxad.grad(loss))(np.ones((2, 3), np.float32))
"""


def test_tracebacks_end_at_the_users_line(tmp_path) -> None:
    said = run(tmp_path, WRONG)
    files = [line for line in said.split("\n") if line.startswith("  File ")]
    assert len(files) == 2 and all("script.py" in line for line in files)
    assert "return jnp.sum(w @ w)" in said
    assert "fxad.core.errors.ShapeError: matmul" in said
    whole = run(tmp_path, WRONG, FXAD_TRACEBACK="full")
    assert whole.count("  File ") > 5 and "fxad/api/jit.py" in whole


FROM_MODELS = """
    import sys
    from pathlib import Path
    import fxad
    import fxad_nn
    from fxad_nn import models, recipe, store

    def wrong():
        config = models.preset("tiny")
        forward = models.family(config).forward
        fxad.jit(lambda params: forward(params, "hello", config))({})

    def damaged():
        Path("config.json").write_text("{")
        fxad_nn.load(".")

    {"wrong": wrong, "damaged": damaged, "missing": lambda: store.load("nowhere"),
     "option": lambda: recipe.recipe(steps=0)}[sys.argv[1]]()
"""


@pytest.mark.parametrize(
    ("what", "frames", "last"),
    [
        ("wrong", 3, "fxad_nn.errors.DataError: tokens must be integers"),
        ("damaged", 2, "fxad_nn.errors.CheckpointError: config.json is damaged: no JSON"),
        ("missing", 2, "fxad_nn.errors.CheckpointError: nowhere does not exist"),
        ("option", 2, "fxad_nn.errors.ConfigError: `steps` must be at least 1"),
    ],
)
def test_errors_of_models_end_at_the_users_line_too(tmp_path, what, frames, last) -> None:
    code = FROM_MODELS.replace("sys.argv[1]", repr(what))
    said = run(tmp_path, code)
    files = [line for line in said.split("\n") if line.startswith("  File ")]
    assert len(files) == frames and all("script.py" in line for line in files)
    assert said.rstrip().split("\n")[-1].startswith(last)
    if what == "damaged":  # what it came from is said without frames
        assert said.startswith("json.decoder.JSONDecodeError: ")
    whole = run(tmp_path, code, FXAD_TRACEBACK="full")
    assert "fxad_nn/" in whole and whole.count("  File ") > frames


def test_errors_of_the_users_own_lose_our_frames_too(tmp_path) -> None:
    said = run(
        tmp_path,
        """
        import fxad

        def f(x):
            try:
                {}["lr"]
            except KeyError as error:
                raise ValueError("no rate") from error

        fxad.jit(f)(1.0)
        """,
    )
    assert "ValueError: no rate" in said and "KeyError: 'lr'" in said
    assert "fxad/api" not in said


def test_faults_of_the_library_show_all_frames(tmp_path) -> None:
    said = run(
        tmp_path,
        """
        import fxad
        from fxad.ir.program import OPS

        fxad.jit(lambda x: OPS["no such op"](x))(1.0)
        """,
    )
    assert "script.py" in said
    said = run(
        tmp_path,
        """
        import fxad
        from fxad.api.naming import label_program

        fxad.jit(lambda x: label_program(x, None, None, None, None))(1.0)
        """,
    )
    assert "fxad/api/naming.py" in said and "fxad/api/jit.py" in said


class Shell:
    """Stands in for IPython's: remembers the frames that it was to show."""

    def __init__(self, custom: tuple = ()) -> None:
        self.custom_exceptions, self.show, self.files = custom, None, []
        self.compile = self.events = self
        self.number = 7

    def set_custom_exc(self, kinds: tuple, show: Any) -> None:
        self.custom_exceptions, self.show = kinds, show

    def showtraceback(self, error: tuple, **_: Any) -> None:
        self.files.append([frame.filename for frame in traceback.extract_tb(error[2])])
        assert error[1].__traceback__ is error[2]

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{self.number}]") if name == "/tmp/cell.py" else None

    def register(self, event: str, call: Any) -> None:
        self.before_a_cell = call


def test_ipython_is_given_the_users_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(shell: Shell) -> None:
        try:
            fxad.jit(lambda x: x + X)(W)
        except ShapeError as error:
            frames = error.__traceback__
            shell.show(shell, ShapeError, error, frames, tb_offset=1)
            assert error.__traceback__ is frames

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    tracebacks.install()
    assert shell.custom_exceptions == (Exception, KeyboardInterrupt)
    shown(shell)
    with config.override(traceback="full"):
        shown(shell)
    users, whole = shell.files
    assert set(users) == {__file__} and len(whole) > len(users)
    other = Shell(custom=(ValueError,))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: other))
    tracebacks.install()
    assert other.show is None  # somebody else shows errors there


def test_locations_name_a_notebooks_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    notebook.before_each_cell(location._forget_cells)
    scope: dict[str, Any] = {}
    text = "import fxad.numpy as jnp\n\ndef f(x):\n    return jnp.ones(3) @ x\n"
    exec(compile(text, "/tmp/cell.py", "exec"), scope)
    for shell.number in (7, 8):  # the same cell runs again
        shell.before_a_cell()
        with pytest.raises(ShapeError, match=rf"\(In\[{shell.number}\]:4\)$"):
            fxad.jit(scope["f"])(W[0])


def test_numpys_own_lines_are_not_the_users() -> None:
    with pytest.raises(ConcretizationError, match=r"\(test_said.py:\d+\)"):
        fxad.jit(lambda x: np.linalg.norm(x))(jnp.ones(3))


# ---------------------------------------------------------------- warnings


def test_numbers_of_numpy_are_narrowed_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fxad.core.dtypes._warned.clear()
        for value in (np.float64(2), np.int64(3), np.complex128(1j), np.uint64(4)):
            assert (jnp.ones(3) * value).dtype.itemsize <= 8
            assert fxad.jit(lambda x: x)(value).dtype.itemsize <= 8
        assert (jnp.ones(3) * np.float64(2)).dtype == np.float32
        assert jnp.arange(3)[[2, 0]].tolist() == [2, 0]
        assert jnp.arange(3).at[[2, 0]].set(7).tolist() == [7, 1, 7]
        with pytest.raises(fxad.errors.NarrowingWarning, match="a float64 input"):
            jnp.ones(3) * np.ones(3)


def test_errors_say_array() -> None:
    x = jnp.ones(3)
    assert type(x).__name__ == "Array"
    with pytest.raises(TypeError, match="str"):
        x + "a"
    with pytest.raises(fxad.errors.TypeMismatch, match="got Array"):
        fxad.show.as_text(x, ["flops"])


# ---------------------------------------------------------------- errors of calls that go wrong

KEY = fxad.random.key(0)
TREE = {"x": X, "y": X}
IMAGE = np.ones((1, 1, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fxad.random.normal((3,), KEY), "a random key comes first, the shape after it"),
        (lambda: fxad.random.normal((3,)), "the first argument is a key, not a tuple; make one"),
        (lambda: fxad.random.normal(None, (3,)), "the first argument is a key, not a NoneType"),
        (lambda: fxad.random.randint(KEY, 0, 9), r"randint\(\) missing 1 required .* 'maxval'"),
        (lambda: jnp.zeros((2, "a")), r"zeros: a shape must be ints, not \(2, 'a'\)"),
        (lambda: jnp.zeros(jnp.ones(2)), r"zeros: a shape must be ints, not f32\[2\]"),
        (lambda: jnp.zeros(KEY), "u32.*; a random key comes first"),
        (lambda: jnp.array({1, 2}), "cannot make an array of set: expected numbers"),
        (lambda: jnp.roll(jnp.ones(3), np.ones((1, 2))), r"roll: shifts are .* shape \(1, 2\)"),
        (lambda: jnp.roll(jnp.ones(3), (1, 2), (0, 0, 0)), r"roll: .*\(2,\), \(3,\)"),
        (lambda: jnp.insert(W, 9, 1.0, 0), "insert: position 9 is out .* an axis of length 4"),
        (lambda: jnp.insert(W, 1.5, 1.0), r"insert: positions are an integer .* not f32\[\]"),
        (lambda: fxad.jit(jnp.delete)(W, 1), "delete: .* pass assume_unique_indices=True"),
        (lambda: jnp.vectorize(jnp.sin, excluded={-1}), "excluded are positions or names, not -1"),
        (
            lambda: jnp.vectorize(lambda a: a[:1], signature="(n)->(n)")(W),
            "vectorize: axis 'n' of result 0 has length 1, elsewhere 2",
        ),
        (
            lambda: jnp.vectorize(jnp.sum, signature="(n)->(n)")(W),
            r"vectorize: result 0 has shape \(\), but the signature is '\(n\)->\(n\)'",
        ),
        (lambda: jnp.interp(1.0, X[0], X[0], "wrap"), "are numbers or 'extrapolate', not 'wrap'"),
        (
            lambda: jnp.average(W, weights=W[0]),
            r"average: weights f32\[2\] match neither f32\[4,2\]",
        ),
        (lambda: fxad.jit(lambda k: jnp.eye(2, k=k))(1.5), "a diagonal's number must be an int"),
        (lambda: jnp.r_["x", X[0]], "a directive is up to three integers, 'r' or 'c', not 'x'"),
        (lambda: jnp.r_[X[0], "0,2"], "a directive comes first"),
        (lambda: fxad.jit(lambda x: x.tobytes())(X), r"\.tobytes\(\) needs a concrete value"),
        (lambda: jnp.nonzero(W, size=2, fill_value=(1,)), "nonzero: fill_value is .* tuple of 2"),
        (lambda: fxad.hvp(jnp.sum, W, W), r"hvp\(f, \(x,\), \(v,\)\)"),
        (lambda: fxad.vmap(jnp.sum, ({"x": 0},))(TREE), r"vmap\(sum\): in_axes\[0\]: .*'x', 'y'"),
        (lambda: fxad.vmap(lambda x: (x, x), out_axes=(0, None))(X), r"is None for result\[1\]"),
        (lambda: fxad.lax.conv(IMAGE, IMAGE, 1, "SAME"), "window_strides must be 2 positive ints"),
        (lambda: fxad.lax.conv(IMAGE, IMAGE, (1, 1), (1, 1)), "padding must be 2 pairs, one per"),
        (lambda: fxad.debug.print("{x} {}", X), "names x, which is not given: x=..."),
        (lambda: fxad.debug.print("{} {}", X), "has more fields than there are values"),
        (lambda: fxad.debug.print("x", X), "leaves out value 0; it needs {}"),
        (lambda: fxad.debug.print("x", x=X), "leaves out value x; it needs {x}"),
        (lambda: fxad.debug.print(X), r"must be a string, got an array f32\[3,4\]|got a ndarray"),
        (lambda: fxad.jit(lambda n: jnp.arange(n))(3), "arange: a bound needs concrete values"),
        (lambda: fxad.jit(lambda n: jnp.zeros(n))(3), "zeros: a shape needs concrete values"),
    ],
)
def test_errors_name_the_function_and_what_is_wrong(call, said) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=f"(?s){said}"):
        call()


def test_kernels_are_shown_as_their_texts() -> None:
    kernels = fxad.jit(loss).lower(W, X).kernels
    assert isinstance(kernels, list)
    assert repr(kernels) == str(kernels) == "\n\n".join(map(str, kernels))
