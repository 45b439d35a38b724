"""`check_grads`: are the derivatives of a function those of its values?

    fxad.check_grads(loss, (w, x), order=2)

Forward mode is compared with central differences along a random direction, reverse mode with the
same differences through <ct, J t> = <J^T ct, t>. Higher orders check the derivative functions the
same way, in every nesting of the modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api.autodiff import jvp, vjp
from fxad.api.flat import flatten_args, name_of
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, GradientError, TypeMismatch
from fxad.trace.array import Array
from fxad.trace.convert import to_value
from fxad.trace.execute import concrete

MODES = ("fwd", "rev")
# Central differences of step h err by h^2 (truncation) and eps/h (rounding): h = eps^(1/3).
_STEP = {2: 0.125, 4: 5e-3, 8: 5e-6}
_MOVED = 64  # squared length of a direction, at most: many elements move less each
_TOLERANCE = {2: 0.2, 4: 1e-2, 8: 1e-6}  # of the derivative's size; per order, see `_Checker`


def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: str | Sequence[str] = MODES,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    seed: int = 0,
) -> None:
    """Raise GradientError if a derivative of `function` at `args` up to `order` is wrong.

    args: a tuple of pytrees; leaves that are not floats or complex are held fixed. modes: "fwd",
    "rev" or both. eps: the step of the differences, atol and rtol: the accepted error (defaults
    go by the narrowest dtype; float64, under `fxad.enable_x64()`, is by far the sharpest). The
    function must be smooth at `args`, its backward rules linear in the cotangent. The error names
    the argument whose derivative is furthest off. Raises BadArgument for unknown modes or an order
    below 1, TypeMismatch if nothing in `args` can be differentiated.

    >>> fxad.check_grads(jnp.sin, (0.5,), order=2)
    """
    chosen = (modes,) if isinstance(modes, str) else tuple(modes)
    unknown = [m for m in chosen if m not in MODES]
    if unknown or not chosen:
        raise BadArgument(f"check_grads: modes must be among {MODES}, got {modes!r}")
    if order < 1:
        raise BadArgument(f"check_grads: order must be at least 1, got {order}")
    if not isinstance(args, tuple | list):
        raise TypeMismatch(f"check_grads: args must be a tuple, got {type(args).__name__}")
    checker = _given(args, atol, rtol, eps, seed)
    checker.check(function, tuple(args), order, chosen, name_of(function))


def _given(
    args: Sequence[Any], atol: float | None, rtol: float | None, eps: float | None, seed: int = 0
) -> _Checker:
    """A checker with the step and the tolerances that go with the narrowest dtype."""
    leaves, _ = flatten_args(tuple(args), "check_grads")
    sizes = [_real_size(v.dtype) for v in leaves if dt.is_differentiable(v.dtype)]
    if not sizes:
        raise TypeMismatch("check_grads: no argument is a float or complex array")
    size = min(sizes)
    return _Checker(
        eps or _STEP[size],
        _TOLERANCE[size] if atol is None else atol,
        _TOLERANCE[size] if rtol is None else rtol,
        np.random.default_rng(seed),
    )


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[[Any, Any], Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Raise GradientError if f_jvp(args, tangents) is not (f(*args), its derivative along them).

    The other arguments are those of `check_grads`; err_msg begins the error.
    """
    checker = _given(args, atol, rtol, eps)
    checker.jvp = lambda function, primals, tangents: f_jvp(tuple(primals), tuple(tangents))
    checker.check(f, tuple(args), 1, ("fwd",), name_of(f), err_msg)


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Raise GradientError if f_vjp(*args) is not f(*args) and a function from a cotangent of it to
    one of each argument. See `check_jvp`."""
    checker = _given(args, atol, rtol, eps)
    checker.vjp = lambda function, *primals: f_vjp(*primals)
    checker.check(f, tuple(args), 1, ("rev",), name_of(f), err_msg)


def _real_size(dtype: np.dtype) -> int:
    return dtype.itemsize // (2 if dt.is_complex(dtype) else 1)


class _Checker:
    """Step, tolerances and random draws of one call; `check` recurses over the orders."""

    def __init__(self, eps: float, atol: float, rtol: float, random: np.random.Generator) -> None:
        self.eps = eps
        self.atol = atol
        self.rtol = rtol
        self.random = random
        self.scale = 1.0  # of the directions drawn
        self.jvp: Callable[..., Any] = jvp  # what is checked
        self.vjp: Callable[..., Any] = vjp

    def check(
        self,
        function: Callable[..., Any],
        args: tuple,
        order: int,
        modes: Sequence[str],
        name: str,
        said: str = "",
    ) -> None:
        self.said = f"{said}: " if said else ""
        direction = self._direction(args)
        slope = self._difference(function, args, direction)
        if "fwd" in modes:
            self._forward(function, args, direction, slope, f"jvp({name})")
        if "rev" in modes:
            self._reverse(function, args, direction, slope, f"vjp({name})")
        if order == 1:
            return
        for mode in modes:
            derived, what = self._derivative(function, args, mode, name)
            self.check(derived, args, order - 1, modes, what)

    def _derivative(
        self, function: Callable[..., Any], args: tuple, mode: str, name: str
    ) -> tuple[Callable[..., Any], str]:
        """The first derivative along a fixed direction, as a function of the arguments."""
        if mode == "fwd":
            tangents = self._direction(args)
            return lambda *xs: jvp(function, xs, tangents)[1], f"jvp({name})"
        cotangent = self._cotangent(function(*args))
        return lambda *xs: _moving(vjp(function, *xs)[1](cotangent)), f"vjp({name})"

    # ------------------------------------------------------------ the two comparisons

    def _forward(
        self, function: Callable[..., Any], args: tuple, direction: Any, slope: Any, what: str
    ) -> None:
        found = _arrays(self.jvp(function, args, direction)[1])
        for number, (got, wanted) in enumerate(zip(found, slope, strict=True)):
            error = self._excess(got, wanted)
            if error is not None:
                culprit = self._culprit(
                    args, direction, lambda t: self._forward_error(function, args, t)
                )
                path = _path(function(*args), number)
                raise GradientError(
                    f"{self.said}check_grads: {what} is wrong: the tangent of result{path} is off "
                    f"by {error:.3g} from differences of size {_size(wanted):.3g}{culprit}"
                )

    def _forward_error(self, function: Callable[..., Any], args: tuple, direction: Any) -> float:
        found = _arrays(self.jvp(function, args, direction)[1])
        wanted = self._difference(function, args, direction)
        return max(
            (self._excess(g, w) or 0.0 for g, w in zip(found, wanted, strict=True)), default=0
        )

    def _reverse(
        self, function: Callable[..., Any], args: tuple, direction: Any, slope: Any, what: str
    ) -> None:
        out, pullback = self.vjp(function, *args)
        cotangent = self._cotangent(out)
        back = _arrays(pullback(cotangent))
        weights = _arrays(cotangent)

        def error_along(tangent: Any, differences: Sequence[np.ndarray]) -> float | None:
            forward = [_pair(c, d) for c, d in zip(weights, differences, strict=True)]
            backward = [_pair(b, t) for b, t in zip(back, _arrays(tangent), strict=True)]
            scale = sum(n for _, n in forward) + sum(n for _, n in backward)
            error = abs(sum(s for s, _ in forward) - sum(s for s, _ in backward))
            return error if not error <= self.scale * self.atol + self.rtol * scale else None

        error = error_along(direction, slope)
        if error is not None:
            culprit = self._culprit(
                args,
                direction,
                lambda t: error_along(t, self._difference(function, args, t)) or 0.0,
            )
            raise GradientError(
                f"{self.said}check_grads: {what} is wrong: <ct, J t> and <J^T ct, t> differ by "
                f"{error:.3g}{culprit}"
            )

    def _excess(self, got: np.ndarray, wanted: np.ndarray) -> float | None:
        """The largest error if it is not within the tolerances (NaN is not)."""
        if got.size == 0:
            return None
        error = float(np.abs(got - wanted).max())
        return error if not error <= self.scale * self.atol + self.rtol * _size(wanted) else None

    def _culprit(self, args: tuple, direction: Any, error: Callable[[Any], float]) -> str:
        """Which argument leaf's own derivative is furthest off."""
        leaves, tree = pytree.flatten(direction)
        worst, name = 0.0, ""
        for number, leaf in enumerate(leaves):
            if dt.is_float0(leaf):
                continue
            alone = [v if i == number else np.zeros_like(v) for i, v in enumerate(leaves)]
            found = error(tree.unflatten(alone))
            if not found <= worst:
                worst, name = found, _path(args, number)
        return f"; along argument{name} alone by {worst:.3g}" if name else ""

    # ------------------------------------------------------------ directions and differences

    def _direction(self, args: tuple) -> Any:
        """A random direction of the arguments, short enough that differences stay differences."""
        self.scale = min(1.0, (_MOVED / max(1, sum(v.size for v in _moving(args)))) ** 0.5)
        drawn = self._draw(args)
        return pytree.map(
            lambda d: d if dt.is_float0(d) else (d * self.scale).astype(d.dtype), drawn
        )

    def _cotangent(self, out: Any) -> Any:
        """Random weights of results, none of them small: a backward rule that clips, which is not
        linear, must not hide behind a cotangent that it leaves alone."""

        def grown(drawn: np.ndarray) -> np.ndarray:
            size = np.abs(drawn)
            away = np.divide(drawn, size, out=np.ones_like(drawn), where=size != 0)
            return (drawn + 0.5 * away).astype(drawn.dtype)

        return pytree.map(lambda d: d if dt.is_float0(d) else grown(d), self._draw(out))

    def _draw(self, tree: Any) -> Any:
        """Normal numbers of the tree's shapes and dtypes; zeros for what is not differentiable."""
        leaves, structure = flatten_args(tree, "check_grads")
        return structure.unflatten([self._draw_leaf(v) for v in leaves])

    def _draw_leaf(self, leaf: Array) -> np.ndarray:
        if not dt.is_differentiable(leaf.dtype):
            return np.zeros(leaf.shape, dt.float0)
        drawn = np.asarray(self.random.standard_normal(leaf.shape))
        if dt.is_complex(leaf.dtype):
            drawn = drawn + 1j * self.random.standard_normal(leaf.shape)
        return drawn.astype(leaf.dtype)

    def _difference(self, function: Callable[..., Any], args: tuple, direction: Any) -> list:
        """(f(x + h t) - f(x - h t)) / 2h of every result leaf, as wide arrays; an infinity that
        stays has not moved."""
        high, low = (_arrays(function(*self._moved(args, direction, s))) for s in (1, -1))
        return [
            np.subtract(a, b, out=np.zeros_like(a), where=a != b) / (2 * self.eps)
            for a, b in zip(high, low, strict=True)
        ]

    def _moved(self, args: tuple, direction: Any, sign: int) -> tuple:
        leaves, structure = flatten_args(args, "check_grads")
        steps = pytree.leaves(direction)
        moved = []
        for leaf, step in zip(leaves, steps, strict=True):
            value = concrete(leaf)
            if dt.is_differentiable(value.dtype):
                value = (_wide(value) + sign * self.eps * _wide(step)).astype(value.dtype)
            moved.append(value)
        return structure.unflatten(moved)


def _moving(tree: Any) -> list[Any]:
    """The leaves that carry derivatives."""
    leaves, _ = flatten_args(tree, "check_grads")
    return [v for v in leaves if dt.is_differentiable(v.dtype)]


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.complex128 if dt.is_complex(value.dtype) else np.float64)


def _arrays(tree: Any) -> list[np.ndarray]:
    """Leaves as f64 or c128; integers and bools count as zeros, for they carry no derivative."""
    leaves = pytree.leaves(tree)
    arrays = [v if dt.is_float0(v) else concrete(to_value(v)) for v in leaves]
    return [_wide(a) if dt.is_differentiable(a.dtype) else np.zeros(a.shape) for a in arrays]


def _pair(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """The real part of the sum of products (without conjugation), and of their sizes."""
    product = first * second
    return float(np.sum(product).real), float(np.sum(np.abs(product)))


def _size(value: np.ndarray) -> float:
    return float(np.abs(value).max()) if value.size else 0.0


def _path(tree: Any, number: int) -> str:
    return pytree.keystr(pytree.leaves_with_path(tree)[number][0])
