"""DMD2 on a mixture: the gradient of G is near that of the exact score of its samples, and a killed run repeats."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
import torch
import torch.nn.functional as F

from paragan import build
from paragan.core.dist import ALONE
from tests.examples.stopped_runs import Killed, assert_equal_runs, assert_killed_is_straight, killed_at

STEPS = 12
KILLED_AT = sorted(random.Random(20261126).sample(range(2, STEPS), 3))
SMALL = {"train.batch": 4, "train.kimg": STEPS * 4 / 1000, "every.save_kimg": 0.016}
SAMPLES, REFERENCES = 512, 4096


@pytest.fixture(scope="module")
def dmd2(example):
    return example("dmd2")


def cosine_to_exact(dmd2, g, fake_score):
    """Cosine between G's gradient by the fake score and by the exact denoiser of many samples of G."""
    draws = torch.Generator().manual_seed(1)
    references = g(torch.randn(REFERENCES, dmd2.LATENT, generator=draws)).detach()
    x = g(torch.randn(SAMPLES, dmd2.LATENT, generator=draws))
    sigma = dmd2.LEAST * (dmd2.MOST / dmd2.LEAST) ** torch.rand(SAMPLES, 1, generator=draws)
    noisy = x.detach() + sigma * torch.randn(SAMPLES, 2, generator=draws)
    near = (-torch.cdist(noisy, references).square() / (2 * sigma.square())).softmax(1) @ references
    real = dmd2.exact_denoiser(noisy, sigma)
    gradients = []
    for fake in (fake_score(noisy, sigma).detach(), near):
        towards = (fake - real) / (x - real).abs().mean(1, keepdim=True)
        found = torch.autograd.grad(x, list(g.parameters()), towards.detach(), retain_graph=True)
        gradients.append(torch.cat([gradient.flatten() for gradient in found]))
    return float(F.cosine_similarity(*gradients, dim=0))


def cosines(dmd2, folder, updates, steps, period, seed=0, **settings):
    """The cosine after every `period` steps."""
    made = dmd2.trainer(steps, updates, seed, folder / f"{updates}-{seed}", settings)
    loop = build.trainer(made.config, made.folder, print, lambda: False, model=made._game(ALONE))
    found = []
    while not loop.is_finished:
        list(loop.run(num_steps=period))
        found.append(cosine_to_exact(dmd2, loop.players["g"].net, loop.players["fake_score"].net))
    return found


def test_dmd2_gradient_is_near_the_exact_one_at_five_updates_and_less_near_at_one(dmd2, tmp_path):
    small = {k: {"train.batch": 64, "train.kimg": 0.064 * 20 * k} for k in (5, 1)}
    five, one = (cosines(dmd2, tmp_path, k, 20, 10, **settings) for k, settings in small.items())
    assert min(five) >= 0.95
    assert fmean(one) < fmean(five)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_dmd2_gradient_stays_near_the_exact_one(dmd2, tmp_path, seed):
    five, one = (cosines(dmd2, tmp_path, k, 150, 25, seed) for k in (5, 1))
    assert min(five) >= 0.95
    assert fmean(one) < fmean(five)


def test_dmd2_interrupted_at_three_steps_equals_the_uninterrupted_run(dmd2, tmp_path):
    def trainer(name):
        return dmd2.trainer(updates=2, out=tmp_path / name, settings=SMALL)

    trainer("straight").run()
    for position in KILLED_AT:
        with pytest.raises(Killed):
            killed_at(trainer("killed"), position, batch=4).run()
    trainer("killed").run()
    assert_equal_runs(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_dmd2_killed_at_three_steps_equals_the_uninterrupted_run(tmp_path, ranks):
    assert_killed_is_straight("dmd2", tmp_path, STEPS, KILLED_AT, ranks)
