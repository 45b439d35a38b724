"""Plans built by hand for the tests of the native runtime: kernels of one line, numbered slots."""

from collections.abc import Callable

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir import kernel as k
from fxad.ir.plan import Plan, Slot

F32, F64, I32, BOOL = map(np.dtype, ("float32", "float64", "int32", "bool"))


def elementwise(
    build: Callable[..., k.Expr], inputs: list[np.dtype], output: np.dtype, n: int, scalars: int = 0
) -> k.Kernel:
    """out[i] = build(x[i], ..., scalars...)."""
    axis = k.Axis("i", n)
    sources = [k.Buffer(f"x{number}", dtype, n, "in") for number, dtype in enumerate(inputs)]
    target = k.Buffer("y", output, n, "out")
    given = tuple(k.Scalar(f"a{number}", output) for number in range(scalars))
    loads = [k.Load(source, k.at(axis)) for source in sources]
    store = k.Store(target, k.at(axis), build(*loads, *map(k.Param, given)))
    return k.Kernel("test", (*sources, target), given, (axis,), (k.Map((), (store,)),))


def prim(name: str, *args: k.Expr) -> k.Expr:
    return k.Prim(name, args, BOOL if name == "lt" else args[-1].dtype)


def add(n: int = 8, dtype: np.dtype = F32) -> k.Kernel:
    return elementwise(lambda a, b: prim("add", a, b), [dtype, dtype], dtype, n)


def scale(n: int = 8, dtype: np.dtype = F32) -> k.Kernel:
    """y = x * a0 + a1."""
    body = lambda x, a, b: prim("add", prim("mul", x, a), b)  # noqa: E731
    return elementwise(body, [dtype], dtype, n, scalars=2)


def less(dtype: np.dtype = I32) -> k.Kernel:
    return elementwise(lambda a, b: prim("lt", a, b), [dtype, dtype], BOOL, 1)


class Slots:
    """Numbers slots as a planner would."""

    def __init__(self) -> None:
        self.all: list[Slot] = []
        self.arena = 0

    def _slot(self, place: str, dtype: np.dtype, shape: tuple[int, ...], offset: int = 0) -> Slot:
        number = sum(1 for slot in self.all if slot.place == place)
        slot = Slot(len(self.all), ArrayType(dtype, shape), place, number, offset)
        self.all.append(slot)
        return slot

    def argument(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("argument", dtype, shape)

    def result(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("result", dtype, shape)

    def constant(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("constant", dtype, shape)

    def view(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        return self._slot("view", dtype, shape)

    def temporary(self, *shape: int, dtype: np.dtype = F32) -> Slot:
        slot = self._slot("arena", dtype, shape, self.arena)
        self.arena += -(-slot.type.nbytes // 64) * 64
        return slot

    def plan(self, steps: list, results: list[Slot], constants: tuple = (), **donated: int) -> Plan:
        given = {int(result[1:]): argument for result, argument in donated.items()}
        return Plan(tuple(self.all), tuple(steps), constants, tuple(results), self.arena, given)


def arange(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
