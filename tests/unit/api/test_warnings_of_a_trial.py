"""Warnings of a trial in several runs of one process."""

import warnings

from torch import nn

from tests.unit.api.test_trainer import Critic, trainer


class Bounded(Critic):
    def forward(self, point, frames):
        return nn.functional.sigmoid(super().forward(point, frames))


def test_each_run_of_a_process_warns_once(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for name in ("first", "second"):
            trainer(tmp_path / name, d=Bounded, terms=()).run()
    assert sum("sigmoid" in str(warning.message) for warning in caught) == 2
