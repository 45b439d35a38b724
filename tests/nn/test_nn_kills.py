"""A run that is killed again and again, at any moment, loses nothing that it said was saved.

KILLS=200 KILLS_SEED=1 python -m pytest tests/nn/test_nn_kills.py
"""

import hashlib
import os
import random
import time

import children
import numpy as np
import pytest
from ended import STEPS, Saved, begun, go_on

from fxad_nn import store
from fxad_nn.losses import LOSSES, read_losses
from fxad_nn.run import resumed_options
from fxad_nn.spec import named_leaves
from fxad_nn.train import train

KILLS, SEED = int(os.environ.get("KILLS", "6")), int(os.environ.get("KILLS_SEED", "18"))


def digest(path):
    """What a checkpoint holds, in short; it is proved to be whole while it is loaded."""
    found, hashed = store.load(path), hashlib.sha256()
    for tree in (found.params, found.optimizer):
        for _, leaf in named_leaves(tree):
            hashed.update(np.asarray(leaf).tobytes())
    return hashed.hexdigest()


def killed(process, pipe, chance):
    """Kill a process some time after it said a few times that a step was saved; the last step it
    said, and whether it had come to its end before."""
    last, wanted = 0, chance.randrange(4)
    try:
        while wanted and pipe.poll(120):
            last, wanted = pipe.recv(), wanted - 1
        time.sleep(chance.uniform(0, 0.02 if last else 0.5))
        process.kill()
        while pipe.poll(0):
            last = pipe.recv()
    except EOFError:
        pass
    process.join()
    return last, process.exitcode == 0


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the processes of both tests find the code that the first of them compiled."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True], ids=["at-once", "background"])
def test_kills_lose_nothing(tmp_path, text, background, cache):
    wanted = {}
    whole = train(
        begun(tmp_path, text, "whole"),
        Saved(lambda path: wanted.update({int(path.name[5:]): digest(path)})),
    )
    losses = read_losses(tmp_path / "whole" / LOSSES)
    assert losses == whole.run.history and len(wanted) == STEPS
    context = children.context()
    chance, name, said, kills = random.Random(SEED), "run-0", 0, 0
    while kills < KILLS:
        ours, theirs = context.Pipe(duplex=False)
        given = (tmp_path, text, name, theirs, background, cache)
        process = context.Process(target=go_on, args=given)
        process.start()
        theirs.close()
        last, ended = killed(process, ours, chance)
        ours.close()
        kills += not ended
        said = max(said, last)
        directory = tmp_path / name
        if said:
            newest = store.latest(directory)
            step = int(newest.name[5:])
            assert step >= said
            assert digest(newest) == wanted[step], f"after {kills} kills"
            found = read_losses(directory / LOSSES)["train"]
            assert step <= len(found) and found == losses["train"][: len(found)]
        if ended or said == STEPS:
            name, said = f"run-{kills}", 0
    directory = tmp_path / name
    found = store.holds_checkpoint(directory)
    chosen = resumed_options(directory) if found else begun(tmp_path, text, name)
    assert train(chosen).run.history == losses
    assert read_losses(directory / LOSSES) == losses
