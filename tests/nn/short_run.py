"""Training runs of a few steps on a tiny model, for tests of what surrounds them.

result = train(options(tmp_path, text), At(4, lambda: signal.raise_signal(signal.SIGINT)))
same_as_unbroken(tmp_path, text, train(resumed_options(tmp_path / "run")))
"""

import numpy as np

from fxad_nn.recipe import recipe
from fxad_nn.spec import named_leaves
from fxad_nn.train import Listener, train


def options(tmp_path, text, **more):
    given = {"steps": 8, "warmup": 2, "batch": 4, "log_every": 2, "eval_every": 4, "peak": 100.0}
    given |= {"data": text, "out": tmp_path / "run", "learning_rate": 1e-2} | more
    return recipe("tiny", **given)


class At(Listener):
    """Does something when a step is reported, and remembers the warnings."""

    def __init__(self, step, action):
        self.step, self.action, self.warnings = step, action, []

    def progressed(self, progress):
        if progress.step == self.step:
            self.action()

    def warned(self, message):
        self.warnings.append(message)


def same_as_unbroken(tmp_path, text, result, **more):
    """Whether a run ended like one that nothing happened to."""
    whole = train(options(tmp_path, text, out=tmp_path / "whole", **more))
    assert result.run.history == whole.run.history
    for (name, left), (_, right) in zip(
        named_leaves(whole.run.params), named_leaves(result.run.params), strict=True
    ):
        np.testing.assert_array_equal(left, right, err_msg=name)
