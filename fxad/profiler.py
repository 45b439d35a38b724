"""A timeline of a program's calls, in the files that TensorBoard and Perfetto read.

with fxad.profiler.trace("traces"):                 # traces/plugins/profile/2026_11_27_.../
    for i, batch in enumerate(batches):
        with fxad.profiler.StepTraceAnnotation("train", step_num=i):
            params = step(params, batch)            # a span for each call of a compiled function

Names and files are JAX's. `fxad.profile(f, *args)` looks inside one compiled function: its kernels,
their rates, the lines they come from.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fxad.api.flat import name_of
from fxad.api.jit import Jit
from fxad.core.errors import BadArgument
from fxad.core.files import write_bytes
from fxad.core.lazy import lazy as _lazy
from fxad.trace.tracer import staging

__all__ = [
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "start_trace",
    "stop_trace",
    "trace",
]

F = TypeVar("F", bound=Callable[..., Any])


class _Recording:
    """Spans of one trace, of all threads.

    While it is on, calls of jitted functions go through `call`: they cost nothing more while none
    is on.
    """

    def __init__(self, directory: Path, perfetto: bool) -> None:
        self.directory, self.perfetto = directory, perfetto
        self.began = time.perf_counter_ns()
        self.spans: list[dict[str, Any]] = []
        self._call = Jit.__call__
        call = self._call

        @functools.wraps(call)
        def recorded(jitted: Jit, *args: Any, **kwargs: Any) -> Any:
            if staging():
                return call(jitted, *args, **kwargs)
            with TraceAnnotation(f"jit({name_of(jitted)})"):
                return call(jitted, *args, **kwargs)

        setattr(Jit, "__call__", recorded)  # noqa: B010 - a type checker knows methods as constants

    def add(self, name: str, start: int, end: int, args: dict[str, Any]) -> None:
        """Add a span; start and end: nanoseconds of `time.perf_counter_ns`."""
        thread = threading.current_thread()
        self.spans.append(
            {
                "name": name,
                "ph": "X",
                "ts": (start - self.began) / 1e3,
                "dur": (end - start) / 1e3,
                "pid": os.getpid(),
                "tid": thread.native_id,
                "thread": thread.name,
                "args": args,
            }
        )

    def stop(self) -> None:
        """Record no more."""
        setattr(Jit, "__call__", self._call)  # noqa: B010

    def write(self) -> None:
        """Write the files of the trace. Raises OSError."""
        threads = {span["tid"]: span.pop("thread") for span in self.spans}
        names = [_named("process_name", platform.node() or "host", 0)]
        names += [_named("thread_name", name, tid) for tid, name in threads.items()]
        content = {"displayTimeUnit": "ns", "traceEvents": [*names, *self.spans]}
        packed = gzip.compress(json.dumps(content).encode())
        home = self.directory / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        home.mkdir(parents=True, exist_ok=True)
        write_bytes(home / f"{platform.node() or 'host'}.trace.json.gz", packed)
        if self.perfetto:
            write_bytes(home / "perfetto_trace.json.gz", packed)


def _named(kind: str, name: str, tid: int | None) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": os.getpid(), "tid": tid, "args": {"name": name}}


_lock = threading.Lock()
_recording: _Recording | None = None


def start_trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> None:
    """Begin to record calls of compiled functions and annotations, until `stop_trace`.

    create_perfetto_trace: also write `perfetto_trace.json.gz`, of the same content.
    profiler_options is accepted for code ported from JAX. Raises BadArgument where a trace is being
    recorded, and for create_perfetto_link, which would open a browser.

    >>> import tempfile
    >>> fxad.profiler.start_trace(tempfile.mkdtemp())
    >>> y = fxad.jit(jnp.sin)(1.0)
    >>> fxad.profiler.stop_trace()
    """
    global _recording
    if create_perfetto_link:
        raise BadArgument(
            "start_trace: create_perfetto_link opens no browser here; give "
            "create_perfetto_trace=True and open the file at ui.perfetto.dev"
        )
    with _lock:
        if _recording is not None:
            raise BadArgument(
                f"start_trace: a trace to {_recording.directory} is being recorded; end it with "
                "stop_trace() first"
            )
        _recording = _Recording(Path(log_dir), create_perfetto_trace)


def stop_trace() -> None:
    """End the trace and write it to `log_dir/plugins/profile/DATE_TIME/HOST.trace.json.gz`.

    Raises BadArgument where none is being recorded, OSError where the disk fails.

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> fxad.profiler.start_trace(directory)
    >>> fxad.profiler.stop_trace()
    >>> len([*directory.rglob("*.trace.json.gz")])
    1
    """
    global _recording
    with _lock:
        if _recording is None:
            raise BadArgument("stop_trace: no trace is being recorded; begin with start_trace(dir)")
        done, _recording = _recording, None
        done.stop()
    done.write()


@contextmanager
def trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Iterator[None]:
    """Record what runs inside: `start_trace` before it and `stop_trace` after it, also where it
    raises.

    >>> import gzip, json, pathlib, tempfile
    >>> @fxad.jit
    ... def square(x):
    ...     return x * x
    >>> with tempfile.TemporaryDirectory() as where:
    ...     with fxad.profiler.trace(where):
    ...         with fxad.profiler.TraceAnnotation("mine", size=3):
    ...             _ = square(3.0)
    ...     (path,) = pathlib.Path(where).rglob("*.trace.json.gz")
    ...     events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    >>> [(e["name"], e["args"]) for e in events if e["ph"] == "X"]
    [('jit(square)', {}), ('mine', {'size': 3})]
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """A span of this name in the trace, if one is being recorded; further arguments are shown with
    it. `with TraceAnnotation("load"): ...`

    >>> with fxad.profiler.TraceAnnotation("load", file="a.bin"):
    ...     y = jnp.sin(1.0)
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self._name, self._args = name, kwargs
        self._began: list[tuple[_Recording | None, int]] = []

    def __enter__(self) -> TraceAnnotation:
        self._began.append((_recording, time.perf_counter_ns()))
        return self

    def __exit__(self, *error: object) -> None:
        recording, start = self._began.pop()
        if recording is not None and recording is _recording:
            recording.add(self._name, start, time.perf_counter_ns(), _plain(self._args))


class StepTraceAnnotation(TraceAnnotation):
    """A span of one step of a training loop: give its number as `step_num`.

    >>> with fxad.profiler.StepTraceAnnotation("train", step_num=3):
    ...     y = jnp.sin(1.0)
    """


def annotate_function(func: F, name: str | None = None, **decorator_kwargs: Any) -> F:
    """The function with a span around each of its calls, of its own name unless one is given.

    >>> @fxad.profiler.annotate_function
    ... def load(path):
    ...     return path.upper()
    >>> load("a")
    'A'
    """
    called = name_of(func) if name is None else name

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(called, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated  # type: ignore[return-value]


def _plain(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments as JSON has them: numbers, and text of whatever is none."""
    return {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in args.items()}


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
