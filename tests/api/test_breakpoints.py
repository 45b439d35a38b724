"""A breakpoint in traced code shows the frames in which it was traced, with values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fxad
import fxad.lax as lax
import fxad.numpy as jnp


@pytest.fixture
def stops(monkeypatch):
    """For each stop the frames of this file, innermost first: (function, line, names)."""
    found = []

    def hook():
        frame, seen = sys._getframe(1), []
        while frame.f_code.co_name != "started":
            if frame.f_code.co_filename == __file__:
                names = {k: v for k, v in frame.f_locals.items() if k != "__stop__"}
                seen.append((frame.f_code.co_name, frame.f_lineno, names))
            frame = frame.f_back
        found.append(seen)

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return found


def inner(y, factor=2):
    z = {"scaled": y * factor, "rest": [factor, "text"]}
    fxad.debug.breakpoint()
    return z["scaled"]


LINE = inner.__code__.co_firstlineno + 2


def outer(x):
    y = jnp.sin(x)
    return inner(y) + 1


def started(function, *args):
    return function(*args)


@pytest.mark.parametrize(
    "wrap", [lambda f: f, fxad.jit, fxad.grad, lambda f: fxad.jit(fxad.grad(f))]
)
def test_names_have_the_values_of_the_run(wrap, stops) -> None:
    wrapped = wrap(outer)
    for x in (0.5, 1.5):  # the second is not traced
        started(wrapped, x)
        [(name, line, names), *around] = stops[-1]
        assert (name, line) == ("inner", LINE)
        np.testing.assert_allclose(names["y"], np.sin(x), rtol=1e-6)
        assert isinstance(names["y"], fxad.Array)
        np.testing.assert_allclose(names["z"]["scaled"], 2 * np.sin(x), rtol=1e-6)
        assert names["z"]["rest"] == [2, "text"] and names["factor"] == 2
        outer_names = next(names for name, _, names in around if name == "outer")
        np.testing.assert_allclose(getattr(outer_names["x"], "primal", outer_names["x"]), x)
    assert len(stops) == 2


def test_lanes_branches_and_trips_stop_each(stops) -> None:
    started(fxad.jit(fxad.vmap(inner)), jnp.arange(3.0))
    assert [float(s[0][2]["y"]) for s in stops] == [0, 1, 2]
    started(fxad.jit(lambda x: lax.cond(x > 0, inner, lambda x: x, x)), 4.0)
    assert float(stops[3][0][2]["y"]) == 4
    started(lambda xs: lax.scan(lambda c, x: (c + inner(x), None), 0.0, xs), jnp.arange(2.0))
    carried = next(names for name, _, names in (stops[-1]) if name == "<lambda>")
    assert (float(carried["c"]), float(carried["x"])) == (0, 1)


def test_num_frames_leaves_outer_ones_out(stops) -> None:
    def f(x):
        y = x * 2

        def g(z):
            fxad.debug.breakpoint(z, num_frames=1, twice=y)
            return z

        return g(x + 1)

    started(fxad.jit(f), 1.0)
    [(name, _, names)] = stops[0]
    assert name == "g"
    assert float(names["args"][0]) == 2 and float(names["values"]["twice"]) == 2


def test_what_cannot_be_taken_apart_stays_as_it_is(stops) -> None:
    def f(x):
        mixed = {1: x, "a": x}  # keys that cannot be sorted
        fxad.debug.breakpoint()
        return mixed["a"] * 2

    assert float(started(fxad.jit(f), 1.5)) == 3
    names = stops[0][0][2]
    assert float(names["x"]) == 1.5 and set(names["mixed"]) == {1, "a"}


class Shaped:
    """A node that looks at its leaf."""

    def __init__(self, leaf):
        self.leaf, self.rank = leaf, leaf.ndim


fxad.tree.register_node(Shaped, lambda s: ((s.leaf,), None), lambda _, leaves: Shaped(*leaves))


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_no_variable_makes_it_fail(wrap, stops) -> None:
    ended = []

    def f(x):
        lax.scan(lambda c, row: (ended.append(c) or c + row, None), x, jnp.ones(2))
        itself = {"x": x}
        itself["itself"] = itself
        node = Shaped(x)
        fxad.debug.breakpoint(num_frames=0)
        return itself["x"] * 2 + node.leaf

    assert float(started(wrap(f), jnp.float32(1.5))) == 4.5
    names = stops[0][0][2]
    assert float(names["x"]) == float(names["node"].leaf) == 1.5


def test_in_pythons_debugger(tmp_path: Path) -> None:
    script = tmp_path / "stopping.py"
    script.write_text(
        "import fxad, fxad.numpy as jnp\n"
        "@fxad.jit\n"
        "def f(x):\n"
        "    y = jnp.exp(x)\n"
        "    fxad.debug.breakpoint()\n"
        "    return y * 2\n"
        "print(f(0.0))\n"
    )
    typed = "p y\nl\nc\n"
    done = subprocess.run(
        [sys.executable, str(script)], input=typed, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "stopping.py(5)f()" in done.stdout
    assert "(Pdb) Array(1., dtype=float32)" in done.stdout
    assert "  5  ->\t    fxad.debug.breakpoint()" in done.stdout
    assert done.stdout.rstrip().endswith("2.0")


def test_no_frame_of_the_library_is_between_two_of_the_users(monkeypatch):
    """`u` in the debugger goes from one to the next."""
    names = []

    def hook():
        frame = sys._getframe(1)
        names.extend([frame.f_code.co_name, frame.f_back.f_code.co_name])

    monkeypatch.setattr(sys, "breakpointhook", hook)
    fxad.jit(outer)(1.0)
    assert names == ["inner", "outer"]


@pytest.mark.parametrize("connected", [False, True])
def test_a_kernels_debugger_stops_only_where_an_editor_is_connected(monkeypatch, connected):
    called = []

    def debugpy_breakpointhook():
        called.append("debugpy")

    monkeypatch.setattr(sys, "breakpointhook", debugpy_breakpointhook)
    monkeypatch.setattr(sys, "__breakpointhook__", lambda: called.append("pdb"))
    debugpy = SimpleNamespace(is_client_connected=lambda: connected)
    monkeypatch.setitem(sys.modules, "debugpy", debugpy)
    fxad.jit(outer)(1.0)
    assert called == ["debugpy" if connected else "pdb"]
