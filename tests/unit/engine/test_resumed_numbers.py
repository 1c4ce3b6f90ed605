"""The record of a resumed run, whose first lines have the numbers of turns and penalties that were not due there."""

import pytest

from tests.unit.api.test_trainer import BATCH, TINY, trainer

STEPS = 6
LATER = {"train.kimg": 2 * STEPS * BATCH / 1000}
KINDS = {
    "D trains at some steps": {"d.update_probability": 0.3},
    "a lazy penalty": {"penalties": [{"name": "r1", "interval": 4}]},
    "steps without D": {"scheme.name": "skipping"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_after_a_resume_are_those_of_an_unbroken_run(tmp_path, kind):
    settings = {**TINY, **KINDS[kind]}
    whole = trainer(tmp_path / "whole", settings={**settings, **LATER}).run()
    halves = trainer(tmp_path / "halves", settings=settings).run().resume(LATER)
    expected, found = ([numbers(line) for line in run.history] for run in (whole, halves))
    assert found == expected
    assert "d/loss/adversarial" in found[STEPS]


def numbers(line):
    return {name: value for name, value in line.items() if name.startswith(("d/", "g/"))}
