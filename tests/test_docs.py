"""Every Python block of the README and the docs runs; printed output shown there is what comes out.

Blocks of one page share a namespace. A ```text block right after a ```python block must equal what
that block printed (source line numbers aside). Update it with:  python tests/test_docs.py
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fxad.ir.program import OPS
from fxad.ops import OWN

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = {"cookbook", "finetune", "memory", "training"}
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
PART = "<!-- generated: "
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(autouse=True, scope="module")
def _no_ops_stay():
    """Pages define ops, which tests of all ops would meet in this process."""
    before = {*OPS}
    yield
    for name in OPS.keys() - before - OWN:
        del OPS[name]


def _run(code: str, namespace: dict[str, object], page: Path) -> str:
    out = io.StringIO()
    shows = contextlib.nullcontext()
    if "Curve" in code:  # which asks for the display of a notebook
        shows = mock.patch("fxad_nn.notebook._display", return_value=mock.MagicMock())
    with contextlib.redirect_stdout(out), shows:
        exec(compile(code, page.name, "exec", dont_inherit=True), namespace)
    return out.getvalue()


def _plain(text: str) -> str:
    """Without source positions and trailing blanks."""
    return "\n".join(
        re.sub(r"\s*# \S+:\d+$", "", line).rstrip() for line in text.strip().split("\n")
    )


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in PAGES],
)
def test_page(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for code, shown in BLOCK.findall(page.read_text()):
        printed = _run(code, namespace, page)
        if shown:
            assert _plain(printed) == _plain(shown)


def _notebooks() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "notebooks.py"))


def test_notebooks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As written to files: each has the code of its page, which `test_page` runs, and the outputs
    that stand there. The cells of one are run."""
    _notebooks()["write"](tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in _notebooks()["PAGES"]:
        page = ROOT / "docs" / f"{name}.md"
        cells = json.loads(Path(f"{name}.ipynb").read_text())["cells"]
        codes = [cell for cell in cells if cell["cell_type"] == "code"]
        held = [(cell["source"], "".join(o["text"] for o in cell["outputs"])) for cell in codes]
        assert held == [(code.rstrip(), shown) for code, shown in BLOCK.findall(page.read_text())]
        texts = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
        assert "```python" not in "".join(texts)
        if name == "quick-start":
            assert any(shown for _, shown in held)
            namespace: dict[str, object] = {"__name__": "notebook"}
            for code, shown in held:
                assert _plain(_run(code, namespace, page)) == _plain(shown) or not shown, code


def test_the_loop_in_pytorch_prints_what_its_port_prints() -> None:
    """The page shows it as ```py, for PyTorch is no dependency: it runs where there is one."""
    pytest.importorskip("torch")
    page = ROOT / "docs" / "from-pytorch.md"
    (code,) = re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL)
    (shown,) = (shown for port, shown in BLOCK.findall(page.read_text()) if "batches(" in port)
    printed = _run(code, {"__name__": "docs"}, page)
    figures = [[float(x) for x in re.findall(r"\d+(?:\.\d+)?", text)] for text in (printed, shown)]
    assert len(figures[0]) == 9  # four steps and their losses, and the loss of all rows
    np.testing.assert_allclose(*figures, atol=1e-3)  # 400 steps in float32


def test_autodiff_in_200_lines_keeps_to_them() -> None:
    lesson = (ROOT / "docs" / "autodiff-in-200-lines.md").read_text().split("\n## 5.")[0]
    blocks = re.findall(r"```python\n(.*?)```", lesson, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert 50 < len(lines) < 200


SLOW = ("finetune_lora", "finetune_qlora", "gpt2_shakespeare", "published_model")


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] if p.stem in SLOW else []) for p in EXAMPLES],
    ids=lambda p: p.stem,
)
def test_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(path))["main"]
    fewer = {"gpt2_shakespeare": {"steps": 400}}  # of 1,000: enough to learn that much
    result = main(**fewer.get(path.stem, {}))
    assert isinstance(result, float)
    good = {
        "compensated_sum": lambda ratio: ratio > 50,
        "sparse_newton": lambda residual: residual < 1e-8,
        "scalar_gradient": lambda x: abs(x - 0.6533) < 1e-3,
        "logistic_regression": lambda accuracy: accuracy > 0.95,
        "mlp": lambda loss: loss < 0.5,
        "jax_unchanged": lambda loss: loss < 0.2,
        "gpt2_from_jax": lambda loss: loss < 3.0,
        "gpt2_shakespeare": lambda loss: loss < 2.0,
        "finetune_lora": lambda loss: loss < 0.3,
        "finetune_qlora": lambda loss: loss < 0.5,
        "published_model": lambda loss: loss < 5.0,  # of fresh weights: log(260) = 5.6
    }
    assert good[path.stem](result), capsys.readouterr().out


