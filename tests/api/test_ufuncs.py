"""frompyfunc beside NumPy's, and files of arrays; the folds beside JAX's too (peers)."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ConcretizationError, ShapeError, TypeMismatch
from fxad.numpy.folds import KNOWN

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)
CALLS = {
    "call": lambda f, x: f(x, x + 1),
    "broadcast": lambda f, x: f(x, 2.0),
    "reduce": lambda f, x: f.reduce(x),
    "keepdims": lambda f, x: f.reduce(x, axis=-1, keepdims=True),
    "initial": lambda f, x: f.reduce(x, axis=1, initial=5.0),
    "where": lambda f, x: f.reduce(x, axis=1, initial=5.0, where=x % 2 == 0),
    "accumulate": lambda f, x: f.accumulate(x, axis=1),
    "outer": lambda f, x: f.outer(x, x[0]),
    "reduceat": lambda f, x: f.reduceat(x, np.array([0, 2, 1]), axis=1),
}


def mixed(a, b):
    return a * 2 + b  # neither associative nor commutative


OURS, NUMPYS = (module.frompyfunc(mixed, 2, 1) for module in (jnp, np))


@pytest.mark.parametrize("name", CALLS)
def test_folds_are_numpys(name):
    wanted = np.asarray(CALLS[name](NUMPYS, X)).astype(np.float32)
    found = CALLS[name](OURS, jnp.asarray(X))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(fxad.jit(lambda x: CALLS[name](OURS, x))(X), wanted)


def test_equal_places_count_each_time():
    wanted = X.copy()
    places = np.array([0, 1, 0, 0]), np.array([0, 2, 0, 1])
    NUMPYS.at(wanted, places, np.float32([1, 2, 3, 4]))
    found = OURS.at(X, places, np.float32([1, 2, 3, 4]), inplace=False)
    np.testing.assert_array_equal(found, wanted)
    negative = jnp.frompyfunc(lambda a: -a, 1, 1)
    assert negative.at(X[0], np.array([1, 1, 2]), inplace=False).tolist() == [0, 1, -2]


def test_folds_have_derivatives():
    with fxad.enable_x64():
        x = X.astype(float) / 3
        fxad.check_grads(lambda x: OURS.reduce(x, axis=1), (x,), order=2)
        fxad.check_grads(lambda x: OURS.accumulate(x), (x,), order=2)
    assert fxad.grad(lambda x: OURS.reduce(x))(jnp.arange(3.0)).tolist() == [4, 2, 1]


def test_several_results_and_identities():
    both = jnp.frompyfunc(lambda a, b: (a + b, a - b), 2, 2)
    total, difference = both(X, 1.0)
    assert total.tolist() == (X + 1).tolist() and difference.tolist() == (X - 1).tolist()
    added = jnp.frompyfunc(lambda a, b: a + b, 2, 1, identity=0)
    assert (added.nin, added.nout, added.nargs, added.identity) == (2, 1, 2, 0)
    assert float(added.reduce(X, axis=None)) == 15
    assert added.reduce(X[:0]).tolist() == [0, 0, 0]
    assert added.reduce(X, where=X > 1, keepdims=True).tolist() == [[3, 4, 7]]
    assert isinstance(added, jnp.ufunc)


def test_what_is_refused():
    with pytest.raises(BadArgument, match="takes 2 arguments, got 1"):
        OURS(X)
    with pytest.raises(BadArgument, match="gives 1 results, not 2"):
        jnp.frompyfunc(mixed, 2, 2)(X, X)
    with pytest.raises(BadArgument, match="needs a function of 2 arguments"):
        jnp.frompyfunc(lambda a: a, 1, 1).reduce(X)
    with pytest.raises(BadArgument, match="out= must be None"):
        OURS.reduce(X, out=X)
    with pytest.raises(BadArgument, match="needs initial="):
        OURS.reduce(X, where=X > 1)
    with pytest.raises(ShapeError, match="without elements"):
        OURS.reduce(X[:0])
    with pytest.raises(BadArgument, match="inplace=False"):
        OURS.at(X, 0, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16", "float64"])
def test_files(dtype, tmp_path):
    x = jnp.asarray(X, dtype=dtype)
    jnp.save(tmp_path / "x.npy", x)
    again = jnp.load(tmp_path / "x.npy")
    assert isinstance(again, fxad.Array) and again.dtype == x.dtype
    assert again.tolist() == x.tolist()
    with io.BytesIO() as file:
        jnp.savez(file, x, second=x[0])
        file.seek(0)
        found = jnp.load(file)
        assert found["arr_0"].shape == (2, 3) and found["second"].shape == (3,)


def test_traced_values_and_pickles_stay_out_of_files(tmp_path):
    with pytest.raises(ConcretizationError):
        fxad.jit(lambda x: jnp.save(tmp_path / "x.npy", x))(X)
    np.save(tmp_path / "x.npy", np.array([{}]))
    with pytest.raises(ValueError, match="allow_pickle"):
        jnp.load(tmp_path / "x.npy")


@pytest.mark.parametrize("dtype", ["float32", "int16", "bfloat16", "float64", "bool"])
def test_numbers_of_a_file(dtype, tmp_path):
    """As NumPy reads them, from a path or an open file, and in memory that may be donated."""
    x, path = np.asarray(jnp.arange(12).astype(dtype)), tmp_path / "x.bin"
    path.write_bytes(b"head" + x.tobytes() + b"!" * (x.itemsize - 1))
    got = jnp.fromfile(str(path), dtype, offset=4)
    assert got.dtype == x.dtype and got.tolist() == x.tolist()
    assert jnp.fromfile(path, dtype, 5, offset=4).tolist() == x[:5].tolist()
    with path.open("rb") as file:
        file.read(4)
        assert jnp.fromfile(file, dtype, 3).tolist() == x[:3].tolist()
        assert jnp.fromfile(file, dtype, 2).tolist() == x[3:5].tolist()
    shaped = jnp.fromfile(path, dtype, offset=4, shape=(3, 4))
    assert shaped.tolist() == x.reshape(3, 4).tolist()
    address = np.asarray(shaped).ctypes.data
    moved = fxad.jit(lambda x: x.at[0, 0].set(1), donate_argnums=0)(shaped)
    assert np.asarray(moved).ctypes.data == address
    assert jnp.fromfile(path, dtype, offset=4, shape=()).tolist() == x[0].tolist()
    with pytest.raises(BadArgument, match=r"has 12 numbers of .* the shape \(13,\) needs 13"):
        jnp.fromfile(path, dtype, offset=4, shape=13)


def test_numbers_of_a_file_of_text(tmp_path):
    (tmp_path / "x.txt").write_text("1 2 3.5")
    assert jnp.fromfile(tmp_path / "x.txt", "float32", sep=" ").tolist() == [1, 2, 3.5]
    column = jnp.fromfile(tmp_path / "x.txt", "float32", sep=" ", shape=(3, 1))
    assert column.tolist() == [[1], [2], [3.5]]
    with pytest.raises(FileNotFoundError):
        jnp.fromfile(tmp_path / "missing", "float32")
    with pytest.raises(BadArgument, match="bytes to skip, got -1"):
        jnp.fromfile(tmp_path / "x.txt", "uint8", offset=-1)
    with pytest.raises(TypeMismatch, match="object"):
        jnp.fromfile(tmp_path / "x.txt", object)


MASK = np.array([[False, True, True], [False, True, False]])
TWO = sorted(name for name, (count, _) in KNOWN.items() if count == 2)
FOLDED = {
    "axis 0": lambda f, x: f.reduce(x),
    "last axis, kept": lambda f, x: f.reduce(x, axis=-1, keepdims=True),
    "flat": lambda f, x: f.reduce(x, axis=None),
    "both axes": lambda f, x: f.reduce(x, axis=(0, 1)),
    "from 1": lambda f, x: f.reduce(x, initial=1),
    "some": lambda f, x: f.reduce(x, axis=1, initial=1, where=MASK),
    "accumulate": lambda f, x: f.accumulate(x, axis=1),
    "outer": lambda f, x: f.outer(x, x[0]),
}


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("fold", FOLDED)
def test_folds_of_functions_are_numpys(name, fold):
    x = np.array([[1, 2, 4], [3, 6, 5]], "f4" if name.startswith("logadd") else "i4")
    ours, theirs = getattr(jnp, name), getattr(np, name)
    if name == "subtract" and fold == "both axes":
        with pytest.raises(BadArgument, match="order"):
            ours.reduce(x, axis=(0, 1))
        return
    if name == "subtract" and fold == "flat":  # which NumPy refuses
        assert jnp.subtract.reduce(x, axis=None) == 1 - 2 - 4 - 3 - 6 - 5
        return
    got = FOLDED[fold](ours, jnp.asarray(x))
    np.testing.assert_allclose(got, FOLDED[fold](theirs, x), rtol=2e-6)
    np.testing.assert_allclose(fxad.jit(lambda x: FOLDED[fold](ours, x))(x), got, rtol=2e-6)


@pytest.mark.parametrize("name", TWO)
def test_folds_at_places_are_numpys(name):
    x = np.array([1, 2, 4, 8], "f4" if name.startswith("logadd") else "i4")
    places, wanted = np.array([0, 0, 3]), x.copy()
    getattr(np, name).at(wanted, places, 3)
    got = getattr(jnp, name).at(jnp.asarray(x), places, 3, inplace=False)
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


def test_folds_keep_dtypes_and_name_their_function():
    flags = jnp.array([True, False, True])
    for name, wanted in (("bitwise_and", False), ("bitwise_or", True), ("bitwise_xor", False)):
        found = getattr(jnp, name).reduce(flags)
        assert found.dtype == bool and bool(found) == wanted
    assert jnp.add.reduce(flags).dtype == jnp.int32
    assert jnp.add.accumulate(jnp.ones(3, "int8")).dtype == jnp.int8
    assert (jnp.add.nin, jnp.add.nout, jnp.add.identity) == (2, 1, 0)
    assert jnp.negative.at(X[0], 1, inplace=False).tolist() == [0, -1, 2]
    with pytest.raises(BadArgument, match=r"negative.reduce: needs a function of 2 arguments"):
        jnp.negative.reduce(X)
    with pytest.raises(BadArgument, match=r"add.at: arrays are immutable; pass inplace=False"):
        jnp.add.at(X, 0, 1.0)


@pytest.mark.peers
@pytest.mark.parametrize("name", CALLS)
def test_folds_are_jaxs(name):
    theirs = pytest.importorskip("jax.numpy").frompyfunc(mixed, 2, 1)
    wanted = CALLS[name](theirs, X)
    np.testing.assert_array_equal(CALLS[name](OURS, X), np.asarray(wanted))
