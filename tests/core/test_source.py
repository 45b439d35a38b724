"""The writer of Python source: indentation, names, constants, and lines in tracebacks."""

import traceback

import pytest

from fxad.core.source import Source, close_to, defined, number, tupled


def test_blocks_names_and_constants() -> None:
    source = Source()
    held = [1, 2]
    with source.block("def f(x):"):
        kept = source.define(f"{source.constant(held)}")
        with source.block("if x:"):
            source.line(f"return {kept}")
        with source.block("else:"):
            pass
        source.extend(["for i in range(2):", "    x = i"])
        source.line("return x")
    expected = """def f(x):
    v0 = c0
    if x:
        return v0
    else:
        pass
    for i in range(2):
        x = i
    return x
"""
    assert source.text == expected
    f = source.function("f", "a test")
    assert f(1) is held and f(0) == 1
    assert [source.fresh("v"), source.fresh("t")] == ["v1", "t0"]


def test_tracebacks_show_the_lines_that_were_written() -> None:
    fail = defined("def fail(x):\n    y = x\n    return 1 / y\n", "a test", {})["fail"]
    with pytest.raises(ZeroDivisionError) as error:
        fail(0)
    last = traceback.extract_tb(error.value.__traceback__)[-1]
    assert last.line == "return 1 / y" and last.filename.startswith("<fxad a test ")


@pytest.mark.parametrize("value", [1, True, -0.0, 1e300, 2 - 0.0j, float("inf")])
def test_numbers_read_back_as_they_were(value: complex) -> None:
    assert repr(eval(number(value))) == repr(value)


def test_tuples_and_names_close_to_a_hint() -> None:
    assert [tupled([]), tupled(["a"]), tupled(["a", "b"])] == ["()", "(a,)", "(a, b)"]
    taken = {"exp"}
    assert [close_to("exp", taken) for _ in range(3)] == ["exp_", "exp1", "exp2"]
