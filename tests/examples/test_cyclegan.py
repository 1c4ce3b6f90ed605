"""Discs become squares in the other colour, where they were, and come back."""

import pytest
import torch

import paragan as pg
from tests.examples.ported_loops import distance
from tests.tiny_run import newest


@pytest.fixture(scope="module")
def cyclegan(example):
    return example("cyclegan")


@pytest.fixture(scope="module")
def trained(cyclegan, tmp_path_factory):
    run = cyclegan.trainer(150, out=tmp_path_factory.mktemp("cyclegan"), settings={"g.ema": None}).run()
    return cyclegan.translated(run.generator)


def centre(images):
    """(N, 2): where what is not grey has its weight, in pixels."""
    ink, axis = images.abs().amax(1), torch.arange(images.shape[-1], dtype=torch.float32)
    return torch.stack([(ink.sum(1) * axis).sum(1), (ink.sum(2) * axis).sum(1)], 1) / ink.sum((1, 2))[:, None]


def shades(images, where):
    """Mean of each channel, 0 to 1, over the ink of `where`."""
    ink = (where.amax(1, keepdim=True) > 0).float()
    return ((images + 1) / 2 * ink).sum((0, 2, 3)) / ink.sum()


@pytest.mark.slow
def test_cyclegan_translation_changes_the_colour_and_back(trained):
    discs, squares, back = trained
    red, _, blue = shades(squares, discs)
    assert blue > 0.6 > 0.4 > red
    red, _, blue = shades(back, discs)
    assert red > 0.6 > 0.4 > blue


@pytest.mark.slow
def test_cyclegan_translation_keeps_the_position(trained):
    discs, squares, _ = trained
    moved = (centre(discs) - centre(squares)).norm(dim=1)
    assert moved.median() < 0.5
    assert moved.max() < 1.5


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_cyclegan_equals_a_plain_loop(cyclegan, double, tmp_path, monkeypatch):
    """Stopped after three of six steps; D without spectral norm, whose vectors advance once per update."""
    monkeypatch.setattr(cyclegan.pg, "spectral_norm", lambda layer: layer)
    settings = {"train.batch": 4, "g.precision": "fp32", "d.precision": "fp32", "g.ema": None, "every.log_steps": 1}
    for steps in (3, 6):
        made = cyclegan.trainer(1, out=tmp_path, settings={**settings, "train.kimg": steps * 4 / 1000})
        run = made.run()
    assert {"g/loss/cycle", "d/loss/adversarial/a", "d/loss/adversarial/b"} <= run.records("step")[-1].keys()
    torch.manual_seed(0)
    g, d = cyclegan.Translators(), cyclegan.Discriminators()
    first = [net.state_dict()["to_b.0.weight" if net is g else "of_b.0.weight"].clone() for net in (g, d)]
    adam = {net: torch.optim.Adam(net.parameters(), 1e-3, (0.5, 0.99)) for net in (g, d)}
    for _, batch in zip(range(6), pg.loading.TensorBatches(run.trainer.source, 4, seed=0), strict=False):
        pair = batch["pair"]
        fake = g(pair).images.detach()
        losses = [(real - 1).square().mean() / 2 for real in d(pair).values()]
        step(adam[d], sum(losses) + sum(made.square().mean() / 2 for made in d(fake).values()))
        output = g(pair)
        adversarial = sum((made - 1).square().mean() / 2 for made in d(output.images).values())
        step(adam[g], adversarial + 10 * (output.extra["back"] - pair).abs().mean())
    checkpoint = newest(tmp_path)
    assert distance(g, checkpoint / "g.safetensors") <= 1e-12
    assert distance(d, checkpoint / "d.safetensors") <= 1e-12
    assert not torch.equal(g.to_b[0].weight, first[0]) and not torch.equal(d.of_b[0].weight, first[1])


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
