"""PTX of a kernel without a GPU: numba-cuda and the toolkit's wheels are enough.

    print(compile_to_ptx(kernel, cc=(9, 0)))

Needs (`pip install fxad[cuda]`): numba-cuda, and cuda-toolkit[cccl,cudart,nvrtc,nvvm] and
nvidia-nvjitlink of one version. The tests have its assembler, ptxas (nvcc), check what is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import patch

from fxad.backend.numba import formats
from fxad.backend.numba.compile import python_function
from fxad.backend.numba.emit import emit
from fxad.backend.numba.library import simulated
from fxad.core import dtypes
from fxad.ir.kernel import Kernel

_lock = threading.Lock()


def toolkit_problem() -> str | None:
    """Why PTX cannot be made here, or None: a missing package, or the simulator is on."""
    if find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: pip install 'fxad[cuda]'"
    from numba import cuda

    if simulated():
        return "NUMBA_ENABLE_CUDASIM is set: numba simulates CUDA and makes no code"
    try:
        cuda.compile_ptx(_nothing, (), cc=(9, 0))
    except Exception as error:
        # The loaders raise their own classes; whatever it is, no code can be made.
        return f"{type(error).__name__}: {error}"
    return None


def _nothing() -> None:
    return


def compile_to_ptx(kernel: Kernel, cc: tuple[int, int] = (9, 0)) -> str:
    """PTX of one kernel for compute capability `cc`."""
    from numba import cuda, from_dtype, types

    emitted = emit(kernel, "cuda")
    arrays = [formats.storage(b.dtype) for b in kernel.buffers]
    arrays_after = [dtype for dtype, _ in emitted.scratch]
    scalars = [
        types.boolean if dtypes.is_bool(s.dtype) else from_dtype(formats.carrier(s.dtype))
        for s in kernel.scalars
    ]
    signature = (
        *(from_dtype(d)[::1] for d in arrays),
        *scalars,
        *(from_dtype(d)[::1] for d in arrays_after),
    )
    function = python_function(emitted.source, "cuda", cc)
    with _as_if_on(cc):
        text, _ = cuda.compile_ptx(function, signature, cc=cc)
    return text


@contextmanager
def _as_if_on(cc: tuple[int, int]) -> Iterator[None]:
    """Device functions compile for `cc`.

    numba-cuda lets one choose it for a kernel, but asks the driver for the functions that the
    kernel calls, and without a GPU there is none to ask.
    """
    dispatcher = import_module("numba.cuda.dispatcher")
    device = SimpleNamespace(compute_capability=cc)
    with _lock, patch.object(dispatcher, "get_current_device", lambda: device):
        yield
