"""`import jax` means fxad where that was asked for, and nowhere else."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HAS_JAX = importlib.util.find_spec("jax") is not None


def run(code: str, *command: str, cwd: Path = ROOT, status: int = 0) -> str:
    """What a process of its own prints, in which the real JAX's warning is no error."""
    command = command or ("-W", "ignore:fxad.as_jax", "-c", code)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], env=env, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


# A process in which the alias was installed and one function compiled, and nothing else was done.
# It forks for each line, which names a file of code and one for what the code prints.
FORKS = """
import json, os, signal, sys
import fxad.as_jax
fxad.as_jax.install()
fxad.jit(lambda x: -x)(1.0)
for line in sys.stdin:
    source, printed = json.loads(line)
    if (child := os.fork()) == 0:
        signal.alarm(120)
        for stream in (1, 2):
            os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.argv = ["-c"]
        exec(compile(open(source).read(), "<string>", "exec"), {"__name__": "__main__"})
        break
    print(os.waitpid(child, 0)[1], flush=True)
"""


@functools.cache
def _forks() -> subprocess.Popen:
    command = [sys.executable, "-W", "ignore:fxad.as_jax", "-c", FORKS]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    made = subprocess.Popen(command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    atexit.register(made.communicate)  # its input ends, then it does
    return made


def aliased(code: str) -> str:
    """What the code prints in a process in which the alias is installed."""
    code = f"import fxad.as_jax; fxad.as_jax.install()\n{code}"
    if not hasattr(os, "fork"):
        return run(code)
    with tempfile.TemporaryDirectory() as folder:
        source, printed = Path(folder, "code.py"), Path(folder, "printed")
        source.write_text(code)
        forks = _forks()
        assert forks.stdin is not None and forks.stdout is not None
        print(json.dumps([str(source), str(printed)]), file=forks.stdin, flush=True)
        if not select.select([forks.stdout], [], [], 130)[0]:
            forks.kill()
        status = forks.stdout.readline().strip()
        if not status:  # the next test starts another
            _forks.cache_clear()
        said = printed.read_text() if printed.exists() else ""
        assert status == "0", f"{status or 'no answer'} {said}"
        return printed.read_text()


def test_modules_and_names_are_fxads():
    out = aliased(
        "import jax, jax.numpy as jnp, fxad\n"
        "from jax import lax, tree_util\n"
        "from jax.scipy.stats import norm\n"
        "import jax.scipy.stats.norm as same\n"
        "import jax.nn.initializers\n"
        "print(jax.hessian is fxad.hessian, jnp.sin is fxad.numpy.sin, lax.scan is fxad.lax.scan)\n"
        "print(jax.Array is fxad.Array, isinstance(jnp.ones(2), jax.Array), jnp is jax.numpy)\n"
        "print(float(same.pdf(0.0)) == float(norm.pdf(0.0)), jax.jit(jax.grad(jnp.sin))(0.0))\n"
    )
    assert out.split("\n")[:3] == ["True True True", "True True True", "True 1.0"]


def test_importing_the_package_changes_nothing():
    out = run(
        "import fxad, fxad.as_jax, sys, fxad.numpy as jnp, importlib.util\n"
        "print(fxad.as_jax.installed(), 'jax' in sys.modules, jnp.zeros(1, 'float64').dtype)\n"
        "print(getattr(importlib.util.find_spec('jax'), 'origin', None))\n"
    )
    assert out.startswith("False False float64\n")
    assert "fxad" not in out.split("\n")[1]


def test_processes_it_starts_are_not_changed():
    out = aliased(
        "import subprocess, sys\n"
        "code = 'import fxad.as_jax; print(fxad.as_jax.installed())'\n"
        "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)"
    )
    assert out.strip() == "False"


def test_install_twice_is_once():
    out = aliased(
        "import sys; n = len(sys.meta_path)\nfxad.as_jax.install(); print(n == len(sys.meta_path))"
    )
    assert out.strip() == "True"


def test_a_real_jax_in_the_process_is_refused(tmp_path):
    (tmp_path / "jax.py").write_text("")
    out = run(
        "",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport jax, fxad.as_jax\n"
        "fxad.as_jax.install()",
        status=1,
    )
    assert "AliasError: fxad.as_jax: JAX itself is imported in this process already" in out
    assert "jax.py" in out


def test_a_real_jax_on_the_path_is_warned_of(tmp_path):
    (tmp_path / "jax.py").write_text("here = True")
    out = run(
        "",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport fxad.as_jax\n"
        "fxad.as_jax.install()\nimport jax; print(jax.__version__)",
    )
    assert "AliasWarning: fxad.as_jax: `import jax` means fxad in this process, not" in out
    assert "0.10.2" in out


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("jax.numpy.sinn", "AttributeError"),
        ("from jax.numpy import sinn", "ModuleNotFoundError"),
        ("import jax.numpy.sinn", "ModuleNotFoundError"),
    ],
)
def test_an_unknown_name_fails_at_once_and_names_the_nearest(code, error):
    out = aliased(
        "import jax, traceback\n"
        f"try: {code}\n"
        "except (AttributeError, ImportError): traceback.print_exc()\n"
    )
    assert "jax.numpy.sinn is not in fxad, nor a public name of JAX that it knows" in out
    assert "the nearest name is jax.numpy.sin" in out and "docs/jax-names.md" in out
    assert error in out or "Absent" in out


