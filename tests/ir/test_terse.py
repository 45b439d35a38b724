"""The terse text of long programs: it is parsed back to the same Program, and short."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, CheckError
from fxad.core.types import ArrayType
from fxad.ir.labels import label
from fxad.ir.program import Program, Var, equations_within, show
from fxad.ir.repeats import repeats
from fxad.ir.terse import terse
from fxad.ir.text import parse
from fxad_nn import gpt2

X = np.ones((4, 8), np.float32)


def program(f, *args) -> Program:
    return fxad.make_ir(f)(*args).program


def mlp(params, x):
    for p in params:
        x = jnp.tanh(x @ p["weight"] + p["bias"]) + x * 0.5
    return jnp.sum(x)


def layers(count: int):
    return [{"weight": np.ones((8, 8), np.float32), "bias": X[0]} for _ in range(count)]


def gpt2_gradient(layers: int) -> Program:
    config = dataclasses.replace(gpt2.PRESETS["gpt2"], layers=layers)
    params = fxad.tree.map(
        lambda leaf: fxad.ShapeDtypeStruct(leaf.shape, leaf.dtype),
        gpt2.spec(config),
        is_leaf=lambda leaf: hasattr(leaf, "shape"),
    )
    tokens = fxad.ShapeDtypeStruct((8, 1024), np.int32)
    return program(fxad.grad(lambda p, b: gpt2.loss(p, b, config)), params, (tokens, tokens))


def loop(x):
    def body(c, v):
        return lax.cond(c < 3, lambda c: c * 2, lambda c: c + 1, c) + v.sum(), -v

    return lax.scan(body, 1.0, x)[0]


def sliced(x):
    """Integers in parameters that grow, and others that do not."""
    out = 0.0
    for i in range(12):
        out = out + jnp.sum(x[i : i + 3] * float(i)) - jnp.sin(x[11 - i])
    return out


def uneven(x):
    """Slices at places that no line goes through."""
    return sum(jnp.sum(jnp.cos(x[i * i]) * x[3]) for i in range(12))


def fibonacci(x):
    a, b = x, x * 2
    for _ in range(12):
        a, b = b, a + jnp.sin(b)
    return a * b


def shared(x):
    """A result read in two places of later copies, and one at the end."""
    found = []
    for _ in range(10):
        x = jnp.sin(x) * jnp.cos(x)
        found.append(x)
    return sum(f * g for f, g in zip(found, reversed(found), strict=True))


def signs(x, y):
    """Arithmetic whose brackets matter."""
    z = x - (y - x) - (x - y)
    z = z / (x / y) / (x * y) * (x + y)
    return -jnp.negative(z) * -x + (-1.0 - x) - -2.0 + (x - y) * 3.0


def numbers(x):
    """Literals of dtypes other than the line's."""
    big = x.astype(jnp.bfloat16) * 0.1
    return jnp.where(x > 0.5, big.astype(jnp.float32), 1e30) + jnp.sum(jnp.arange(4) * 7)


def two_histories(x, y):
    """Copies read two and one before; what the first read does not go together."""
    a, b, c = x, y, x * 2
    for _ in range(12):
        a, b, c = b, jnp.sin(a) + jnp.cos(c), b
    return a + b + c


def named_outputs(x):
    """Results called as what the loop reads first would be."""
    found = {"h": [jnp.sin(x)]}
    for _ in range(12):
        x = jnp.cos(x) * 2
        found["h"].append(x)
    return found


def complexes(x):
    """An op called as complex numbers are written, and a sort, which has a tuple of one result."""
    z = jnp.sort(x.ravel())[:8] * (1.0 + 2.0j) + lax.complex(x[0], 0.0 * x[1])
    return z * complex(np.nan, -1.0) + lax.complex(1.0, x[0])


