"""What runs in processes that are killed, or end as if they were (see `children`)."""

import itertools
import os
from pathlib import Path

from short_run import options

import fxad_nn
from fxad.core.config import config
from fxad_nn import store
from fxad_nn.run import resumed_options
from fxad_nn.train import Listener, train

STEPS = 25


def save_and_end_at(directory, model, size, last):
    """Save a model, and end before the change of the directory's names that has this number."""
    seen = itertools.count()

    def counted(change):
        def changed(*given, **options):
            if next(seen) == last:
                os._exit(9)
            return change(*given, **options)

        return changed

    os.replace, Path.unlink = counted(os.replace), counted(Path.unlink)
    fxad_nn.save(model, directory, max_shard_size=size)


class Saved(Listener):
    """Passes on which steps are on the disk."""

    def __init__(self, tell):
        self.tell = tell

    def saved(self, path):
        self.tell(path)


def begun(tmp_path, text, name, background=False):
    more = {"background_saves": background}
    more |= {"save_every": 1, "log_every": 1, "eval_every": 5, "keep": 2, "steps": STEPS}
    return options(tmp_path, text, out=tmp_path / name, **more)


def go_on(tmp_path, text, name, pipe, background, cache):
    """Begin the run, or resume it from its newest checkpoint; compiled code is kept in `cache` for
    the next process."""
    directory = tmp_path / name
    found = store.holds_checkpoint(directory)
    chosen = resumed_options(directory) if found else begun(tmp_path, text, name, background)
    with config.override(cache=True, cache_dir=str(cache)):
        train(chosen, Saved(lambda path: pipe.send(store.load(path, optimizer=None).step)))
