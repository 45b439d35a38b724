"""The process that renders one chat template. It imports nothing but jinja2, and is given no more
than the template and its variables: see `template_process` for who starts it and why.

    → {"source": "...", "seconds": 5, "memory": 536870912, "characters": 4194304}
    ← {}
    → {"messages": [...], "tools": null, "add_generation_prompt": false, "bos_token": "<s>"}
    ← {"text": "<s>user: hello", "generated": [[9, 14]]}

One JSON value on each line. An error is {"error": kind, "message": ..., "line": ...}; more than
`seconds` of processor time ends the process by SIGPROF.
"""

import codecs
import json
import resource
import signal
import sys
from datetime import datetime
from typing import Any

import jinja2
import jinja2.debug
import jinja2.ext
import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox


class Refused(jinja2.TemplateError):
    """What a template says with raise_exception."""


class TooLong(Exception):
    """The text has grown beyond its limit."""


class Misplaced(Exception):
    """A generation block stands where its place in the text is not known."""


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: what the assistant wrote. `found` takes where each
    such text begins in the whole, and the text."""

    tags = {"generation"}  # noqa: RUF012  (what jinja2 calls it)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.position = 0
        self.found: list[tuple[int, str]] = []

    def parse(self, parser: Any) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("_generated"), [], [], body)
        return call.set_lineno(line)

    def _generated(self, caller: Any) -> str:
        text = caller()
        self.found.append((self.position, text))
        return text


class Dictionary:
    """The global `dict` of templates: what makes one, without the attributes of a class."""

    def __call__(self, *pairs: Any, **values: Any) -> dict[Any, Any]:
        return dict(*pairs, **values)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        return dict.fromkeys(*arguments)


def refuse(message: Any) -> None:
    """The global raise_exception."""
    raise Refused(str(message))


def strftime_now(form: str) -> str:
    """The global strftime_now: the local time."""
    return datetime.now().strftime(form)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """The filter tojson, which escapes no HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment() -> jinja2.Environment:
    """Jinja as transformers sets it up for chat templates."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals["dict"] = Dictionary()
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = strftime_now
    del made.globals["lipsum"]  # random text
    return made


def render(template: jinja2.Template, variables: dict[str, Any], most: int) -> dict[str, Any]:
    """The text and what of it was generated, as pairs of positions."""
    mark: Any = template.environment.extensions[Generation.identifier]
    mark.position, mark.found = 0, []
    chunks = []
    for chunk in template.generate(variables):
        chunks.append(chunk)
        mark.position += len(chunk)
        if mark.position > most:
            raise TooLong(f"the text is longer than {most} characters")
    text = "".join(chunks)
    generated = [[at, at + len(part)] for at, part in mark.found]
    places = zip(generated, mark.found, strict=True)
    if any(text[start:stop] != part for (start, stop), (_, part) in places):
        raise Misplaced("it must not stand in a macro, a filter or a set block")
    return {"text": text, "generated": generated}


KINDS = {
    jinja2.TemplateSyntaxError: "syntax",
    Refused: "refused",
    jinja2.sandbox.SecurityError: "forbidden",
    jinja2.UndefinedError: "undefined",
    TooLong: "length",
    Misplaced: "misplaced",
    MemoryError: "memory",
    RecursionError: "recursion",
}


def failure(error: BaseException) -> dict[str, Any]:
    """What is replied for an error: of which kind it is, and what it says in short."""
    kind = next((KINDS[known] for known in type(error).__mro__ if known in KINDS), "failed")
    said = str(error)[:1000] if kind != "failed" else f"{type(error).__name__}: {error}"[:1000]
    line = getattr(error, "lineno", None)
    return {"error": kind, "message": said, "line": line if isinstance(line, int) else None}


def confine(memory: int) -> None:
    """From here on: so many more bytes of memory, no file opened or written, no process started."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = {resource.RLIMIT_AS: used + memory, resource.RLIMIT_FSIZE: 0}
    limits |= {resource.RLIMIT_NPROC: 0, resource.RLIMIT_NOFILE: 0, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the one who asks
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    strftime_now("%c")  # which reads the time zone from a file
    codecs.lookup("unicode-escape")  # of Jinja's lexer, a module that is imported at first use
    made, start = environment(), json.loads(requests.readline())
    confine(start["memory"])
    template = None
    line = b"{}"
    while line:
        signal.setitimer(signal.ITIMER_PROF, start["seconds"])
        try:
            if template is None:
                template, reply = made.from_string(start["source"]), {}
            else:
                reply = render(template, json.loads(line), start["characters"])
        except Exception as error:
            reply = failure(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()
        if template is None:
            return
        line = requests.readline()


if __name__ == "__main__":
    main()
