"""Plans for runs of a program."""

from contextlib import closing

import pytest

import paragan as pg
from paragan.extensions.planning import planned_training
from paragan.extensions.planning.candidates import with_settings
from tests.unit.api.test_estimator import config
from tests.unit.api.test_scaling_manager import pair


@pytest.mark.parametrize(("batch", "d_updates"), [(8, 1), (32, 1), (8, 2)])
def test_plan_of_another_batch_leaves_the_steps_of_a_program(tmp_path, monkeypatch, batch, d_updates):
    def apply_plan(config, path, num_workers):
        return with_settings(config, {"train.batch": batch}), None

    monkeypatch.setattr(planned_training, "apply_plan", apply_plan)
    words = (f"d.updates_per_step={d_updates}", "train.kimg=0.064")
    manager = pg.ScalingManager(config(*words), 16, 1, plan=tmp_path / "plan.json", out=tmp_path / "run")
    with closing(manager):
        manager.train(pg.Estimator(*pair()))
        assert (manager.config.train.batch, manager.config.max_steps) == (batch, config(*words).max_steps)
        assert manager.trainer.images == len(config(*words).max_steps) * batch * d_updates
