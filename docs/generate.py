"""Parts of the pages that are made from the code and from measured results.

    python docs/generate.py     # after a package, a level or a result is added

A page says where a part goes, in two comments; what is between them is replaced:

    <!-- generated: house -->
    <!-- end -->

    <!-- generated: cases zen4 attention -->      arguments follow the name
    <!-- end -->

Pages in docs/results and docs/jax-names.md are made whole. `tests/test_docs.py` fails where a page
differs from what this would write.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.guard import results  # noqa: E402 - found beside this folder
from docs import jax_names, speed_picture  # noqa: E402
from tests.test_layers import LEVELS, ROOMS  # noqa: E402

WIDTH = 122  # of a picture
PART = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# ---------------------------------------------------------------- the house


def about(package: str) -> str:
    """The first sentence of a package's or module's docstring, without its own name."""
    path = ROOT / package.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    sentence = re.split(r"(?<=\w)\.\s|\n\n", " ".join(text.split("\n\n")[0].split()) + " ")[0]
    return re.sub(r"^`?fxad[\w.]*`?: ", "", sentence).strip().removesuffix(".")


def _packages(prefix: str = "fxad.") -> dict[str, float]:
    """Packages right below a prefix, the highest level first."""
    found = {
        name: level
        for name, level in LEVELS.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def house() -> str:
    """All packages by level, as a picture."""
    namespaces = [n for n, level in _packages().items() if level == LEVELS["fxad.numpy"]]
    rest = [n for n in _packages() if n not in namespaces and n not in ROOMS]
    above = [n for n in rest if LEVELS[n] >= LEVELS["fxad.compiler"]]
    below = [n for n in rest if n not in above]
    names = ", ".join(n.removeprefix("fxad.") for n in sorted(namespaces))
    rows = [_row(name) for name in ("fxad_nn", "fxad")]
    rows += textwrap.wrap(
        f"{LEVELS['fxad.numpy']:>4}   {names}: the user's namespaces",
        width=WIDTH,
        subsequent_indent=" " * 7,
    )
    rows += map(_row, above)
    rows.append("     ┌─ only `compiler` imports these; none imports another ".ljust(WIDTH, "─"))
    rows += [_row(name, "│") for name in ROOMS]
    rows.append("     └".ljust(WIDTH, "─"))
    rows += map(_row, below)
    return "\n".join(["```text", *rows, "```", ""])


def _row(name: str, wall: str = " ") -> str:
    return f"{LEVELS[name]:>4} {wall} {name.removeprefix('fxad.'):17} {about(name)}"


def llvm() -> str:
    """The packages of the native backend by level, the lowest first."""
    names = [n for n in reversed(_packages("fxad.backend.llvm.")) if _is_package(n)]
    rows = [f"| `{n.rpartition('.')[2]}` | {about(n)} |" for n in names]
    return "\n".join(["| package | what is in it |", "|---|---|", *rows]) + "\n"


def _is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir()


# ---------------------------------------------------------------- results

KINDS = {
    "amd-avx512-bf16-l1-32k-l2-1m": "AMD EPYC (Zen 4)",
    "amd-avx512-bf16-vp2intersect-l1-48k-l2-1m": "AMD EPYC (Zen 5)",
    "amd-avx2-l1-32k-l2-1m": "AMD EPYC (Zen 4, AVX2)",
    "amd-avx2-l1-32k-l2-512k": "AMD EPYC (Zen 3)",
    "intel-avx512-bf16-amx-l1-48k-l2-2m": "Intel Xeon with AMX",
}
GROUPS = {  # what the summary calls them: the guard's cases
    "training steps, float32": "step * f32",
    "training steps, bf16": "step * bf16",
    "generation, float32": "token *float32",
    "generation, bf16": "token *bfloat16",
    "products, float32": "product [!14]*float32",
    "products of 1 and 4 rows, float32": "product [14] *float32",
    "products, bf16": "product [!1]*bfloat16",
    "product of 1 row, bf16": "product 1 *bfloat16",
    "products, float64": "product *float64",
    "attention": "attention *",
    "functions, float32": "*, float32",
    "functions, float64": "*, float64",
    "jitted call of 1 array": "call, 1 array",
    "`x + y`, eager": "eager x + y",
    "`import fxad` with NumPy, CPU time": "import, CPU",
    "compile a GPT-2 step of two layers": "compile a GPT-2 step, cold",
    "the same from the disk": "compile a GPT-2 step, from the disk",
    "its peak memory": "peak memory of a GPT-2 step",
}
FUNCTIONS = ("exp", "tanh", "erf", "log", "sin", "power")
PAGES = {  # the short names of kinds that pages use
    "xeon": "intel-avx512-bf16-amx-l1-48k-l2-2m",
    "zen4": "amd-avx512-bf16-l1-32k-l2-1m",
}
SECTIONS = {  # of the pages of kinds: the guard's cases
    "training": ("step *",),
    "generation": ("token *",),
    "products": ("product *",),
    "attention": ("attention *",),
    "rows": ("layer norm*", "RMS norm*", "softmax*", "GELU*", "AdamW*", "cross-entropy*"),
    "functions": tuple(f"{name}, *" for name in FUNCTIONS),
    "loops": ("loop *",),
    "calls": ("call, *", "eager *"),
    "compilation": ("import, *", "compile *", "peak memory *"),
    "others": ("*sort, *", "top_k, *", "Cholesky, *", "solve, *", "sum *", "transp*", "random *"),
}


def summary() -> str:
    """A row for each group of cases, a column for each kind of processor with results."""
    kinds = results.kinds()
    heads = [f"[{KINDS.get(kind, kind)}](results/{kind}.md)" for kind in kinds]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(kinds) + 1) + "|"]
    figures = [results.newest(kind) for kind in kinds]
    for group, pattern in GROUPS.items():
        cells = [_cell([row for row in rows if _belongs(row, pattern)]) for rows in figures]
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _belongs(row: Mapping[str, Any], pattern: str) -> bool:
    case = row["case"]
    if pattern.startswith("*, "):  # of elementary functions
        return case.endswith(pattern[1:]) and case.split(",")[0] in FUNCTIONS
    return fnmatch(case, pattern)


def _cell(rows: Sequence[Mapping[str, Any]]) -> str:
    """Shares of ceilings and speedups over peers, the least and the greatest; or a time."""
    said = []
    for ceiling in dict.fromkeys(row["ceiling"] for row in rows if "share" in row):
        shares = [r["share"] for r in rows if r.get("ceiling") == ceiling]
        said.append(f"{_span(shares)} of {'memory' if ceiling == 'reading' else 'the peak'}")
    for peer, name in (("torch", "PyTorch"), ("numpy", "NumPy")):
        speedups = [row["peers"][peer] for row in rows if peer in row.get("peers", {})]
        if speedups:
            said.append(f"{_span(speedups)} × {name}")
    return "; ".join(said) or ", ".join(results.amount(r["tree"], r["unit"]) for r in rows)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def cases(page: str, section: str) -> str:
    """A table of a section's cases in the newest run of a kind; columns without figures are left
    out. Raises KeyError for a page or section that there is not."""
    wanted = SECTIONS[section]
    rows = [
        row for row in results.newest(PAGES[page]) if any(fnmatch(row["case"], w) for w in wanted)
    ]
    columns = {
        "case": [row["case"] for row in rows],
        "time": [results.amount(row["tree"], row["unit"]) for row in rows],
        "of ceiling": [_share(row) for row in rows],
        "speedup over PyTorch": [_speedup(row, "torch") for row in rows],
        "over NumPy": [_speedup(row, "numpy") for row in rows],
        "when": [row["when"] for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    lines = ["| " + " | ".join(shown) + " |", "|---" * len(shown) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in zip(*shown.values(), strict=True)]
    return "\n".join(lines) + "\n"


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['share']:.2f} {row['ceiling']}" if "share" in row else ""


def _speedup(row: Mapping[str, Any], peer: str) -> str:
    return f"{row['peers'][peer]:.2f}" if peer in row.get("peers", {}) else ""


def detail(kind: str) -> str:
    """The page of a kind: every case of its newest run."""
    return f"""# What the guard measured: {KINDS.get(kind, kind)}

