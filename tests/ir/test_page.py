"""HTML of programs and what belongs to them: well-formed, escaped, of one file, folded."""

from __future__ import annotations

import os
import random
import stat
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core import files
from fxad.ir.inspection.page import to_fragment, to_page

X = np.ones((4, 8), np.float32)
VOID = {"meta", "br", "hr", "img", "input", "link"}
NASTY = "</div><script>alert('x')</script>&amp; \"quoted\""


class Page(HTMLParser):
    """Elements by tag; raises for tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID and not (tag in ("path", "rect") and "svg" in self.open):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def tags(self, name: str) -> list[dict[str, Any]]:
        return [attributes for tag, attributes in self.found if tag == name]

    @property
    def text(self) -> str:
        return "".join(self.words)


def loss(params, x):
    for p in params:
        x = jnp.tanh(x @ p["w"])
    return jnp.sum(x)


def layers(count: int):
    return [{"w": np.ones((8, 8), np.float32)} for _ in range(count)]


def test_a_page_is_one_file_with_the_program_and_its_graph(tmp_path) -> None:
    printed = fxad.make_ir(fxad.grad(loss))(layers(12), X)
    printed.save_html(tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    page = Page(text)
    assert not page.tags("script") and not page.tags("link") and not page.tags("img")
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert len(page.tags("svg")) == 1
    assert "program grad_loss(" in page.text and "d_params[i].w: f32[8,8] = dot(" in page.text
    assert [t for t in page.tags("div") if "flops" in t.get("title", "")]
    assert os.listdir(tmp_path) == ["x.html"]


def test_links_lead_to_definitions_and_gradients() -> None:
    page = Page(to_fragment(fxad.make_ir(fxad.grad(loss))(layers(12), X).program))
    ids = {a["id"] for _, a in page.found if "id" in a}
    links = [a["href"] for a in page.tags("a")]
    assert links and all(link[0] == "#" and link[1:] in ids for link in links)
    titles = [a.get("title") for a in page.tags("a")]
    assert "gradient" in titles and "forward" in titles
    assert len(ids) == len([a for _, a in page.found if "id" in a])
    other = Page(to_fragment(fxad.make_ir(loss)(layers(2), X).program))
    assert ids.isdisjoint(a["id"] for _, a in other.found if "id" in a)


def test_names_from_users_are_escaped() -> None:
    def f(tree):
        with fxad.named_scope(NASTY):
            return {NASTY: jnp.sin(tree[NASTY]) * 2, "b": jnp.cos(tree[NASTY])}

    tree = {NASTY: X}
    printed = fxad.make_ir(f)(tree)
    jitted = fxad.jit(f)
    jitted(tree)
    lowered = jitted.lower(tree)
    shown = [printed, printed.program, jitted, lowered, lowered.plan, fxad.profile(jitted, tree)]
    for thing in shown:
        page = Page(thing._repr_html_())
        assert not page.tags("script"), type(thing)
    assert "<script>" in Page(printed._repr_html_()).text
    assert not Page(to_page(printed.program)).tags("script")


def test_thousands_of_equations_are_folded() -> None:
    draw = random.Random(0)
    steps = [draw.choice((jnp.sin, jnp.cos, jnp.tanh, jnp.abs, jnp.exp)) for _ in range(1600)]

    def f(x):
        for step in steps:  # without order, so that little is a loop
            x = step(x)
        return x

    program = fxad.make_ir(f)(X).program
    assert len(program.eqns) > 1500
    page = Page(to_fragment(program))
    folds = page.tags("details")
    assert len(folds) >= 3 and sum("open" in fold for fold in folds) < len(folds)
    assert not page.tags("svg")


def test_notebooks_show_arrays() -> None:
    page = Page(jnp.arange(600.0).reshape(20, 30)._repr_html_())
    assert "f32[20,30]" in page.text and "… 20 more" in page.text and "8 more rows" in page.text
    assert len(page.tags("tr")) == 13
    assert "f32[2,3,4]" in Page(jnp.ones((2, 3, 4))._repr_html_()).text
    assert "f32[]" in Page(jnp.float32(3)._repr_html_()).text
    assert "f32[0]" in Page(jnp.ones(0)._repr_html_()).text
    seen = []

    @fxad.jit
    def f(x):
        seen.append(Page(x._repr_html_()).text)
        return x

    f(X)
    assert "Traced<f32[4,8]>" in seen[0]


def test_notebooks_show_traces_of_a_jitted_function() -> None:
    f = fxad.jit(loss)
    assert not Page(f._repr_html_()).tags("details")
    f(layers(1), X)
    f(layers(2), X)
    page = Page(f._repr_html_())
    assert "f32[8,8], f32[8,8], f32[4,8]" in page.text


def test_files_are_whole_or_not_there(tmp_path, monkeypatch) -> None:
    path = tmp_path / "x.txt"
    files.write_text(path, "first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask()

    def full(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write_text(path, "second")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["x.txt"]


def mask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
