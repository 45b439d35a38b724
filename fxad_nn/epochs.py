"""Which examples each step takes: every one once an epoch, in an order that a seed decides.

    order = Epochs(lengths, per_step=16, seed=4)
    order.rows(37)                          # the numbers of the examples of step 37

Steps take examples of about the same length, so that little is padding: an epoch's permutation is
sorted by length within windows of some steps, and the steps are permuted again. The last step of a
window may have fewer examples. Nothing but the seed and the lengths is remembered: a resumed run
goes on in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WINDOW = 16
"""Steps whose examples are sorted together: more would mean less padding and less chance."""


class Epochs:
    """The order of examples with these lengths, `per_step` at a time."""

    def __init__(self, lengths: Sequence[int], per_step: int, seed: int) -> None:
        self._lengths, self._per_step, self._seed = np.asarray(lengths), per_step, seed
        self._epoch, self._steps = -1, list[np.ndarray]()

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        return -(-len(self._lengths) // self._per_step)

    def rows(self, step: int) -> np.ndarray:
        """The examples of a step, counted from 0 over all epochs."""
        epoch, at = divmod(step, self.steps)
        if epoch != self._epoch:
            self._epoch, self._steps = epoch, self._ordered(epoch)
        return self._steps[at]

    def _ordered(self, epoch: int) -> list[np.ndarray]:
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(len(self._lengths))
        steps = []
        for start in range(0, len(order), WINDOW * self._per_step):
            window = order[start : start + WINDOW * self._per_step]
            window = window[np.argsort(self._lengths[window], kind="stable")]
            steps += [window[i : i + self._per_step] for i in range(0, len(window), self._per_step)]
        return [steps[i] for i in random.permutation(len(steps))]