def test_an_absent_name_says_why():
    out = aliased(
        "import jax\n"
        "for name in ('smap', 'empty_ref'):\n"
        "    try: getattr(jax, name)\n"
        "    except AttributeError as e: print(e)\n"
        "print(hasattr(jax, 'smap'), 'smap' in dir(jax), 'grad' in dir(jax))\n"
    )
    assert "jax.smap is not in fxad: there is one device" in out
    assert "jax.empty_ref is not in fxad: there are no mutable arrays" in out
    assert out.strip().endswith("False False True")


def test_scripts_and_modules_run_as_they_would_alone(tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys, helper, jax\n"
        "if __name__ == '__main__': print(sys.argv, helper.x, jax.numpy.ones(2).sum())\n"
    )
    (tmp_path / "helper.py").write_text("x = 7")
    quiet = ("-W", "ignore:fxad.as_jax", "-m", "fxad.as_jax")
    out = run("", *quiet, str(tmp_path / "script.py"), "--epochs", "3")
    assert out.strip() == f"[{str(tmp_path / 'script.py')!r}, '--epochs', '3'] 7 2.0"
    main = "from fxad.as_jax.__main__ import main\nmain"
    out = aliased(f"import os\nos.chdir({str(tmp_path)!r})\n{main}(['-m', 'script', 'x'])")
    assert out.strip() == f"[{str(tmp_path / 'script.py')!r}, 'x'] 7 2.0"
    assert "usage: python -m fxad.as_jax" in run("", *quiet, status=2)


