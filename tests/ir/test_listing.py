"""Listings with columns, diffs of passes, drawings."""

from __future__ import annotations

import re
import xml.dom.minidom

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
import fxad.show
from fxad import lax
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.ir.inspection.columns import COLUMNS, flops, listing, moved
from fxad.ir.inspection.diff import diff
from fxad.ir.inspection.drawing import to_html, to_svg
from fxad.ir.rewrite import map_subprograms
from fxad.show import pass_diffs

W, X = np.ones((4, 2), np.float32), np.ones((3, 4), np.float32)


def loss(w, x):
    h = jnp.tanh(x @ w)
    return jnp.sum(jnp.sin(h) * h)


def looped(x):
    def body(c, v):
        return lax.cond(c < 3, lambda c: c * 2, lambda c: c + 1, c) + v.sum(), None

    return lax.scan(body, 1.0, x)[0]


# ---------------------------------------------------------------- columns


def rows(program, column):
    """Op -> what the column says, for each equation."""
    found = []
    for line in listing(program, [column]).split("\n")[1:-2]:
        op = re.search(r"= (\w+)\(", line).group(1)
        found.append((op, re.split(r"\)\s{2,}", line + "  ")[-1].strip()))
    return found


def test_operations_are_counted_by_hand() -> None:
    program = fxad.make_ir(loss)(W, X).program
    assert [flops(e) for e in program.eqns] == [2 * 3 * 2 * 4, 6, 6, 6, 6]
    assert [moved(e) for e in program.eqns] == [4 * (12 + 8 + 6), 48, 48, 72, 28]
    # One trip of the body: add, cond with one operation, sum of 4, compared with 3.
    assert sum(map(flops, fxad.make_ir(looped)(X).program.eqns)) == 3 * (1 + 1 + 4 + 1)
    assert flops(fxad.make_ir(lambda x: x.T)(X).program.eqns[0]) == 0
    assert moved(fxad.make_ir(lambda x: x.T)(X).program.eqns[0]) == 0


def test_products_count_as_much_as_in_the_compiled_plan() -> None:
    big = np.ones((64, 64), np.float32)
    lowered = fxad.jit(lambda x: jnp.tanh(x @ x)).lower(big)
    assert sum(map(flops, lowered.program.eqns)) == lowered.cost()["flops"]


def test_what_the_backward_pass_keeps_or_computes_again() -> None:
    kept = dict(rows(fxad.make_ir(fxad.grad(loss))(W, X).program, "kept"))
    assert (kept["sub"], kept["cos"], kept["square"], kept["dot"]) == ("saved", "saved", "", "")
    plain = fxad.jit(fxad.grad(fxad.checkpoint(loss))).lower(W, X).program
    kept = dict(rows(plain, "kept"))
    assert (kept["tanh"], kept["cos"], kept["mul"]) == ("recomputed", "recomputed", "")
    phases = dict(
        rows(fxad.make_ir(fxad.vmap(fxad.grad(loss), (None, 0)))(W, X[None]).program, "phase")
    )
    assert (phases["tanh"], phases["mul"]) == ("forward", "backward")


def test_offloaded_values_are_marked() -> None:
    def deep(w, x):
        return jnp.sum(fxad.checkpoint(lambda x: jnp.sin(jnp.tanh(x @ w)), policy=policy)(x))

    policy = fxad.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    w, x = np.ones((128, 128), np.float32), np.ones((128, 128), np.float32)
    program = fxad.jit(fxad.grad(deep)).lower(w, x).program
    assert ("dot", "offloaded") in rows(program, "kept")


def test_lifetimes_run_from_the_definition_to_the_last_use() -> None:
    lives = rows(fxad.make_ir(loss)(W, X).program, "lives")
    assert lives == [
        ("dot", "0-1"),
        ("tanh", "1-3"),
        ("sin", "2-3"),
        ("mul", "3-4"),
        ("sum", "4-end"),
    ]


