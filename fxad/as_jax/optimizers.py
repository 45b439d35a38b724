"""`jax.example_libraries.optimizers`: optimizers as three functions, which JAX's examples use.

opt_init, opt_update, get_params = momentum(1e-2, mass=0.9)
state = opt_init(params)
state = opt_update(i, grad(loss)(get_params(state)), state)

`fxad_nn.optim` is larger and faster. A schedule is a number or a function of the step's number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fxad.numpy as jnp
from fxad import tree, tree_util
from fxad.core.errors import BadArgument, ShapeError, TreeError

Array: TypeAlias = Any
Params: TypeAlias = Any  # a tree of arrays
State: TypeAlias = Any  # of the optimizer, for one array
Updates: TypeAlias = Any  # gradients: a tree like Params
Step: TypeAlias = Any
Schedule: TypeAlias = Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """The leaves of each parameter's state, the tree of parameters, and of each state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


tree_util.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda trees, children: OptimizerState(children[0], *trees),
)

InitFn: TypeAlias = Callable[[Params], OptimizerState]
UpdateFn: TypeAlias = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn: TypeAlias = Callable[[OptimizerState], Params]


class Optimizer(NamedTuple):
    """`init_fn(params)`, `update_fn(i, grads, state)` and `params_fn(state)`."""

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


def _packed(states: list[State], tree_def: Any) -> OptimizerState:
    flat = [tree.flatten(state) for state in states]
    return OptimizerState(
        tuple(leaves for leaves, _ in flat), tree_def, tuple(structure for _, structure in flat)
    )


