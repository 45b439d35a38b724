"""Programs as HTML: for a notebook, or a file of its own. Nothing is loaded from elsewhere.

    to_page(program)         a whole file
    to_fragment(program)     what a notebook shows

The text is the terse one (`fxad.ir.terse`), coloured by kind. Loops, programs inside equations, and
stretches of many equations fold (`<details>`); a name leads to the equation that makes it, and an
equation to those of its gradient and back; hovering over an equation shows what it costs and the
user's code. Whatever users name is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence

from fxad.ir.inspection.columns import flops, moved
from fxad.ir.inspection.drawing import to_svg
from fxad.ir.program import Eqn, Program
from fxad.ir.terse import Line, lines

_FOLDED = 100  # equations of a stretch that folds
_DRAWN = 200  # equations of a program whose graph is in its page
_WIDE = 100_000  # the browser breaks lines

STYLE = """
.fxad{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:#1f2328;
 background:#fff;text-align:left}
.fxad div.q,.fxad summary{white-space:pre-wrap;padding-left:4ch;text-indent:-4ch;
 overflow-wrap:anywhere;border-radius:3px}
.fxad div.q:hover{background:#f2f4f8}
.fxad div.q:target,.fxad div.q:has(:target){background:#fff3bf}
.fxad details>div.b{margin-left:2ch;content-visibility:auto}
.fxad details>summary{cursor:pointer;list-style-position:outside;margin-left:1.2em}
.fxad a{color:inherit;text-decoration:none}.fxad a:hover{text-decoration:underline}
.fxad .t{color:#0b7285}.fxad .o{color:#862e9c;font-weight:600}.fxad .k{color:#1864ab;
 font-weight:600}.fxad .n{color:#a61e4d}.fxad .s{color:#2b8a3e}.fxad .c{color:#868e96}
.fxad .g{color:#e8590c;padding-left:1ch}.fxad .w{background:#fff4e6}
.fxad table{border-collapse:collapse}.fxad td,.fxad th{padding:1px 10px 1px 0;text-align:right;
 vertical-align:top}.fxad td.l,.fxad th.l{text-align:left}
.fxad .bar{background:#74c0fc;height:.7em;display:inline-block}
@media(prefers-color-scheme:dark){.fxad{color:#dee2e6;background:#1a1b1e}
 .fxad div.q:hover{background:#25262b}.fxad .t{color:#66d9e8}.fxad .o{color:#e599f7}
 .fxad .k{color:#74c0fc}.fxad .n{color:#faa2c1}.fxad .s{color:#8ce99a}.fxad .w{background:#2b2118}
 .fxad div.q:target,.fxad div.q:has(:target){background:#5c4813}}
"""

_TOKENS = re.compile(
    r"""(?P<s>"(?:[^"\\]|\\.)*")
  | (?P<c>\#[^\n]*)
  | (?P<t>\b(?:bool|[iu]\d+|f\d+(?:e\dm\d\w*)?|bf16|c\d+)\[[\d,]*\])
  | (?P<k>\b(?:program|return|consts|for|in|with)\b)
  | (?P<o>\b[^\W\d]\w*(?=\())
  | (?P<v>\b[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:"(?:[^"\\]|\\.)*"|[^\]"\[])*\])*)
  | (?P<n>(?<![\w.])\d[\w.*+-]*)""",
    re.VERBOSE,
)
_COPY = re.compile(r"\[(?:i(?:[+-]\d+)?|\d+)\]")


def document(title: str, body: str) -> str:
    """A whole HTML file of a fragment."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"</head><body>\n{body}\n</body></html>\n"
    )


def fragment(body: str) -> str:
    """A piece of HTML with the style that it needs."""
    return f'<style>{STYLE}</style><div class="fxad">\n{body}\n</div>'


def to_page(program: Program, code: Callable[[str], str] = str) -> str:
    """A file with the program and, if it is not large, its graph. code: the user's line of a
    location."""
    body = to_fragment(program, code)
    if len(program.eqns) <= _DRAWN:
        body += f'<details class="fxad"><summary>graph</summary>\n{to_svg(program)}\n</details>'
    return document(program.name, body)


def to_fragment(program: Program, code: Callable[[str], str] = str) -> str:
    """The program's text, coloured, folding and linked, with its style."""
    return fragment(_Page(program, code).body())


class _Page:
    _count = 0

    def __init__(self, program: Program, code: Callable[[str], str]) -> None:
        type(self)._count += 1  # a notebook shows many: anchors must differ
        self.prefix = f"p{self._count}"
        self.code = code
        self.lines = list(lines(program, _WIDE))
        self.defined: dict[str, int] = {}  # name -> number of its line
        self.sides: dict[tuple[str, bool], int] = {}  # (place, in the backward pass) -> line
        for number, line in enumerate(self.lines):
            if line.kind in ("equation", "heading"):
                for name in _defines(line):
                    self.defined.setdefault(_COPY.sub("[]", name), number)
            for eqn in line.eqns:
                self.sides.setdefault((eqn.where, eqn.tag is not None), number)

    def body(self) -> str:
        """The program's lines; the heading's is the summary of all the others."""
        parts = [self._open(0)]
        run: list[str] = []  # equations of one level that follow each other
        depth = 1
        for number, line in enumerate(self.lines[1:], 1):
            if line.kind in ("for", "end", "return"):
                parts += self._folded(run)
                run = []
            if line.kind == "for":
                parts.append(self._open(number))
                depth += 1
            elif line.kind == "end":
                parts.append(f'</div></details><div class="q">{"}"}</div>')
                depth -= 1
            else:
                run.append(self._line(number))
        assert depth == 0
        return "\n".join(parts)

    def _open(self, number: int) -> str:
        line = self.lines[number]
        return (
            f'<details open><summary id="{self.prefix}-{number}">{self._marked(line.text)}'
            '</summary><div class="b">'
        )

    def _folded(self, run: list[str]) -> Iterator[str]:
        """Lines that follow each other, in parts that fold if there are many."""
        if len(run) <= _FOLDED:
            yield from run
            return
        for start in range(0, len(run), _FOLDED):
            part = run[start : start + _FOLDED]
            opened = " open" if start == 0 else ""
            yield f'<details{opened}><summary class="c">lines {start + 1} to {start + len(part)}'
            yield '</summary><div class="b">'
            yield from part
            yield "</div></details>"

    def _line(self, number: int) -> str:
        line = self.lines[number]
        first, *inner = line.text.split("\n")
        text = self._marked(first)
        if inner:  # a program inside
            rest = "\n".join([self._marked(part, linked=False) for part in inner])
            text = f'<details><summary>{text}</summary><div class="q">{rest}</div></details>'
        text += self._gradient(line) + self._marked(line.comment)
        shade = " w" if line.eqns and line.eqns[-1].tag == "recomputed" else ""
        title = html.escape(self._title(line.eqns))
        return f'<div class="q{shade}" id="{self.prefix}-{number}" title="{title}">{text}</div>'

    def _title(self, eqns: Sequence[Eqn]) -> str:
        """What a line costs and where it comes from."""
        if not eqns:
            return ""
        where = eqns[-1].where
        code = self.code(where) if where else ""
        said = [
            f"{sum(map(flops, eqns)):,} flops, {sum(map(moved, eqns)):,} bytes if each runs alone",
            eqns[-1].tag or "forward",
            where,
            code if code != where else "",
        ]
        return "\n".join([text for text in said if text])

    def _gradient(self, line: Line) -> str:
        """A link from a line to the first of its gradient, or back."""
        for eqn in reversed(line.eqns):
            backward = eqn.tag is not None
            other = self.sides.get((eqn.where, not backward)) if eqn.where else None
            if other is not None:
                sign, said = ("↑", "forward") if backward else ("∇", "gradient")
                return f'<a class="g" href="#{self.prefix}-{other}" title="{said}">{sign}</a>'
        return ""

    def _marked(self, text: str, linked: bool = True) -> str:
        """The text with its tokens in colour, names with links."""
        parts, at = [], 0
        for match in _TOKENS.finditer(text):
            parts.append(html.escape(text[at : match.start()]))
            at = match.end()
            kind, word = match.lastgroup or "", html.escape(match[0])
            if kind != "v":
                parts.append(f'<span class="{kind}">{word}</span>')
                continue
            number = self.defined.get(_COPY.sub("[]", match[0])) if linked else None
            link = f'<a href="#{self.prefix}-{number}">{word}</a>'
            parts.append(word if number is None else link)
        return "".join([*parts, html.escape(text[at:])])


def _defines(line: Line) -> Iterator[str]:
    """The names that a line gives to values."""
    text = line.text if line.kind == "heading" else line.text.partition(" = ")[0]
    for match in _TOKENS.finditer(text):
        if match.lastgroup == "v" and text[match.end() : match.end() + 2] == ": ":
            yield match[0]
