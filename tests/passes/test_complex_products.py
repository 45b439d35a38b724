"""Products of complex numbers as real ones of their parts are the same products."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.ir.check import check
from fxad.ir.kernel import Contract
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.passes.complex_products import complex_products
from fxad.trace.tracer import stage, type_of

NN, NONE = ((1,), (0,)), ((), ())
# Shapes of both operands, contracted and batch axes.
SHAPES = [
    ((13, 21), (21, 9), NN, NONE),
    ((9, 13), (21, 13), ((1,), (1,)), NONE),  # b is the transpose of a matrix, and larger
    ((40, 9), (40, 5), ((0,), (0,)), NONE),  # a is one, and larger
    ((100, 90), (90,), ((1,), (0,)), NONE),
    ((90,), (90, 100), ((0,), (0,)), NONE),
    ((3, 8, 9), (3, 9, 11), ((2,), (1,)), ((0,), (0,))),
    ((8, 3, 9, 2), (2, 9, 11, 3), ((2,), (1,)), ((3, 1), (0, 3))),  # batch axes anywhere
    ((4, 3, 5, 2), (3, 2, 6, 5, 7), ((1, 2), (0, 3)), NONE),  # two contracted axes, others between
    ((2, 3, 900), (4, 900, 5), ((2,), (1,)), NONE),  # several blocks of k
]


def numbers(*shape: int, dtype: str, seed: int) -> np.ndarray:
    real, imag = np.random.default_rng([seed, *shape]).standard_normal((2, *shape))
    return (real + 1j * imag).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, contract, batch) -> Program:
    params = {"contract": contract, "batch": batch, "dtype": a.dtype}
    return stage(lambda *xs: [OPS["dot"](*xs, **params)], [type_of(x) for x in (a, b)])[0]


def within_bounds(found: np.ndarray, program: Program, a: np.ndarray, b: np.ndarray) -> bool:
    """As exact as 2k products in any order, against NumPy in complex128."""
    params = program.eqns[0].params | {"dtype": np.dtype("complex128")}
    wide = [x.astype(np.complex128) for x in (a, b)]
    exact = OPS["dot"].numpy(*wide, **params)
    sizes = OPS["dot"].numpy(*[abs(x.real) + abs(x.imag) + 0j for x in wide], **params).real
    depth = np.prod([a.shape[i] for i in params["contract"][0]])
    bound = (2 * depth + 2) * np.finfo(a.dtype).eps * sizes
    return bool(np.all(np.abs(found - exact) <= bound))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_the_products_of_parts_are_the_product(shapes, dtype):
    """By the reference, and by machine code; with no product of complex numbers left."""
    left, right, contract, batch = shapes
    a, b = numbers(*left, dtype=dtype, seed=1), numbers(*right, dtype=dtype, seed=2)
    program = product(a, b, contract, batch)
    made = check(complex_products(program))
    (dot,) = (e for e in made.eqns if e.op.name == "dot")
    assert dot.outputs[0].type.dtype == a.real.dtype and made.outputs == program.outputs
    (found,) = evaluate(made, [a, b])
    assert within_bounds(found, program, a, b)
    with fxad.enable_x64():
        compiled = fxad.jit(lambda a, b: OPS["dot"](a, b, **program.eqns[0].params))
        assert within_bounds(np.asarray(compiled(a, b)), program, a, b)
        kernels = compiled.lower(a, b).kernels
    cells = [s.cell.dtype for k in kernels for s in k.body if isinstance(s, Contract)]
    assert cells == [a.real.dtype]


@pytest.mark.parametrize(
    "shapes",
    [
        ((6, 6), (6, 6), NN, NONE),  # too little work
        ((1000,), (1000,), ((0,), (0,)), NONE),  # one number
        ((1, 64), (64, 64), NN, NONE),  # a row of a small matrix
        ((1, 1500), (1500, 1500), NN, NONE),  # which would be copied
        ((3, 200), (3, 200, 200), ((1,), (1,)), ((0,), (0,))),  # rows of a batch
        ((100,), (100,), ((), ()), NONE),  # nothing is summed
        ((0, 100), (100, 100), NN, NONE),
    ],
    ids=str,
)
def test_what_stays_complex(shapes):
    left, right, contract, batch = shapes
    a, b = (numbers(*shape, dtype="complex64", seed=0) for shape in (left, right))
    program = product(a, b, contract, batch)
    assert complex_products(program) is program


def test_infinities_are_nan_where_their_products_with_0_are():
    """As sums of products of the parts say, like products that stay complex."""
    a, b = np.zeros((2, 3, 20), np.complex64), np.ones((3, 20, 30), np.complex64)
    a[0, 0, 3], a[1, 1, 4], b[2, 5, 6] = complex(np.inf, 1), complex(0, np.nan), complex(1, -np.inf)
    a[:, 2] = 1 - 1j
    found = np.asarray(fxad.jit(jnp.matmul)(a[0], b[2]))
    few = np.asarray(fxad.jit(jnp.matmul)(a[0, :, :], b[2][:, 6:7]))  # of one column
    for part in (np.real, np.imag):
        wanted = np.zeros((3, 30), np.float32)
        with np.errstate(invalid="ignore"):
            x, y = a[0], b[2]
            terms = [x.real[..., None] * y.real, -x.imag[..., None] * y.imag]
            if part is np.imag:
                terms = [x.real[..., None] * y.imag, x.imag[..., None] * y.real]
            wanted = (terms[0] + terms[1]).sum(1)
        np.testing.assert_array_equal(part(found), wanted)
        np.testing.assert_array_equal(part(few), wanted[:, 6:7])


def test_derivatives_and_batches_of_it():
    """Against those of real products of the parts, written by hand."""
    a = numbers(5, 12, 10, dtype="complex128", seed=3)
    b = numbers(10, 14, dtype="complex128", seed=4)

    def loss(product, a, b):
        return jnp.sum(jnp.abs(product(a, b)) ** 2)

    def by_hand(a, b):
        x, y, u, v = a.real, a.imag, b.real, b.imag
        return (x @ u - y @ v) + 1j * (x @ v + y @ u)

    with fxad.enable_x64():
        found, wanted = (
            fxad.jit(fxad.vmap(fxad.grad(lambda *xs, p=p: loss(p, *xs), (0, 1)), (0, None)))(a, b)
            for p in (jnp.matmul, by_hand)
        )
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12, atol=1e-12)