def test_the_text_with_columns_is_the_text_and_columns() -> None:
    printed = fxad.make_ir(fxad.grad(looped))(X)
    plain = [line.split("  #")[0] for line in str(printed).split("\n")]
    columns = [c for c in COLUMNS if c != "time"]
    for line, wide in zip(plain, printed.text(columns).split("\n"), strict=True):
        assert wide.startswith(line)
    assert printed.text() == str(printed)
    assert "test_listing.py" in fxad.show.as_text(printed, ["where"])
    assert printed.text("flops") == printed.text(["flops"])
    with pytest.raises(BadArgument, match="no column 'flop'; there are shape, flops"):
        printed.text(["flop"])


def test_times_of_a_profile_stand_beside_the_equations_of_its_kernels() -> None:
    x = np.ones((32, 32), np.float32)
    f = fxad.grad(lambda x: jnp.sum(jnp.tanh(x @ x)))
    report, printed = fxad.profile(f, x), fxad.make_ir(f)(x)
    with pytest.raises(BadArgument, match="pass profile="):
        printed.text(["time"])
    text = printed.text(["time", "source"], profile=report)
    line = next(line for line in text.split("\n") if "= dot(" in line)
    kernel = next(k for k in report.kernels if any(w.startswith("dot @") for w in k.where))
    assert f"{1e3 * kernel.seconds:.3f} {kernel.name}" in line
    assert line.endswith("f = fxad.grad(lambda x: jnp.sum(jnp.tanh(x @ x)))")


def test_forward_and_backward_stand_side_by_side() -> None:
    printed = fxad.make_ir(fxad.grad(loss))(W, X)
    text = printed.text(style="sides", width=150)
    section = text.split("# test_listing.py:")[1].split("\n")
    (tanh,) = [line for line in section if "tanh(" in line]
    assert tanh.index("tanh(") < tanh.index("|")
    backward = [line for line in section if "d_w" in line]
    assert backward and all(line.index("|") < line.index("d_w") for line in backward)
    sides = [part for line in text.split("\n") for part in line.split("  |  ")]
    assert sum(" = " in part for part in sides) == len(printed.eqns)
    assert max(map(len, text.split("\n"))) <= 150


# ---------------------------------------------------------------- diffs


def test_a_diff_shows_what_a_pass_changed_and_keeps_names() -> None:
    def f(x):
        return jnp.exp(x * 1.0) + jnp.exp(x)

    changes = dict(pass_diffs(fxad.make_ir(f)(X).program))
    assert list(changes) == ["algebra", "cse", "dce"] or "cse" in changes
    algebra = [line[1:].split("#")[0].strip() for line in changes["algebra"].split("\n")]
    assert "a: f32[3,4] = mul(x, 1.0:f32)" in algebra
    assert "b: f32[3,4] = exp(x)" in algebra
    text = fxad.show.passes(f)(X)
    assert "=== algebra\n@@" in text


def test_equal_programs_have_no_diff() -> None:
    program = fxad.make_ir(looped)(X).program
    assert diff(program, program) == ""
    assert diff(program, map_subprograms(program, lambda p: p)) == ""
    assert pass_diffs(fxad.make_ir(jnp.tanh)(X).program) == []


# ---------------------------------------------------------------- drawings


def boxes(svg: str) -> list[tuple[float, float, float, str]]:
    """(x, y, width, label) of every box; also checks that the drawing is well-formed XML."""
    found = []
    for group in xml.dom.minidom.parseString(svg).getElementsByTagName("g"):
        box = group.getElementsByTagName("rect")[0]
        x, y, width = (float(box.getAttribute(n)) for n in ("x", "y", "width"))
        found.append((x, y, width, group.getElementsByTagName("text")[0].firstChild.data))
    return found