def test_pytest_plugin(tmp_path):
    (tmp_path / "conftest.py").write_text("import jax; VERSION = jax.__version__")
    (tmp_path / "test_it.py").write_text(
        "import jax, fxad\ndef test_it(): assert jax.hessian is fxad.hessian\n"
    )
    quiet = ("-W", "ignore:fxad.as_jax", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    out = run("", *quiet, "-p", "fxad.as_jax", str(tmp_path), cwd=tmp_path)
    assert "1 passed" in out


def test_jax_widths():
    out = aliased(
        "import jax, jax.numpy as jnp, numpy as np, warnings\n"
        "warnings.simplefilter('error')\n"
        "print(jnp.asarray(np.ones(2)).dtype, jnp.full(2, 1.0).weak_type)\n"
        "print(jax.typeof(jnp.ones(2)))\n"
        "try: jnp.zeros(2, jnp.float64)\n"
        "except UserWarning as w: print(w)\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "print(jax.config.jax_enable_x64, jnp.zeros(2, jnp.float64).dtype, jnp.ones(2).dtype)\n"
    )
    assert out.split("\n")[:2] == ["float32 True", "float32[2]"]
    assert "the requested dtype float64 becomes float32" in out
    assert out.strip().endswith("True float64 float64")


def test_dtypes_that_are_named_alone_narrow():
    out = aliased(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import jax, jax.numpy as jnp, numpy as np\n"
        "for x64 in False, True:\n"
        "    jax.config.update('jax_enable_x64', x64)\n"
        "    for name in 'float64', 'int64', 'uint64', 'complex128':\n"
        "        forms = getattr(jnp, name), getattr(np, name), np.dtype(name), name\n"
        "        print(*{np.dtype(f(d)) for d in forms\n"
        "                for f in (jnp.result_type, jax.dtypes.result_type, jax.lax.dtype)})\n"
        "    print(jnp.result_type(jnp.float64, 1.0), jax.lax.dtype(int), jax.lax.dtype(1.0))\n"
    )
    assert out.split() == (
        "float32 int32 uint32 complex64 float32 int32 float32 "
        "float64 int64 uint64 complex128 float64 int64 float64"
    ).split(" ")


def test_settings_have_their_meaning():
    out = aliased(
        "import jax, jax.numpy as jnp\n"
        "x, y = jnp.ones((2, 3)), jnp.ones(3)\n"
        "with jax.numpy_rank_promotion('raise'):\n"
        "    try: x + y\n"
        "    except ValueError as e: print('rank', e)\n"
        "    print((x + 1.0).shape)\n"
        "with jax.numpy_dtype_promotion('strict'):\n"
        "    try: x + jnp.ones(3, int)\n"
        "    except TypeError as e: print('dtype', e)\n"
        "    print((x + 1).dtype)\n"
        "print((x + y).shape, jax.config.jax_numpy_rank_promotion)\n"
        "with jax.debug_nans(True):\n"
        "    try: jax.jit(jnp.log)(-1.0)\n"
        "    except FloatingPointError as e: print(type(e).__name__)\n"
        "print(jax.jit(jnp.log)(-1.0))\n"
        "try: jax.config.update('jax_no_such', 1)\n"
        "except AttributeError as e: print(e)\n"
    )
    lines = out.strip().split("\n")
    assert lines[0].startswith("rank add: shapes (2, 3), (3,) have different ranks")
    assert lines[1] == "(2, 3)"
    assert lines[2].startswith("dtype no implicit promotion between float32, int32 under dtype")
    assert lines[3:6] == ["float32", "(2, 3) allow", "NumericsError"]
    assert lines[6] == "nan" and "jax_no_such" in lines[7]


def test_places_of_one_device():
    out = aliased(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "mesh = Mesh(np.array(jax.devices()), ('x',))\n"
        "place = NamedSharding(mesh, P('x'))\n"
        "x = jax.device_put(jnp.ones(4), place)\n"
        "y = jax.jit(jnp.sin, in_shardings=place, out_shardings=place)(x)\n"
        "print(jnp.zeros(4, out_sharding=place).shape, x.devices() == set(jax.devices()))\n"
        "print(mesh.shape['x'], x.sharding.is_fully_replicated, place.shard_shape((4,)))\n"
        "for wrong in (lambda: jax.make_mesh((2,), ('x',)), lambda: NamedSharding(mesh, P('y')),\n"
        "              lambda: jnp.zeros(3, out_sharding='cpu:1')):\n"
        "    try: wrong()\n"
        "    except Exception as e: print(type(e).__name__, e)\n"
        "print(jax.pmap(lambda x: x + 1)(jnp.ones((1, 2))).shape)\n"
    )
    lines = out.strip().split("\n")
    assert lines[:2] == ["(4,) True", "1 True (4,)"]
    assert lines[2].startswith("BadArgument make_mesh: shape (2,) needs several devices")
    assert "none called 'y'" in lines[3]
    assert "zeros: out_sharding: expected a sharding or a device, got 'cpu:1'" in lines[4]
    assert lines[5] == "(1, 2)"


def test_indices_and_slopes_are_jaxs():
    out = aliased(
        "import jax, jax.numpy as jnp\n"
        "x = jnp.arange(3.0)\n"
        "read = lambda x: (x[7], x[-9], x.at[7].set(5.0))\n"
        "for f in (read, lambda x: x.at[7].get(mode='fill')):\n"
        "    print(f(x), jax.jit(f)(x))\n"
        "print(jax.grad(jnp.abs)(0.0), jax.grad(jnp.abs)(-2.0), jax.jit(jax.grad(jnp.abs))(3.0))\n"
    )
    first, filled, slopes = out.replace("Array", "").strip().split("\n")
    assert first.count("(2., dtype=float32), (0., dtype=float32), ([0., 1., 2.], dt") == 2
    assert filled == "nan nan"
    assert slopes == "1.0 -1.0 1.0"


def test_failed_checks_raise_where_the_function_is_called():
    out = aliased(
        "import jax\n"
        "from jax.experimental import checkify\n"
        "f = jax.jit(lambda x: (checkify.check(x > 0, 'not positive: {}', x), x)[1])\n"
        "print(f(1.0))\n"
        "try: f(-1.0)\n"
        "except checkify.JaxRuntimeError as e: print(e)\n"
    )
    assert out.startswith("1.0\nnot positive: -1.0")


def test_checkify_checks_known_indices_which_are_clamped():
    out = aliased(
        "import jax, jax.numpy as jnp\n"
        "from jax.experimental import checkify\n"
        "errors = checkify.user_checks | checkify.index_checks | checkify.float_checks\n"
        "f = checkify.checkify(lambda x, i: jnp.sin(x[i]), errors=errors)\n"
        "err, z = f(jnp.ones((5,)), 7)\n"
        "print(z, err.get())\n"
        "err, z = jax.jit(f)(jnp.array([jnp.inf, 1]), 0)\n"
        "try: err.throw()\n"
        "except ValueError as e: print(e)\n"
    )
    first, second = out.strip().split("\n")
    assert first.startswith("0.84147")
    assert "index 7 is out of bounds for axis 0 with size 5" in first
    assert second.startswith("nan generated by primitive: sin.")


def test_an_example_that_trains_a_classifier():
    """The parts and the steps of JAX's example mnist_classifier, on clouds of points."""
    out = aliased(
        "import itertools\n"
        "import numpy.random as npr\n"
        "import jax.numpy as jnp\n"
        "from jax import jit, grad, random\n"
        "from jax.example_libraries import optimizers, stax\n"
        "from jax.example_libraries.stax import Dense, LogSoftmax, Relu\n"
        "init, predict = stax.serial(Dense(32), Relu, Dense(32), Relu, Dense(4), LogSoftmax)\n"
        "def loss(params, batch):\n"
        "    inputs, targets = batch\n"
        "    return -jnp.mean(jnp.sum(predict(params, inputs) * targets, axis=1))\n"
        "rng = npr.RandomState(0)\n"
        "labels = rng.randint(0, 4, 256)\n"
        "images = (rng.randn(4, 20)[labels] + 0.5 * rng.randn(256, 20)).astype('float32')\n"
        "targets = jnp.eye(4)[labels]\n"
        "opt_init, opt_update, get_params = optimizers.momentum(0.05, mass=0.9)\n"
        "@jit\n"
        "def update(i, state, batch):\n"
        "    return opt_update(i, grad(loss)(get_params(state), batch), state)\n"
        "_, params = init(random.key(0), (-1, 20))\n"
        "state, count = opt_init(params), itertools.count()\n"
        "for _ in range(8):\n"
        "    for at in range(0, 256, 32):\n"
        "        batch = images[at : at + 32], targets[at : at + 32]\n"
        "        state = update(next(count), state, batch)\n"
        "found = jnp.argmax(predict(get_params(state), images), axis=1)\n"
        "print(float(jnp.mean(found == labels)))\n"
    )
    assert float(out.strip().split("\n")[-1]) > 0.97


def test_shard_map_on_one_device():
    out = aliased(
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import PartitionSpec as P\n"
        "mesh = jax.make_mesh((1,), ('d',))\n"
        "f = lambda x: (jax.lax.psum(x, 'd'), x + jax.lax.axis_index('d'))\n"
        "mapped = jax.shard_map(f, mesh=mesh, in_specs=P('d'), out_specs=(P(), P('d')))\n"
        "print(*jax.jit(mapped)(jnp.arange(3.0)))\n"
        "print(jax.grad(lambda x: mapped(x)[0].sum())(jnp.ones(2)))\n"
    )
    assert out.split("\n")[:2] == ["[0. 1. 2.] [0. 1. 2.]", "[1. 1.]"]


def test_lax_refuses_what_jax_refuses():
    out = aliased(
        "import jax.numpy as jnp\n"
        "from jax import lax\n"
        "x, i, h = jnp.arange(3.0), jnp.arange(3), jnp.ones(3, 'bfloat16')\n"
        "image = jnp.ones((1, 1, 4, 4))\n"
        "for bad in ('lax.pow(i, x)', 'lax.pow(x, h)', 'lax.select(x > 0, x, i)',\n"
        "            'lax.select(x > 0, x, 0.0)', 'lax.select_n(i[:2] > 0, x, x)',\n"
        "            'lax.clamp(0, x, 1)', 'lax.concatenate([x, i], 0)',\n"
        "            'lax.pad(x, 0, [(1, 1, 0)])', 'lax.complex(x, i)', 'lax.igamma(x, i)',\n"
        "            'lax.betainc(a=x, b=x, x=i)', 'lax.real(x)', 'lax.conj(i)',\n"
        "            'lax.zeta(x, q=i)', 'lax.conv(image, i[:, None, None, None], (1, 1), [])'):\n"
        "    try:\n"
        "        print(bad, eval(bad))\n"
        "    except TypeError as error:\n"
        "        print(type(error).__name__)\n"
        "print(lax.pow(x, i), lax.pow(x, 2), lax.select(True, x, x), lax.clamp(0.0, x, 1.0),\n"
        "      lax.pad(x, 0.0, [(1, 0, 0)]), lax.concatenate([x, x], 0)[3:],\n"
        "      lax.igamma(x, 1.0)[0],\n"
        "      lax.complex(x, x)[1], lax.select_n(x > 1, x, -x))\n"
    )
    *errors, good = out.strip().split("\n")
    assert errors == [
        *("TypeMismatch",) * 3,
        *("ShapeError",) * 2,
        *("TypeMismatch",) * 10,
    ]
    assert good == (
        "[1. 1. 4.] [0. 1. 4.] [0. 1. 2.] [0. 1. 1.] [0. 0. 1. 2.] [0. 1. 2.] 1.0 (1+1j) "
        "[ 0.  1. -2.]"
    )


def test_lax_converts_and_broadcasts_nothing():
    out = aliased(
        "import jax.numpy as jnp, numpy as np\n"
        "from jax import lax\n"
        "x = jnp.arange(3.0)\n"
        "for bad in ('lax.add(1, 1.0)', 'lax.mul(x, 1)', 'lax.lt(x, jnp.arange(3))',\n"
        "            'lax.max(x.astype(jnp.bfloat16), 1.0)', 'lax.sin(1)',\n"
        "            'lax.sqrt(jnp.arange(3))', 'lax.add(x, jnp.ones((2, 3)))',\n"
        "            'lax.atan2(1, 2)', 'lax.add(x=x, y=1)'):\n"
        "    try:\n"
        "        print(bad, eval(bad))\n"
        "    except TypeError as error:\n"
        "        print(error)\n"
        "print(lax.add(x, 1.0), lax.mul(x, np.float64(2)), lax.sin(x)[0], lax.neg(1),\n"
        "      lax.add(1, 1))\n"
        "print(lax.reduce(x, 0.0, lax.add, (0,)), lax.add(x, jnp.ones((1,))))\n"
        "import pickle; print(pickle.loads(pickle.dumps(lax.max)) is lax.max)\n"
    )
    lines = out.strip().split("\n")
    assert [line.split(":")[0] for line in lines[:9]] == [
        *("lax.add", "lax.mul", "lax.lt", "lax.max", "lax.sin", "lax.sqrt"),
        *("lax.add", "lax.atan2", "lax.add"),
    ]
    assert "dtypes int32 and float32; lax converts nothing" in lines[0]
    assert "shapes (3,) and (2, 3)" in lines[6]
    assert lines[9:] == ["[1. 2. 3.] [0. 2. 4.] 0.0 -1 2", "3.0 [1. 2. 3.]", "True"]


def test_what_jax_tells_of_types_is_told():
    out = aliased(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "print(repr(jnp.asarray(2)), repr(jnp.float32(2)), repr(jax.jit(lambda x: -x)(1)))\n"
        "print(jnp.promote_types(np.uint8, int), jnp.promote_types(jnp.bfloat16, float),\n"
        "      jnp.promote_types(np.int32, np.int64), jnp.result_type(np.uint8, int))\n"
        "try:\n"
        "    with jax.numpy_dtype_promotion('strict'): jnp.float32(1) + jnp.int32(1)\n"
        "except ValueError as error: print(isinstance(error, jax.dtypes.TypePromotionError))\n"
        "print(jax.lax.Precision('highest').name, jax.lax.Precision(None).name)\n"
        "print(hasattr(jax.checkpoint_policies, 'xyz'), jax.config.jax_scan3)\n"
        "print(f'{jnp.float32(0.1)} {jnp.float32(0.1):.2f} {jnp.arange(2)}')\n"
    )
    assert out.strip().split("\n") == [
        "Array(2, dtype=int32, weak_type=True) Array(2., dtype=float32) "
        "Array(-1, dtype=int32, weak_type=True)",
        "uint8 bfloat16 int64 uint8",
        "True",
        "HIGHEST DEFAULT",
        "False False",
        "0.10000000149011612 0.10 [0 1]",
    ]


def test_arrays_say_where_they_were_put():
    out = aliased(
        "import gc, jax, jax.numpy as jnp, numpy as np\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "mesh = jax.make_mesh((1,), ('x',))\n"
        "place = NamedSharding(mesh, P('x'), memory_kind='pinned_host')\n"
        "a = jax.device_put(np.arange(2.0), place)\n"
        "print(a.sharding == place, a.sharding.memory_kind, a.committed, jnp.ones(1).committed)\n"
        "print(place == place.with_memory_kind('device'), place.update(spec=P()).memory_kind)\n"
        "both = jax.device_put({'a': 1.0, 'b': np.ones(2)}, {'a': place, 'b': jax.devices()[0]})\n"
        "print(both['a'].sharding.mesh == mesh, both['b'].committed, jnp.ones(1).sharding)\n"
        "(shard,) = a.addressable_shards\n"
        "print(shard.data is a, [m.kind for m in jax.devices()[0].addressable_memories()])\n"
        "from fxad.api import ported; n = len(ported._devices)\n"
        "del a, shard; gc.collect(); print(n - len(ported._devices))\n"
        "x = jnp.ones(2)\n"
        "y, z = jax.device_put(x, place), jax.device_put(x, jax.devices()[0])\n"
        "jax.jit(lambda v: v + 1, donate_argnums=0)(y)\n"
        "print(x.committed, y.sharding == place, z.sharding == place, (x + z).tolist())\n"
        "many = jax.device_put({'a': [x, x]}, {'a': place})\n"
        "print(many['a'][1].sharding == place)\n"
        "try: jax.device_put(x, object())\n"
        "except ValueError as error: print(str(error)[:47])\n"
        "print(jax.make_mesh((1,), 'batch') == jax.make_mesh((1,), ('batch',)))\n"
        "try: jax.make_array_from_callback((3,), place, lambda index: np.ones(2))\n"
        "except ValueError as error: print(str(error)[:36])\n"
        "data = jax.make_array_from_process_local_data(place, np.ones(2))\n"
        "print(data.sharding == place)\n"
        "try: NamedSharding(mesh, P(), memory_kind='hbm')\n"
        "except ValueError as error: print(error)\n"
    )
    assert out.strip().split("\n") == [
        "True pinned_host True False",
        "False pinned_host",
        "True True SingleDeviceSharding(device=cpu:0, memory_kind=device)",
        "True ['device', 'pinned_host', 'unpinned_host']",
        "1",
        "False True False [2.0, 2.0]",
        "True",
        "device_put: expected a device or a sharding, go",
        "True",
        "the part of the only process has sha",
        "True",
        "memory kind 'hbm': the CPU has device, pinned_host, unpinned_host (<string>:28)",
    ]


def test_what_needs_nothing_done_here_is_accepted():
    out = aliased(
        "import jax, jax.numpy as jnp\n"
        "from jax.experimental.xla_metadata import set_xla_metadata\n"
        "@set_xla_metadata(late=1)\n"
        "def f(x):\n"
        "    with set_xla_metadata(early=1):\n"
        "        return set_xla_metadata(x @ x, name='y').sum()\n"
        "x = jnp.eye(2)\n"
        "forward, backward = jax.fwd_and_bwd(f, argnums=0)\n"
        "y, pullback = forward(x)\n"
        "print(y, backward(pullback, 1.0).tolist() == jax.grad(f)(x).tolist())\n"
        "forward, backward = jax.fwd_and_bwd(lambda x, w: (x @ w, w), (1,), has_aux=True)\n"
        "y, pullback, aux = forward(x, x + 1)\n"
        "print(y.shape, [v.shape for v in backward(pullback, y)], aux.shape)\n"
        "jax.profiler.ProfileOptions().host_tracer_level = 1\n"
        "struct = jax.ShapeDtypeStruct((), 'int32')\n"
        "print(jax.jit(lambda k, x: x, static_argnums=0).trace(struct, struct).out_info)\n"
        "print(jax.jit(lambda x: x * 2).eval_shape(struct))\n"
        "memory = jax.jit(lambda x: x * 2).lower(x).compile().memory_analysis()\n"
        "print(memory.argument_size_in_bytes, memory.output_size_in_bytes, memory['arena_bytes'])\n"
    )
    assert out.strip().split("\n") == [
        "2.0 True",
        "(2, 2) [(2, 2)] (2, 2)",
        *["ShapeDtypeStruct(shape=(), dtype=int32)"] * 2,
        "16 16 0",
    ]


def test_callbacks_take_lanes_where_they_are_told_how():
    out = aliased(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jax.experimental import io_callback\n"
        "x = jnp.arange(3)\n"
        "def called(**how): return lambda x: jax.pure_callback(np.asarray, x, x, **how)\n"
        "def ordered(x): return io_callback(np.asarray, x, x, ordered=True)\n"
        "for f in (called(), ordered, jax.jit(called())):\n"
        "    try: print(jax.vmap(f)(x))\n"
        "    except (NotImplementedError, ValueError) as error: print(error)\n"
        "    print(f(x))\n"
        "print(jax.vmap(called(vmap_method='sequential'))(x))\n"
    )
    first, *rest = out.strip().split("\n")
    assert "vmap of the callback asarray: choose how with pure_callback(..., vmap_method=" in first
    assert "an ordered io_callback cannot be mapped" in rest[1]
    assert [rest[0], rest[2], rest[4], rest[5]] == ["[0 1 2]"] * 4


def test_jaxs_settings_of_the_cache_are_fxads(tmp_path):
    out = aliased(
        "import jax, fxad\n"
        f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'one')!r})\n"
        "print(fxad.config.cache_dir == jax.config.jax_compilation_cache_dir)\n"
        "from jax.experimental.compilation_cache import compilation_cache as cc\n"
        f"cc.set_cache_dir({str(tmp_path / 'two')!r})\n"
        "print(fxad.config.cache_dir.endswith('two'))\n"
        "cc.reset_cache(); jax.config.update('jax_enable_compilation_cache', False)\n"
        "print(fxad.config.cache_dir.endswith('two'), fxad.config.cache)\n"
    )
    assert out.strip().split("\n") == ["True", "True", "True False"]


def test_settings_from_the_environment_have_the_type_of_their_default(monkeypatch):
    monkeypatch.setenv("JAX_LOG_COMPILES", "perhaps")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    out = run(
        "import fxad.as_jax; fxad.as_jax.install()\n"
        "import jax; c = jax.config\n"
        "print(repr(c.jax_log_compiles), repr(c.jax_num_cpu_devices),\n"
        "      repr(c.jax_persistent_cache_min_compile_time_secs))\n"
    )
    assert out.strip() == "'perhaps' 8 0.0"