Every case of the newest run on this kind of processor, made from `benchmarks/results/{kind}`
by `python docs/generate.py`. `speedup` is the peer's time over ours; `of ceiling` the share of what
a loop on registers computes, or a loop over memory reads, in the same rounds; `to base` the change
since the commit that the command names, with the verdict of [the guard](../guard.md).

{results.report(kind)}
"""


# ---------------------------------------------------------------- programs


def program(name: str, fence: str = "python") -> str:
    """A program of examples/cookbook, without the lines that call `main()`: the page does.
    fence: "py" for one that needs a package which the tests do not."""
    text = (ROOT / "examples" / "cookbook" / f"{name}.py").read_text()
    return f"```{fence}\n{text.split('if __name__ ==')[0].strip()}\n```\n"


# ---------------------------------------------------------------- pages


def pages() -> dict[Path, str]:
    """Every page with generated parts, as it should read."""
    parts = {"house": house, "llvm": llvm, "summary": summary, "cases": cases, "program": program}
    made = {}
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        text = path.read_text()
        if PART.search(text):
            made[path] = PART.sub(lambda m: f"{m[1]}\n{_part(parts, m[2])}\n{m[3]}", text)
    folder = ROOT / "docs" / "results"
    made[jax_names.PAGE] = jax_names.page()
    newest = {KINDS.get(kind, kind): results.newest(kind) for kind in results.kinds()}
    made[speed_picture.PAGE] = speed_picture.svg(newest)
    return made | {folder / f"{kind}.md": detail(kind) for kind in results.kinds()}


def _part(parts: Mapping[str, Callable[..., str]], call: str) -> str:
    """The text of a part, from what its comment says: its name, and arguments."""
    name, *arguments = call.split()
    return parts[name](*arguments)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