@pytest.mark.parametrize("f", [loss, fxad.grad(loss), fxad.hessian(lambda w, x: loss(w, x))])
def test_every_equation_has_a_box_and_none_overlap(f) -> None:
    program = fxad.make_ir(f)(W, X).program
    found = boxes(to_svg(program))
    labels = sorted(label for *_, label in found if ":" not in label)
    assert labels == sorted(e.op.name for e in program.eqns)
    assert len(found) == len(program.eqns) + len(program.inputs) + len(program.outputs)
    for x, y, width, label in found:
        for x2, y2, _, other in found:
            if y == y2 and x < x2:
                assert x + width < x2, (label, other)


def test_edges_lead_down_and_titles_hold_equations() -> None:
    svg = to_svg(fxad.make_ir(loss)(W, X).program)
    for start, end in re.findall(r"M\S+?,(\S+) C\S+ \S+ \S+?,(\S+)\"", svg):
        assert float(start) < float(end)
    assert "<title>b: f32[3,2] = tanh(a)  (test_listing.py:" in svg


def test_pages_hold_the_programs_inside(tmp_path) -> None:
    printed = fxad.make_ir(looped)(X)
    page = to_html(printed.program)
    assert page.count("<svg") == 4  # itself, the body, two branches
    assert "scan body" in page
    assert "cond branches" in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        boxes(svg)
    assert fxad.show.graph(printed, tmp_path / "f.html") == (tmp_path / "f.html").read_text()
    assert fxad.show.graph(printed, tmp_path / "f.svg").startswith("<svg")
    assert fxad.show.graph(printed)._repr_html_().startswith("<svg")  # what a notebook shows
    with pytest.raises(TypeMismatch, match="make_ir"):
        fxad.show.graph(looped)
    with pytest.raises(BadArgument, match=r"'f\.png' must end in \.svg or \.html"):
        fxad.show.graph(printed, "f.png")


def test_programs_without_equations_can_be_drawn() -> None:
    program = fxad.make_ir(lambda x: (x, 1.0))(X).program
    assert len(boxes(to_svg(program))) == 3 + len(program.eqns) + len(program.consts)


# ---------------------------------------------------------------- two programs


def test_programs_traced_apart_are_compared() -> None:
    def other(w, x):
        h = jnp.tanh(jnp.sin(x) @ w)
        return jnp.sum(jnp.sin(h) * h)

    one, two = (fxad.jit(fxad.grad(f)).lower(W, X) for f in (loss, other))
    assert one.diff(fxad.jit(fxad.grad(loss)).lower(W, X)) == ""
    text = one.diff(two)
    lines = text.split("\n")
    added = [line for line in lines if line.startswith("+") and " = " in line]
    gone = [line for line in lines if line.startswith("-") and " = " in line]
    assert any(" = sin(x)" in line for line in added)
    # The two products that read x are the only others that differ.
    assert [line.split(" = ")[1][:3] for line in gone] == ["dot", "dot"]
    assert len(added) == 3
    assert any(re.fullmatch(r"flops: \d+ -> \d+", line) for line in lines)
    with pytest.raises(TypeMismatch, match="diff: expected"):
        one.diff(loss)


# ---------------------------------------------------------------- on the terminal


def test_colours_by_kind_and_folding_by_depth() -> None:
    printed = fxad.make_ir(looped)(X)
    text = fxad.show.coloured(printed)
    assert text.plain == str(printed)
    styles = {text.plain[s.start : s.end]: str(s.style) for s in text.spans}
    assert styles["program"] == "bold blue"
    assert styles["cond"] == "bold magenta" and styles["f32[3,4]"] == "cyan"
    folded = fxad.show.as_text(printed, depth=0).split("\n")
    assert folded[0] == str(printed).split("\n")[0] and folded[-1] == "}"
    assert len(folded) == 3 and "lines" in folded[1]
    one = fxad.show.as_text(printed, depth=1)
    assert "scan(" in one and "cond(" not in one
    assert fxad.show.as_text(printed, depth=9) == str(printed)
