"""A run that reads its batches ahead is the run that does not, bit for bit, and leaves no thread behind."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.engine.training_loop import TrainingLoop
from paragan.extensions.grid.build import trainer as grid
from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline

SMALL = ("model={name: dcgan, width: 4, latent: 4}", "augment=null", "evaluation.features=null", "every.sample_kimg=0")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Twenty-four small photographs of two classes."""
    root = tmp_path_factory.mktemp("images")
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 256, (12, 15, 3), np.uint8)
        path = root / f"class-{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    return root


def words(images, steps, *more):
    data = ("data.name=folder", f"data.path={images}", "data.size=8", "data.channels=1")
    return [*data, *SMALL, "data.flip=true", "train.batch=8", f"train.kimg={steps * 8 / 1000}", *more]


def trainer(folder, *args, stop=lambda: False):
    return build.trainer(read_recipe("digits", words(*args)), folder, print, stop)


def weights(run):
    return torch.cat([p.detach().flatten() for player in run.players.values() for p in player.net.parameters()])


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("loading")]


@pytest.fixture(scope="module")
def inline(images, tmp_path_factory):
    """Weights of six steps without reading ahead."""
    run = trainer(tmp_path_factory.mktemp("inline"), images, 6, "loading.prefetch=0")
    assert isinstance(run.batches, Loader)
    list(run.run())
    return weights(run)


@pytest.mark.parametrize(
    "how", [(), ("loading.threads=1",), ("loading.prefetch=1",), ("loading.prefetch=5", "loading.threads=4")]
)
def test_prefetch_has_the_weights_of_a_run_without(inline, images, tmp_path, how):
    run = trainer(tmp_path, images, 6, *how)
    assert isinstance(run.batches, Pipeline)
    list(run.run())
    assert torch.equal(weights(run), inline)
    assert not threads()


def test_resume_continues_after_the_batch_that_was_consumed(inline, images, tmp_path):
    list(trainer(tmp_path, images, 2, "loading.prefetch=4", "loading.threads=3").run())
    resumed = trainer(tmp_path, images, 6, "loading.prefetch=2")
    assert resumed.resume() and resumed.batches.position == 2
    list(resumed.run())
    assert torch.equal(weights(resumed), inline)


def test_a_stopped_run_leaves_no_thread(images, tmp_path):
    steps = iter(range(3))
    run = trainer(tmp_path, images, 50, stop=lambda: next(steps, None) is None)
    list(run.run())
    assert run.clock.step == 3 and not threads()


def test_an_interrupted_run_leaves_no_thread(images, tmp_path, monkeypatch):
    log_step = TrainingLoop._log_step

    def interrupted(self, report):
        if report.step == 2:
            assert threads()
            raise KeyboardInterrupt
        return log_step(self, report)

    monkeypatch.setattr(TrainingLoop, "_log_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pg.train(read_recipe("digits", words(images, 50)), out=tmp_path / "run")
    assert not threads()


def test_data_in_memory_is_not_read_ahead_unless_requested(tmp_path):
    settings = ["data.size=8", "train.batch=16", *SMALL]
    plain, ahead = (
        build.trainer(read_recipe("digits", [*settings, *more]), tmp_path, print, lambda: False)
        for more in ((), ("loading.prefetch=3",))
    )
    assert isinstance(plain.batches, Loader) and isinstance(ahead.batches, Pipeline)
    assert torch.equal(next(plain.batches).image, next(ahead.batches).image)
    ahead.batches.close()


@pytest.mark.parametrize("executor", ["loop", "stacked"])
def test_a_grid_reads_ahead_if_requested(tmp_path, executor):
    settings = ["grid.shape=1x2", f"grid.executor={executor}", "grid.batches=2", "train.kimg=0.064", "data.size=8"]
    settings += [
        "model={name: mlp, g_widths: [8], d_widths: [8], latent: 4}",
        "train.batch=8",
        "evaluation.features=null",
    ]
    plain, ahead = (
        grid.evolution(
            read_recipe("cellular-mnist", [*settings, "data.name=digits", *more]),
            tmp_path / str(n),
            print,
            lambda: False,
        )
        for n, more in enumerate(((), ("loading.prefetch=2",)))
    )
    assert isinstance(ahead.population.cells[0].batches, Pipeline)
    for run in (plain, ahead):
        list(run.run())
        run.population.release_workers()
    for one, other in zip(plain.population.cells, ahead.population.cells, strict=True):
        assert torch.equal(weights(one), weights(other))
    assert not threads()
