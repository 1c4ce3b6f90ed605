"""DMD2 on a mixture: the gradient of G is near that of the exact score of its samples."""

from statistics import fmean

import pytest
import torch
import torch.nn.functional as F

from paragan import build
from paragan.core.dist import ALONE

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
