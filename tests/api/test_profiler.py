"""Timelines: what is recorded, in which files, and that nothing is when none is asked for."""

import gzip
import json
import threading
import time

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import profiler
from fxad.api.jit import Jit
from fxad.errors import BadArgument


def spans(directory, pattern="*.trace.json.gz"):
    (path,) = directory.rglob(pattern)
    assert path.parent.parent == directory / "plugins" / "profile"
    found = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in found if event["ph"] == "X"]


@fxad.jit
def inner(x):
    return jnp.sin(x)


@fxad.jit
def outer(x):
    return inner(x) * 2


def test_calls_and_annotations_are_spans_within_each_other(tmp_path):
    outer(1.0)
    with profiler.trace(tmp_path):
        for i in range(2):
            with profiler.StepTraceAnnotation("train", step_num=i):
                time.sleep(0.002)
                outer(np.float32(i))
    found = spans(tmp_path)
    assert [(e["name"], e["args"]) for e in found] == [
        ("jit(outer)", {}),
        ("train", {"step_num": 0}),
        ("jit(outer)", {}),
        ("train", {"step_num": 1}),
    ]
    call, step, _, second = found
    assert step["dur"] >= 2000  # microseconds
    assert step["ts"] <= call["ts"]
    assert call["ts"] + call["dur"] <= step["ts"] + step["dur"] <= second["ts"]


def test_tracing_and_derivatives_record_no_calls_of_their_own(tmp_path):
    with profiler.trace(tmp_path):
        fxad.jit(lambda x: outer(x))(jnp.ones(3))
        fxad.jit(fxad.grad(lambda x: outer(x)))(1.0)
    assert len(spans(tmp_path)) == 2


def test_results_are_the_same_and_nothing_stays(tmp_path):
    before, x = Jit.__call__, np.linspace(0, 1, 7, dtype=np.float32)
    wanted = outer(x)
    with profiler.trace(str(tmp_path)):
        np.testing.assert_array_equal(outer(x), wanted)
    assert Jit.__call__ is before
    failed = profiler.TraceAnnotation("failed")
    with pytest.raises(ZeroDivisionError), profiler.trace(tmp_path / "b"), failed:
        raise ZeroDivisionError
    assert Jit.__call__ is before
    assert [e["name"] for e in spans(tmp_path / "b")] == ["failed"]


def test_threads_have_rows_of_their_own(tmp_path):
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        worker = threading.Thread(target=lambda: outer(1.0), name="worker")
        worker.start()
        worker.join()
        outer(1.0)
    first, second = spans(tmp_path)
    assert first["tid"] != second["tid"]
    assert spans(tmp_path, "perfetto_trace.json.gz") == [first, second]
    (path,) = tmp_path.rglob("perfetto*")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"worker", "MainThread"}


def test_functions_may_be_annotated(tmp_path):
    @profiler.annotate_function
    def load(n):
        return n + 1

    named = profiler.annotate_function(load, name="other", size=np.float32(2), kind={"a"})
    assert named(1) == 2
    with profiler.trace(tmp_path):
        assert (load(1), named(2)) == (2, 3)
    assert [(e["name"], e["args"]) for e in spans(tmp_path)] == [
        ("load", {}),
        ("load", {}),
        ("other", {"size": "2.0", "kind": "{'a'}"}),
    ]
    reentered = profiler.TraceAnnotation("twice")
    with reentered, reentered:
        pass


def test_one_trace_at_a_time(tmp_path):
    with pytest.raises(BadArgument, match="no trace is being recorded"):
        profiler.stop_trace()
    with pytest.raises(BadArgument, match=r"ui\.perfetto\.dev"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    profiler.start_trace(tmp_path)
    try:
        with pytest.raises(BadArgument, match="is being recorded; end it with"):
            profiler.start_trace(tmp_path)
    finally:
        profiler.stop_trace()
    assert spans(tmp_path) == []


def test_a_span_that_a_trace_began_in_is_left_out(tmp_path):
    with profiler.TraceAnnotation("before"):
        profiler.start_trace(tmp_path)
    with profiler.TraceAnnotation("inside"):
        profiler.stop_trace()
    assert spans(tmp_path) == []
