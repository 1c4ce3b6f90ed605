"""The record of a resumed run, whose first lines have the numbers of turns and penalties that were not due there."""

import pytest

from tests.unit.api.test_trainer import BATCH, TINY, trainer

STEPS = 6
LATER = {"train.kimg": 2 * STEPS * BATCH / 1000}
KINDS = {  # with a number of a turn or penalty that the first step after the resume does not have
    "D trains at some steps": ({"d.update_probability": 0.2}, "d/loss/adversarial"),
    "a lazy penalty": ({"penalties": [{"name": "r1", "interval": 4}]}, "d/loss/r1"),
    "steps without D": ({"scheme": {"name": "skipping", "every": 2}}, "d/loss/adversarial"),
    "steps without D, of three": ({"scheme": {"name": "skipping", "every": 3}}, "d/loss/adversarial"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_after_a_resume_are_those_of_an_unbroken_run(tmp_path, kind):
    options, absent = KINDS[kind]
    settings = {**TINY, **options}
    whole = trainer(tmp_path / "whole", settings={**settings, **LATER}).run()
    first_half = trainer(tmp_path / "halves", settings=settings).run()
    stop = len(first_half.history)
    halves = first_half.resume(LATER)
    expected, found = ([numbers(line) for line in run.history] for run in (whole, halves))
    assert found == expected
    assert found[stop][absent] == found[stop - 1][absent]  # not of a turn at this step, or nothing would be tested


def numbers(line):
    return {name: value for name, value in line.items() if name.startswith(("d/", "g/"))}
