"""A generator that returns real images of the wanted class scores like real images, however rare a class is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from paragan.config import choose
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.evaluator import Evaluator
from paragan.features.base.extractor import FeatureExtractor
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.loading.normalise import normalise

SIDE = 8


def images_of(labels, seed):
    """Noisy images: those of class k have a bright column k."""
    draw = np.random.default_rng(seed)
    x = draw.normal(90, 25, (len(labels), 1, SIDE, SIDE))
    x[np.arange(len(labels)), 0, :, np.asarray(labels) % SIDE] += draw.normal(90, 20, (len(labels), 1))
    return torch.from_numpy(x.clip(0, 255).astype(np.uint8))


def source_of(sizes, seed, every=1):
    labels = np.repeat(np.arange(len(sizes)), sizes)[::every]
    return InMemorySource(images_of(labels, seed), torch.from_numpy(labels), tuple(map(str, range(len(sizes)))))


class Perfect(nn.Module):
    """Returns an image of the wanted class that neither split has."""

    latent = 1

    def __init__(self, num_classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.pools = [normalise(images_of([label] * 1500, 100 + label)) for label in range(num_classes)]

    def forward(self, z_BZ, y_B):
        index_B = ((z_BZ[:, 0].double() * 1e6).long() % 1500).tolist()
        return torch.stack([self.pools[label][index] for label, index in zip(y_B.tolist(), index_B, strict=True)])


def score_of(sizes, is_uniform=False):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 12, bias=False))
    extractor = FeatureExtractor(name="linear", network=net, shape=(1, SIDE, SIDE), num_classes=None, sha256="")
    evaluator = Evaluator(
        extractor=extractor,
        train=source_of(sizes, 1),
        held_out=source_of(sizes, 2),
        num_images=sum(sizes),
        chosen=[choose("metrics", "fd"), choose("metrics", "kid")],
        resamples=20,
    )
    prior = Prior(seed=0, latent=1, num_classes=len(sizes), class_sizes=() if is_uniform else sizes)
    return evaluator.score_network(CalledNetwork(module=Perfect(len(sizes))), prior)


@pytest.mark.parametrize("sizes", [(900, 100), (30, 850, 120), (500, 500)])
def test_perfect_generator_scores_like_held_out_real_images(sizes):
    score = score_of(sizes)
    for name in ("fd[linear]", "kid[linear]"):
        low, high = score.intervals[name]
        margin = high - low  # of the real value, which is as uncertain
        assert low - margin / 2 <= score.real[name] <= high + margin / 2
    expected = "uniform" if sizes == (500, 500) else "as in the training data"
    assert score.protocol["labels"] == expected


def test_uniform_labels_are_another_distribution_than_unbalanced_data():
    score = score_of((900, 100), is_uniform=True)
    low, high = score.intervals["fd[linear]"]
    assert low > score.real["fd[linear]"] + (high - low)