GIVEN = {
    "complexes": (complexes, X),
    "two histories": (two_histories, X, X),
    "named outputs": (named_outputs, X),
    "mlp": (mlp, layers(6), X),
    "grad mlp": (fxad.grad(mlp), layers(6), X),
    "grad mlp both": (fxad.grad(mlp, (0, 1)), layers(6), X),
    "value_and_grad": (fxad.value_and_grad(mlp), layers(3), X),
    "vmap grad": (fxad.vmap(fxad.grad(mlp), (None, 0)), layers(4), X[None]),
    "hessian": (fxad.hessian(lambda x: mlp(layers(2), x)), X),
    "loop": (fxad.grad(loop), X),
    "sliced": (sliced, np.arange(16, dtype=np.float32)),
    "grad sliced": (fxad.grad(sliced), np.arange(16, dtype=np.float32)),
    "uneven": (uneven, np.ones((150, 2), np.float32)),
    "fibonacci": (fibonacci, X),
    "grad fibonacci": (fxad.grad(lambda x: fibonacci(x).sum()), X),
    "shared": (fxad.grad(lambda x: shared(x).sum()), X),
    "signs": (signs, X, X),
    "numbers": (numbers, X),
    "nothing": (lambda x: (x, 1.0), X),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("width", [40, 120])
def test_it_is_parsed_back_to_the_same_program(name: str, width: int) -> None:
    f, *args = GIVEN[name]
    given = program(f, *args)
    text = terse(given, width)
    assert parse(text).key() == given.key(), text
    simple = fxad.jit(f).lower(*args).program
    assert parse(terse(simple, width)).key() == simple.key()


def test_a_gradient_of_twelve_layers_is_one_block_forward_and_one_backward() -> None:
    given = gpt2_gradient(12)
    text = str(given)
    assert parse(text).key() == given.key()
    assert len(text.split("\n")) <= 180  # with the signatures of two programs
    assert "layer(p.attention.out.bias: f32[768]" in text
    assert text.count("flash_attention(") == text.count("flash_attention_grad(") == 1
    assert "for i in 0..11 {" in text and "for i in 11..0 {" in text
    assert max(map(len, text.split("\n"))) <= 120
    two = str(gpt2_gradient(2))
    assert abs(len(two.split("\n")) - len(text.split("\n"))) <= 10


def test_copies_read_inside_before_and_elsewhere() -> None:
    text = terse(program(fxad.grad(mlp), layers(12), X))
    assert "params[0..11].{bias: f32[8], weight: f32[8,8]}" in text
    assert "params[i].weight" in text and "d_params[i].weight: f32[8,8] = " in text
    assert "return d_params[0..11].{bias, weight}" in text


def test_random_sequences_are_parsed_back() -> None:
    draw = random.Random(0)
    for _ in range(40):
        steps = [draw.randrange(5) for _ in range(draw.randrange(2, 7))] * draw.randrange(1, 9)
        rest = [draw.randrange(5) for _ in range(draw.randrange(4))]

        def f(x, y, steps=(*rest, *steps, *rest)):
            held = [x, y]
            for i, step in enumerate(steps):
                a, b = held[-1], held[draw.randrange(len(held)) if draw.random() < 0.1 else -2]
                held.append((a + b, a * 0.1, jnp.sin(b), a - x[i % 3], jnp.abs(a) / 3.0)[step])
            return held[-1], held[len(held) // 2]

        given = program(f, X, X)
        assert parse(terse(given)).key() == given.key()


def test_repeats_do_not_overlap_and_cover_what_they_say() -> None:
    given = gpt2_gradient(3)
    found = repeats(given)
    sizes = [sum(map(equations_within, given.eqns[r.start : r.start + r.period])) for r in found]
    assert [r.copies for r, size in zip(found, sizes, strict=True) if size > 50] == [3, 3]
    for one, other in itertools.pairwise(found):
        assert one.stop <= other.start
    for r in found:
        names = [e.op.name for e in given.eqns[r.start : r.stop]]
        assert names == names[: r.period] * r.copies


# ---------------------------------------------------------------- names


def test_names_from_users_are_quoted() -> None:
    keys = ["a b", 'say "hi"', "line\nbreak", "[0]", "x[0..3].{a}", "ключ", "", "b#c", "\\", "é"]
    params = dict.fromkeys(keys, X) | {"w": {"not-a-word": X}}
    given = program(lambda p: sum(v * 2 for v in fxad.tree.leaves(p)), params)
    for text in (show(given), terse(given)):
        assert parse(text).key() == given.key()
        assert 'p["line\\nbreak"]' in text
        assert "p.ключ" in text
        assert 'p.w["not-a-word"]' in text


@pytest.mark.parametrize("word", ["f32", "i8", "bf16", "program", "nan", "tape", "complex"])
def test_arguments_called_as_words_of_the_grammar(word: str) -> None:
    scope: dict = {}
    exec(f"def f({word}, a):\n    return {word}[0] * a[0] + {word}[1]", scope)
    given = program(scope["f"], (X, X), (X,))
    for text in (show(given), terse(given)):
        assert f"{word}_[0" in text
        assert parse(text).key() == given.key()


def test_labels_do_not_count_for_what_is_equal() -> None:
    one = program(lambda x, y: x * y, X, X)
    other = program(lambda left, right: left * right, X, X)
    assert one.key() == other.key()
    assert [v.label for v in one.inputs] == ["x", "y"]
    assert [v.label for v in other.inputs] == ["left", "right"]


def test_letters_keep_from_labels() -> None:
    text = str(program(lambda a, c: (a + c, a - c), X, X))
    assert "a: f32[4,8], c: f32[4,8]" in text
    assert "b: f32[4,8] = add(a, c)" in text and "d: f32[4,8] = sub(a, c)" in text


def test_two_values_of_one_label_have_two_names() -> None:
    scalar = ArrayType(np.dtype(np.float32), ())
    one, other = Var(scalar, "x"), Var(scalar, "x")
    text = str(Program([one, other], [], [one, other]))
    assert text.split("\n")[0] == "program f(x: f32[], a: f32[]) {"


def test_results_are_named_by_their_keys() -> None:
    def f(x):
        return {"loss": x.sum(), "logits": {"a b": x * 2}}

    text = str(program(f, X))
    assert "loss: f32[] = sum(x" in text
    assert 'logits["a b"]: f32[4,8] = mul(x' in text
    text = str(program(fxad.value_and_grad(f_of_two, argnums=(1,)), {"v": X}, {"w": X}))
    assert "d_q.w: f32[4,8] = " in text


def f_of_two(p, q):
    return jnp.sum(p["v"] * q["w"])


def test_labels_of_paths() -> None:
    leaves = fxad.tree_util.tree_flatten_with_path({"a": [0, {"b c": 1}]})[0]
    assert [label("p", path) for path, _ in leaves] == ["p.a[0]", 'p.a[1]["b c"]']


# ---------------------------------------------------------------- scopes


def scoped(params, x):
    for p in params:
        with fxad.named_scope("layer"):
            with fxad.named_scope("a b\n}"):
                h = x @ p["weight"]
            x = jnp.tanh(h)
    return jnp.sum(x)


def test_scopes_are_sections() -> None:
    printed = fxad.make_ir(fxad.grad(scoped))(layers(20), X)
    text = str(printed)
    assert parse(text).key() == printed.program.key()
    lines = [line.strip() for line in text.split("\n")]
    assert lines.count("# layer/a_b_}") >= 2, "forward and backward"
    assert "# -" in lines
    where = [e.where for e in printed.eqns if e.op.name == "tanh"]
    assert all(w.endswith(" in layer") for w in where)
    backward = [e.where for e in printed.eqns if e.op.name == "dot" and e.tag == "backward"]
    assert backward and all(w.endswith(" in layer/a_b_}") for w in backward)


def test_scopes_stand_in_profiles_and_errors() -> None:
    @fxad.named_scope("outer")
    def f(x):
        return fxad.named_call(lambda x: jnp.sin(x) * x.sum(), name="inner")(x)

    assert " in outer/inner" in str(fxad.jit(f).lower(X).kernels[-1].where)

    def broken(x):
        with fxad.named_scope("attention"):
            return x + X[:3]

    with pytest.raises(fxad.errors.ShapeError, match=r"test_terse.py:\d+ in attention\)"):
        fxad.jit(broken)(X)
    with pytest.raises(fxad.errors.TypeMismatch, match="must be a string"), fxad.named_scope(3):
        pass


# ---------------------------------------------------------------- styles


def test_styles() -> None:
    short = fxad.make_ir(mlp)(layers(2), X)
    assert str(short) == short.text(style="full") == str(short.program)
    assert "for i in 0..1" not in str(short)
    long = fxad.make_ir(mlp)(layers(20), X)
    assert str(long) == long.text(style="terse")
    assert "for i in 0..19" in str(long)
    assert len(long.text(style="full").split("\n")) == len(long.eqns) + 3
    for style in ("full", "terse"):
        text = long.text(style=style, width=60)
        assert parse(text).key() == long.program.key()
        assert max(len(line.split("  #")[0]) for line in text.split("\n")) <= 60
    with pytest.raises(BadArgument, match="'terse' or 'sides', not 'short'"):
        long.text(style="short")


def test_lines_fit_the_terminal(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "70")
    text = str(fxad.make_ir(mlp)(layers(20), X))
    assert 60 < max(map(len, text.split("\n"))) <= 70


@pytest.mark.parametrize(
    ("body", "saying"),
    [
        ("for i in 0..1 {\n for i in 0..1 {\n }\n }", "op 'i'|loop inside|unknown op|expected"),
        ("b: f32[3] = slice(a; start=(1*i,))", "outside of a loop"),
        ("for i in 0..1 {\n b: f32[3] = exp(a)\n }\n c: f32[3] = exp(b)", "b is not defined"),
        ("for i in 0..1 {\n b: f32[3] = exp(c[i])\n }", r"c\[0\] is not defined"),
        (
            "b[0]: f32[3] = exp(a)\n for i in 0..1 {\n b[i]: f32[3] = exp(a)\n }",
            r"b\[0\] is defined twice",
        ),
        ("b: f32[3] = exp(a; 3)", "which parameter of exp"),
        ("b: f32[3], c: f32[3] = add(a, 1.0)", "needs a dtype"),
        ("b: f32[3] = a", "an equation needs an op"),
    ],
)
def test_errors_name_the_line(body: str, saying: str) -> None:
    with pytest.raises(CheckError, match=saying):
        parse(f"program f(a: f32[3]) {{\n {body}\n return a\n}}")


class Slotted:
    """A callable that has neither a hash nor weak references."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other) -> bool:
        return True

    def __call__(self, x, *rest, key):
        return {"a": x + key, "b c": rest[0] * 2}


def test_callables_of_any_kind_have_names() -> None:
    text = str(fxad.make_ir(Slotted())(X, X, key=X))
    assert "args[1]: f32[4,8], key: f32[4,8])" in text
    assert re.search(r"a: f32\[4,8\] = add\((x|args\[0\]), key\)", text)  # x since Python 3.14
    text = str(fxad.make_ir(functools.partial(mlp, x=X))(layers(1)))
    assert "params[0].bias" in text
    lowered = fxad.jit(fxad.grad(mlp), static_argnums=()).lower(layers(1), X)
    assert "d_params[0].weight" in str(lowered.program)
    static = fxad.jit(lambda n, x: x * n, static_argnums=0).lower(3, X)
    assert str(static.program).startswith("program f(x: f32[4,8])")