def _unpacked(state: OptimizerState) -> list[State]:
    pairs = zip(state.subtree_defs, state.packed_state, strict=True)
    return [tree.unflatten(structure, leaves) for structure, leaves in pairs]


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """A maker of init, update and get_params for single arrays, as one for trees of them.

    The update raises TreeError for gradients of another structure, or if a state changes its own.
    """

    @functools.wraps(opt_maker)
    def of_trees(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def init_fn(params: Params) -> OptimizerState:
            leaves, structure = tree.flatten(params)
            return _packed([init(leaf) for leaf in leaves], structure)

        def update_fn(i: Step, grads: Updates, state: OptimizerState) -> OptimizerState:
            leaves, structure = tree.flatten(grads)
            if structure != state.tree_def:
                raise TreeError(
                    f"{opt_maker.__name__}: gradients {structure} are no tree like the parameters "
                    f"{state.tree_def}"
                )
            pairs = zip(leaves, _unpacked(state), strict=True)
            new = _packed([update(i, grad, own) for grad, own in pairs], structure)
            if new.subtree_defs != state.subtree_defs:
                raise TreeError(
                    f"{opt_maker.__name__}: the update changed a state's structure from "
                    f"{state.subtree_defs} to {new.subtree_defs}"
                )
            return new

        def params_fn(state: OptimizerState) -> Params:
            return tree.unflatten(state.tree_def, [get_params(own) for own in _unpacked(state)])

        return Optimizer(init_fn, update_fn, params_fn)

    return of_trees


# ---------------------------------------------------------------- optimizers of one array


def _first(state: tuple[Any, ...]) -> Any:
    return state[0]


def _zeros(count: int) -> Callable[[Any], tuple[Any, ...]]:
    """The array, and as many arrays of zeros like it."""
    return lambda x: (x, *(jnp.zeros_like(x) for _ in range(count)))


@optimizer
def sgd(step_size: Any) -> Any:
    """x - step * g."""
    step = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - step(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with a velocity, of which `mass` is kept."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step(i) * velocity, velocity

    return _zeros(1), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Momentum that looks one step ahead (Nesterov, 1983)."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step(i) * (mass * velocity + g), velocity

    return _zeros(1), update, _first


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Steps shrink with the sum of squared gradients (Duchi, Hazan, Singer, 2011)."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + g**2
        mean = (1 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        return x - step(i) * mean, squares, mean

    return _zeros(2), update, _first


def _inverse_root(x: Any) -> Any:
    """1 / sqrt(x), 0 at 0."""
    return jnp.where(x > 0, 1 / jnp.sqrt(jnp.where(x > 0, x, 1)), 0)


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Gradients divided by the root of a moving mean of their squares (Tieleman, Hinton, 2012)."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares = state
        squares = gamma * squares + (1 - gamma) * g**2
        return x - step(i) * g / jnp.sqrt(squares + eps), squares

    return _zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Any:
    """`rmsprop` with a velocity."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = gamma * squares + (1 - gamma) * g**2
        velocity = momentum * velocity + step(i) * g / jnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return _zeros(2), update, _first


def _unbiased(rate: float, i: Step, like: Any) -> Any:
    """What a moving mean that began at 0 is divided by after step i."""
    return 1 - jnp.asarray(rate, dtype=like.dtype) ** (i + 1)


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Kingma and Ba, "Adam: a method for stochastic optimization", 2015."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * g**2 + b2 * squares
        root = jnp.sqrt(squares / _unbiased(b2, i, mean))
        return x - step(i) * (mean / _unbiased(b1, i, mean)) / (root + eps), mean, squares

    return _zeros(2), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam with the largest gradient in place of squares (section 7.1 of its paper)."""
    step = make_schedule(step_size)

    def update(i: Step, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        return x - step(i) / _unbiased(b1, i, mean) * mean / (largest + eps), mean, largest

    return _zeros(2), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad whose squares are kept for each axis alone (Anil et al., "Memory-efficient adaptive
    optimization", 2019)."""
    step = make_schedule(step_size)

    def init(x: Any) -> Any:
        sizes = jnp.shape(x) or (1,)  # a number is kept as a vector of one
        return x, jnp.zeros_like(x), [jnp.zeros(size, dtype=x.dtype) for size in sizes]

    def update(i: Step, g: Any, state: Any) -> Any:
        x, mean, rows = state
        axes = range(len(rows))
        spread = [jnp.expand_dims(rows[axis], _others(len(rows), axis)) for axis in axes]
        squares = functools.reduce(jnp.minimum, spread) + jnp.atleast_1d(g) ** 2
        scaled = g * jnp.reshape(_inverse_root(squares), jnp.shape(x))
        mean = (1 - momentum) * scaled + momentum * mean
        rows = [squares.max(_others(len(rows), axis)) for axis in axes]
        return x - step(i) * mean, mean, rows

    return init, update, _first


def _others(count: int, axis: int) -> tuple[int, ...]:
    return tuple(i for i in range(count) if i != axis)


# ---------------------------------------------------------------- schedules


def constant(step_size: Any) -> Schedule:
    """The same step always."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """Times `decay_rate` in every `decay_steps`."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """Divided by 1 + decay_rate * i / decay_steps; with `staircase` by whole numbers of these."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0
) -> Schedule:
    """From step_size to final_step_size, as (1 - i / decay_steps)**power falls from 1 to 0."""

    def schedule(i: Step) -> Any:
        left = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """`values[k]` after the first k of the steps in `boundaries`. Raises ShapeError unless both are
    vectors, of which the second has one element more."""
    edges, steps = jnp.asarray(boundaries), jnp.asarray(values)
    if edges.ndim != 1 or steps.shape != (edges.size + 1,):
        raise ShapeError(
            f"piecewise_constant: needs boundaries [n] and values [n + 1], got {edges.type} and "
            f"{steps.type}"
        )
    return lambda i: steps[jnp.sum(i > edges)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule as it is, or a number as a constant one."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if np.ndim(scalar_or_schedule):
        raise BadArgument(
            f"a step size is a number or a function of the step, not {scalar_or_schedule!r}"
        )
    return constant(scalar_or_schedule)


# ---------------------------------------------------------------- gradients and states


def l2_norm(tree: Any) -> Any:
    """The root of the sum of all squares."""
    leaves = tree_util.tree_leaves(tree)
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in leaves))


def clip_grads(grad_tree: Any, max_norm: float) -> Any:
    """The tree, scaled down to `max_norm` where its `l2_norm` is larger."""
    norm = l2_norm(grad_tree)
    scale = jnp.where(norm < max_norm, 1, max_norm / norm)
    return tree.map(lambda g: g * scale, grad_tree)


class JoinPoint:
    """Where a parameter's state hangs in the tree of parameters."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The tree of parameters with a JoinPoint to the state of each, to be written to a file."""
    return tree.unflatten(opt_state.tree_def, [JoinPoint(own) for own in _unpacked(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """Inverse of `unpack_optimizer_state`."""
    points, structure = tree.flatten(marked_pytree)
    if not all(isinstance(point, JoinPoint) for point in points):
        raise TreeError("pack_optimizer_state: every leaf must be a JoinPoint")
    return _packed([point.subtree for point in points], structure)
