"""Mixtures: shares are kept, a worse step is not, and rows go to whom they should."""

import copy
import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.metric import SampleFeatures
from paragan.export.projection import project
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.extensions.grid.mixture import (
    evolve_weights,
    greedy_ensemble,
    image_counts,
    mixture_features,
    normalize_weights,
)
from paragan.extensions.serving.sample_page import SamplePage
from paragan.game.mixture import Mixture, mixture_of
from tests.extensions.grid.test_cell_options import grid


def pool(value, rows=12):
    return SampleFeatures(features_BF=torch.full((rows, 1), float(value)))


def near(target):
    return lambda judged: abs(float(judged.features_BF.mean()) - target)


def test_weights_are_clipped_and_sum_to_one():
    assert normalize_weights([0.5, -0.1, 0.5]) == (0.5, 0.0, 0.5)
    assert normalize_weights([0.0, -1.0]) == (0.5, 0.5)
    assert normalize_weights([2.0, 1.0, 1.0]) == (0.5, 0.25, 0.25)


@pytest.mark.parametrize("num", [1, 7, 10, 1000])
def test_image_counts_follow_weights_and_sum_to_all(num):
    weights = [0.21, 0.19, 0.4, 0.0, 0.2]
    found = image_counts(weights, num)
    assert sum(found) == num and found[3] == 0
    assert all(abs(count - weight * num) < 1 for count, weight in zip(found, weights, strict=True))


def test_mixture_takes_disjoint_rows_of_each_member():
    found = mixture_features(
        [SampleFeatures(features_BF=torch.arange(10.0)[:, None] + 100 * i) for i in range(3)], [0.5, 0.2, 0.3]
    )
    assert found.features_BF.squeeze(1).tolist() == [0, 1, 2, 3, 4, 105, 106, 207, 208, 209]


def test_evolve_weights_accepts_only_lower_distances():
    pools, weights = [pool(0, 1000), pool(1, 1000)], (0.5, 0.5)
    distances = []
    for time in range(60):
        weights, found = evolve_weights(pools, weights, 0.05, near(0.9), 0, 0, time)
        distances.append(found)
    assert all(b <= a for a, b in pairwise(distances)) and distances[-1] < 0.1
    assert evolve_weights(pools, (0.5, 0.5), 0.0, near(0.9), 0, 0, 0)[0] == (0.5, 0.5)
    assert evolve_weights(pools[:1], (1.0,), 0.5, near(0.9), 0, 0, 0) == ((1.0,), pytest.approx(0.9))


@pytest.mark.parametrize(
    ("pools", "ensemble"),
    [
        ((pool(0), None, pool(4), pool(4)), None),  # the extractor has failed for one generator
        ((pool(math.nan),) * 4, None),
        ((pool(math.nan), pool(3), pool(math.nan), pool(5)), ({1: 1}, 0.0)),
    ],
)
def test_ensemble_has_generators_with_a_distance_only(tmp_path, pools, ensemble):
    population = grid(tmp_path, "grid.mixture.ensemble=1")
    remaining = iter(pools)
    population.mixture_scorer = SimpleNamespace(
        features=lambda genome, generation: next(remaining),
        distance=lambda found: near(3.0)(found) if found.features_BF.isfinite().all() else math.inf,
    )
    assert population.build_ensemble() == ensemble


def test_greedy_ensemble_adds_the_best_member():
    pools = [pool(0), pool(4), pool(10), pool(-50)]
    members, found = greedy_ensemble(pools, near(3.0), 4)  # 3 = (0 + 4 + 4 + 4) / 4
    assert members == {0: 1, 1: 3} and found == pytest.approx(0.0)
    assert greedy_ensemble(pools, near(10.0), 5) == ({2: 1}, pytest.approx(0.0))  # nothing beats one that is there
    assert sum(greedy_ensemble(pools, near(2.7), 3)[0].values()) <= 3


class Shift(nn.Module):
    latent, num_classes = 3, 2

    def __init__(self, by):
        super().__init__()
        self.by = nn.Parameter(torch.tensor(float(by)))

    def forward(self, z_BZ, y_B=None):
        return z_BZ.sum(1) + self.by + (0 if y_B is None else 1000 * y_B)


def test_mixture_row_is_the_image_of_one_member():
    net = Mixture([Shift(0), Shift(100), Shift(200)], [0.5, 0.0, 0.5])
    assert (net.latent, net.num_classes) == (4, 2)
    z = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    made = net(z)
    offsets = ((made - z[:, :3].sum(1)) / 100).round()
    assert set(offsets.tolist()) == {0.0, 2.0}
    assert (made - z[:, :3].sum(1) - 100 * offsets).abs().max() < 1e-3
    assert abs(float((offsets == 0).float().mean()) - 0.5) < 0.03
    assert torch.equal(net(z[:7]), made[:7])  # who makes a row depends on nothing but the row
    y = torch.arange(4000) % 2
    assert torch.equal(net(z, y), made + 1000 * y)


