"""The record of a resumed run, whose first lines have the numbers of turns and penalties that were not due there."""

import pytest
import torch

import paragan as pg
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


def test_a_number_that_is_not_finite_is_that_of_an_unbroken_run(tmp_path):
    """Of a lazy term whose last update was skipped."""

    def values(outputs, inputs):
        return outputs.images.square() * (torch.nan if inputs.rows.step == 4 else 1.0)

    term = pg.Term(name="lazy", function=values, interval=4)
    whole = trainer(tmp_path / "whole", settings={**TINY, **LATER}, terms=[term]).run()
    halves = trainer(tmp_path / "halves", settings=TINY, terms=[term]).run().resume(LATER)
    expected, found = ([repr(numbers(line)) for line in run.history] for run in (whole, halves))
    assert found == expected
    assert "nan" in found[STEPS].lower()


def numbers(line):
    return {name: value for name, value in line.items() if name.startswith(("d/", "g/"))}
