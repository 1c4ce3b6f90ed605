"""What tests of stopped examples share: where a run is killed, and all that its newest checkpoint holds."""

import subprocess
import sys
from pathlib import Path

import torch

from paragan.checkpoint.writer import CheckpointWriter
from tests.processes import environment

CHILD = Path(__file__).parent / "killed_example.py"


class Killed(BaseException):
    """Ends a run without a word."""


def killed_at(made, position, batch):
    """Let the run of a trainer end where it reads this batch."""
    fetch = made.source.fetch

    def killing(indices, places=None, seed=0):
        if places is not None and places[0] // batch == position:
            raise Killed
        return fetch(indices, places, seed)

    made.source.fetch = killing
    return made


def tensors_of(folder):
    """All tensors of the newest checkpoint: weights, optimisers, counters."""
    found = CheckpointWriter(folder=folder / "checkpoints").newest()
    return {f"{group}/{name}": value for group, held in found.groups.items() for name, value in dict(held).items()}


def assert_equal_runs(first, second):
    expected = tensors_of(first)
    found = tensors_of(second)
    assert expected.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def train_in_processes(name, folder, steps, position, ranks=1):
    """Train an example; the process is killed where it reads this batch, 0: never."""
    launch = [sys.executable]
    if ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    words = [*launch, str(CHILD), name, str(folder), str(steps), str(position)]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=200, check=False)


def assert_killed_is_straight(name, folder, steps, positions, ranks=1):
    """A run that is killed at some steps, each time resumed, ends with the bits of an uninterrupted one."""
    straight = train_in_processes(name, folder / "straight", steps, 0, ranks)
    assert straight.returncode == 0, straight.stderr
    for position in positions:
        assert train_in_processes(name, folder / "killed", steps, position, ranks).returncode != 0
    last = train_in_processes(name, folder / "killed", steps, 0, ranks)
    assert last.returncode == 0, last.stderr
    assert "resuming at step" in last.stdout
    assert_equal_runs(folder / "straight", folder / "killed")
