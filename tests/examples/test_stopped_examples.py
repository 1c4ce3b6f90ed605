"""Examples that are stopped at three steps, in this process or by a kill, are uninterrupted ones bit for bit."""

import random

import pytest

from tests.examples.stopped_runs import Killed, assert_equal_runs, assert_killed_is_straight, killed_at
from tests.marks import slow

STEPS = 12
KILLED_AT = sorted(random.Random(20261125).sample(range(2, STEPS), 3))
SMALL = {"train.batch": 4, "train.kimg": STEPS * 4 / 1000, "every.save_kimg": 0.016}
EXAMPLES = {"cyclegan": {"steps": 1}, "dmd2": {"updates": 2}, "tabular": {}, "vqgan": {"steps": 1}}


@pytest.mark.parametrize("name", [*list(EXAMPLES)[:-1], slow("vqgan")])
def test_interrupted_run_equals_the_uninterrupted_one(example, name, tmp_path):
    def trainer(folder):
        return example(name).trainer(out=tmp_path / folder, settings=SMALL, **EXAMPLES[name])

    trainer("straight").run()
    for position in KILLED_AT:
        with pytest.raises(Killed):
            killed_at(trainer("killed"), position, batch=4).run()
    trainer("killed").run()
    assert_equal_runs(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", [*EXAMPLES, "vocoder"])
def test_killed_run_equals_the_uninterrupted_one(name, ranks, tmp_path):
    assert_killed_is_straight(name, tmp_path, STEPS, KILLED_AT, ranks)
