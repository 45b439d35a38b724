"""Chat templates rendered in a process of their own, within limits.

    process = TemplateProcess("{{ bos_token }}{{ messages[0].content }}", "chat_template.jinja")
    process.render({"bos_token": "<s>", "messages": [{"content": "hello"}]})   # ("<s>hello", [])

A template is a program that came with somebody's weights. Jinja's sandbox keeps it from Python's
internals, but not from loops that never end or texts that fill the memory: no count of loops,
calls or characters within one process stops all of them. So another process renders it, and the
operating system bounds that one:

- processor time of compiling and of each rendering: `Limits.seconds`;
- memory beyond what the empty process takes: `Limits.memory`;
- the text: `Limits.characters`;
- no file is opened or written, no process started, the environment not handed on.

Time that the process waits is not counted: it has nothing to wait for but the next request.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fxad_nn.errors import DataError, TemplateError

WORKER = files(__package__).joinpath("template_worker.py")  # in a zip file too
KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "TZ")  # of the environment


@dataclass(frozen=True)
class Limits:
    """What rendering one conversation may take at most."""

    seconds: float = 5.0
    memory: int = 512 << 20
    characters: int = 16 << 20


LIMITS = Limits()

HINTS = {
    "syntax": "is no Jinja template",
    "refused": "refuses these messages",
    "forbidden": "does what the sandbox forbids",
    "undefined": "asks for something these messages do not have",
    "length": "writes too much",
    "misplaced": "has a generation block that cannot be found in the text",
    "memory": "needs too much memory",
    "recursion": "recurses too deep",
    "failed": "fails",
}


class TemplateProcess:
    """One template and the process that renders it; `where` names the template in errors.

    Starting takes about a tenth of a second, a rendering less than a millisecond. Threads take
    turns. A process that was stopped is started again by the next rendering.
    """

    def __init__(self, source: str, where: str, limits: Limits = LIMITS) -> None:
        if importlib.util.find_spec("jinja2") is None:
            raise DataError("chat templates need jinja2: pip install 'fxad[nn]'")
        self.source, self.where, self.limits = source, where, limits
        self._lock = threading.Lock()
        self._running: _Running | None = None
        with self._lock:
            self._start()

    def render(self, variables: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and where in it {% generation %} blocks stand; TemplateError if there is none.

        `variables` are what JSON can hold.
        """
        try:
            request = json.dumps(variables)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"{self.where}: messages and variables must be JSON: {error}") from None
        with self._lock:
            if self._running is None or self._running.owner != os.getpid():
                self._start()
            reply = self._ask(request)
        return reply["text"], [(start, stop) for start, stop in reply["generated"]]

    def _start(self) -> None:
        self._running = _Running()
        weakref.finalize(self, self._running.stop)
        limits = {"seconds": self.limits.seconds, "memory": self.limits.memory}
        limits["characters"] = self.limits.characters
        self._ask(json.dumps({"source": self.source, **limits}))

    def _ask(self, request: str) -> dict[str, Any]:
        """The reply; the process is ended unless it is ready for the next request."""
        running, reply = self._running, None
        assert running is not None
        try:
            reply = running.exchange(request)
        finally:
            if reply is None:
                running.stop()
                self._running = None
        if reply is None or "error" in reply:
            raise TemplateError(f"{self.where} {self._failure(running, reply)}")
        return reply

    def _failure(self, running: _Running, reply: dict[str, Any] | None) -> str:
        if reply is not None:
            line = f" (line {reply['line']})" if reply["line"] else ""
            said = f": {reply['message']}" if reply["message"] else ""
            return f"{HINTS[reply['error']]}{line}{said}"
        if running.code == -signal.SIGPROF:
            return f"takes more than {self.limits.seconds:g} s of processor time"
        return f"ended the process that renders it (exit status {running.code}): too much memory?"


class _Running:
    """A process that has been started; its exit status is in `code` once it was stopped."""

    def __init__(self) -> None:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        paths = os.pathsep.join(path for path in sys.path if path)
        self.owner = os.getpid()  # a fork has its pipes, but must not use them
        self.code: int | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-B", "-c", WORKER.read_text("utf-8")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": paths},
        )

    def exchange(self, request: str) -> dict[str, Any] | None:
        """The reply to a request, None if there is no whole one."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(request.encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    def stop(self) -> None:
        """End the process, whatever it does, and wait for it."""
        if self.owner != os.getpid() or self.code is not None:
            return
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.2)  # for one that ended by itself, its own exit status
        self.process.kill()
        self.code = self.process.wait()