def shares_of(net, z_BZ):
    members = torch.searchsorted(net.shares.cumsum(0), torch.special.ndtr(z_BZ[:, -1]))
    return torch.bincount(members.clamp(max=len(net.members) - 1), minlength=len(net.members)) / len(z_BZ)


IMAGES = torch.zeros(40, 1, 8, 8)
MODELS = {"dcgan": {}, "stylegan2": {"style": 8, "mapping": 2}}  # a small mapping: means are of thousands of styles


@pytest.fixture(scope="module", params=MODELS)
def population(request, tmp_path_factory):
    """A sampler of a grid's mixture of three members."""
    folder = tmp_path_factory.mktemp("population") / "run"
    pg.train(
        "digits",
        {
            "grid": {"shape": "1x1", "batches": 1}, "data.size": 8, "train.batch": 8, "train.kimg": 0.016,
            "every.sample_kimg": 0, "evaluation.features": None,
            "model": {"name": request.param, "latent": 6, "width": 4, **MODELS[request.param]},
            "scheme": "synchronous", "augment": None, "penalties": [],
        },
        out=folder,
    )  # fmt: skip
    sampler = pg.load(folder)
    member = copy.deepcopy(sampler.net.members[0])
    members = [copy.deepcopy(member) for _ in range(3)]
    for number, net in enumerate(members):
        for weight in net.parameters():
            weight.data.add_(torch.randn_like(weight), alpha=0.1 * number)
    return replace(sampler, net=mixture_of(members, [1.0, 1.0, 1.0]).eval())


@pytest.mark.parametrize("truncation", [None, 1.0, 0.5, 0.2])
def test_truncation_does_not_choose_the_member(population, truncation):
    z = population.latents(4000, seed=1, truncation=truncation)
    assert torch.equal(z[:, -1], population.latents(4000, seed=1)[:, -1])
    assert (shares_of(population.net, z) - 1 / 3).abs().max() < 0.03


def test_a_walk_stays_with_its_members(population):
    points = population.latents(8, seed=2).unflatten(0, (4, 2))
    frames = list(population.walk(points, 12))
    assert len(frames) == 12
    assert all(torch.equal(z[:, -1], points[0, :, -1]) for z in frames)
    for number in range(4):
        torch.testing.assert_close(frames[3 * number][:, :-1], points[number, :, :-1], rtol=1e-5, atol=1e-6)


def test_the_way_to_another_seed_meets_no_third_member(population, monkeypatch):
    page, shown = SamplePage(population, ""), []
    monkeypatch.setattr(Sampler, "generate", lambda self, z_BZ, *_, **__: shown.append(z_BZ) or SampledImages(IMAGES))
    ways = ("0", "0.3", "0.5", "0.9", "1")
    for walk in ways:
        page.answer({"seed": "2", "num": "40", "walk": walk}, b"", 1)
    a, b = population.latents(40, seed=2), population.latents(40, seed=3)
    for walk, z in zip(ways, shown, strict=True):
        assert torch.equal(z[:, -1], (a if float(walk) < 0.5 else b)[:, -1])
    torch.testing.assert_close(shown[0], a, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(shown[-1], b, rtol=1e-5, atol=1e-5)


def test_a_projection_stays_with_its_member(population):
    target = population.sample(1, seed=5).tensor[0]
    starts = population.latents(256)[:, -1]
    found = project(population, target, steps=5).z_1Z
    assert found[0, -1] in starts
    assert found[0, 0] not in population.latents(256)[:, 0]


def test_truncation_of_a_mixture_is_that_of_its_members(population):
    z, truncation = population.latents(24, seed=3, truncation=0.4), 0.4
    y = population.labels(24, seed=3)
    found = population.generate(z, y, truncation=truncation).tensor
    members = torch.searchsorted(population.net.shares.cumsum(0), torch.special.ndtr(z[:, -1])).clamp(max=2)
    for number, member in enumerate(population.net.members):
        rows = members == number
        alone = (
            replace(population, net=member)
            .generate(z[rows, :-1], None if y is None else y[rows], truncation=truncation)
            .tensor
        )
        torch.testing.assert_close(found[rows], alone, rtol=1e-5, atol=3e-5)  # float32, by batches of other sizes
    plain = population.generate(population.latents(24, seed=3), y).tensor
    assert not torch.allclose(found, plain)