def test_generated_parts_are_what_code_and_results_give() -> None:
    """Mend with:  python docs/generate.py"""
    for page, text in runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]().items():
        assert page.exists(), page
        assert page.read_text() == text, page


def test_every_case_of_a_kind_stands_in_one_section_of_its_page() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for page, kind in made["PAGES"].items():
        text = (ROOT / "docs" / f"performance-{page}.md").read_text()
        for section in made["SECTIONS"]:
            assert f"{PART}cases {page} {section} -->" in text, (page, section)
        for row in made["results"].newest(kind):
            assert text.count(f"| {row['case']} |") == 1, (page, row["case"])


def test_tables_of_figures_say_where_they_are_from() -> None:
    """Made from results, or measured by hand: with which commands, on what, and when."""
    by_hand = re.compile(r"^\*Measured by hand with the commands here, .+ November 20\d\d", re.M)
    for page in (ROOT / "docs").glob("performance*.md"):
        for section in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE):
            if "\n|---" in section and PART not in section and "*From the tables" not in section:
                assert by_hand.search(section), (page, section[:80])
                assert "python -m benchmarks" in section, (page, section[:80])


def test_tables_have_six_columns_at_most() -> None:
    for page in PAGES:
        for rule in re.findall(r"^\|-[-|]*$", page.read_text(), re.MULTILINE):
            assert rule.count("|") <= 7, page


def test_links_exist() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "results").glob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
            linked = (page.parent / target) if target else page
            assert linked.exists(), (page, target)
            assert not anchor or anchor in _anchors(linked), (page, target, anchor)


def _anchors(page: Path) -> set[str]:
    """The names that its headings have in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def test_the_site_lists_every_page() -> None:
    """Sphinx warns of a page that no table of contents names; here without Sphinx."""
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        if page.stem != "index" and not page.stem.startswith("performance-"):
            assert re.findall(rf"^{page.stem}$", index, re.MULTILINE) == [page.stem], page


def test_the_api_reference_has_every_public_function(tmp_path: Path) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "api_reference.py"))
    made["write"](tmp_path)
    for name in made["MODULES"]:
        module = importlib.import_module(name)
        text = (tmp_path / f"{name}.md").read_text()
        for function in made["public_names"](module):
            if callable(getattr(module, function)):
                assert f"\n## {function}\n" in text, (name, function)
                (target,) = re.findall(
                    rf"^\| \[{re.escape(function)}\]\(#(\S+)\) \| \S", text, re.M
                )
                assert text.count(f"\n({target})=\n## {function}\n") == 1
    grad = (tmp_path / "fxad.md").read_text().split("\n## grad\n")[1].split("\n## ")[0]
    assert "    fun: Callable[..., Any],\n    argnums: int | Sequence[int] = 0,\n" in grad
    assert not re.search(r" at 0x[0-9a-f]+", (tmp_path / "fxad.numpy.md").read_text())


def _sources() -> list[Path]:
    folders = ("fxad", "fxad_nn", "tests", "benchmarks", "examples", "docs")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_files_that_are_named_exist() -> None:
    """In pages (but the log, which is of all times), docstrings and comments. Ends will do."""
    pages = [page for page in PAGES if page.name != "log.md"]
    made = (ROOT / "docs" / "results").glob("*.md")
    there = [f"/{path.relative_to(ROOT)}" for path in [*PAGES, *made, *_sources()]]
    for page in pages:  # what a reader of the page adds
        there += [f"/{name}" for name in re.findall(r"^\+\+\+ (\S+)$", page.read_text(), re.M)]
    for path in [*pages, *_sources()]:
        for name in re.findall(r"(?<![\w./-])\w+(?:/[\w-]+)+\.(?:py|md)\b", path.read_text()):
            assert any(known.endswith(f"/{name}") for known in there), (path, name)


def test_commands_have_the_options_that_are_shown() -> None:
    for path in [*PAGES, *(ROOT / "benchmarks").glob("*.py")]:
        text = path.read_text()
        for module, rest in re.findall(r"python -m (benchmarks[.\w]*)([^#`|\n]*)", text):
            file = ROOT / module.rstrip(".").replace(".", "/")
            code = (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")).read_text()
            if rest.split()[:1] in (["guard"], ["report"]):
                code = (ROOT / "benchmarks/guard/command.py").read_text()
            for option in re.findall(r"--[\w-]+", rest):
                assert f'"{option}"' in code, (path, module, option)


def update() -> None:
    """Rewrite the shown output of every page with what the code prints now."""
    for page in PAGES:
        namespace: dict[str, object] = {"__name__": "docs"}

        def fresh(match: re.Match[str], page: Path = page, namespace: dict = namespace) -> str:
            printed = _run(match.group(1), namespace, page)
            if match.group(2) is None:
                return match.group(0)
            return f"```python\n{match.group(1)}```\n\n```text\n{printed.rstrip()}\n```"

        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = BLOCK.sub(fresh, page.read_text())
        page.write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    update()
