"""Scores of pairs: l1, psnr and ssim against plain numpy, and what is compared with what."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError, DivergedError
from paragan.core.metric import SamplePairs
from paragan.core.source import Source, image_specs
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.pair_evaluator import PairEvaluator
from paragan.game.prior import Prior
from paragan.metrics import l1, psnr, ssim


def images(seed, count=3, side=20):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3, side, side + 3))


def smoothed(seed):
    """Neighbours alike, so that structure is something."""
    x = images(seed)
    return (x + np.roll(x, 1, 2) + np.roll(x, 1, 3) + np.roll(x, (1, 1), (2, 3))) / 4


def plain_ssim(a, b):
    """Pixel by pixel, as equation 13 has it; grey levels 0 to 255."""
    offsets = np.arange(11) - 5
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    a, b, values = (a + 1) * 127.5, (b + 1) * 127.5, []
    for top in range(a.shape[0] - 10):
        for left in range(a.shape[1] - 10):
            x, y = (p[top : top + 11, left : left + 11] for p in (a, b))
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy, vxy = ((window * p).sum() for p in ((x - mx) ** 2, (y - my) ** 2, (x - mx) * (y - my)))
            c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
            values.append((2 * mx * my + c1) * (2 * vxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    return np.mean(values)


def both(a, b):
    return SamplePairs(torch.from_numpy(a), torch.from_numpy(b))


def test_ssim_matches_the_paper():
    target = smoothed(0)
    made = 0.7 * target + 0.3 * smoothed(1) + 0.1
    expected = np.mean(
        [[plain_ssim(a, b) for a, b in zip(*two, strict=True)] for two in zip(made, target, strict=True)]
    )
    assert ssim.Metric().update(both(made, target)).compute() == pytest.approx(expected, rel=1e-9)
    assert 0.3 < expected < 0.95


def test_ssim_of_images_smaller_than_window():
    x = images(0)[:, :, :6, :6]
    assert ssim.Metric().update(both(x, x)).compute() == pytest.approx(1)


def test_l1_and_psnr_match_definition():
    made, target = images(0), images(1)
    assert l1.Metric().update(both(made, target)).compute() == pytest.approx(np.abs(made - target).mean())
    levels = ((made - target) * 127.5) ** 2
    expected = np.mean([10 * np.log10(255**2 / image.mean()) for image in levels])
    assert psnr.Metric().update(both(made, target)).compute() == pytest.approx(expected)
    assert psnr.Metric().update(both(made, made)).compute() == 100


def test_paired_metric_without_pairs_raises():
    with pytest.raises(ConfigError, match="no images to compare"):
        l1.Metric().compute()


class Held(Source):
    """Seven pairs; the target is the condition, darker."""

    tensors, fingerprint = image_specs((3, 12, 12), condition=3), "held"

    def __len__(self):
        return 7

    def fetch(self, indices, places=None, seed=0):
        assert places is None
        condition = torch.full((len(indices), 3, 12, 12), 100, dtype=torch.uint8)
        condition += torch.as_tensor(np.asarray(indices), dtype=torch.uint8).view(-1, 1, 1, 1) * 10
        return {"image": condition - 51, "condition": condition}


class Copy(nn.Module):
    """Shows its condition; noisy in training."""

    latent = 0

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, z, y=None, condition=None):
        assert z.shape == (len(condition), 0)
        return self.drop(condition * self.weight)


def player():
    return SimpleNamespace(net=Copy(), ema=None)


def test_pair_evaluator_compares_with_targets():
    score = PairEvaluator(held_out=Held(), options=EvaluationOptions(num_images=100, resamples=0))(
        player(), Prior(seed=0, latent=0)
    )
    assert list(score.metrics) == ["l1", "psnr", "ssim"]
    assert score.metrics["l1"] == pytest.approx(51 / 127.5)
    assert score.num_images == 7
    assert score.protocol["compared"] == {"with": "the target of each pair", "split": "held_out", "num_images": 7}
    assert json.loads(json.dumps(score.protocol)) == score.protocol


class More(Held):
    """More pairs than are compared at once."""

    def __len__(self):
        return 25

    def fetch(self, indices, places=None, seed=0):
        return super().fetch(np.asarray(indices) % 7, places, seed)


def test_pair_evaluator_with_several_blocks_has_the_mean_and_an_interval():
    score = PairEvaluator(held_out=More(), options=EvaluationOptions(num_images=100, resamples=20))(
        player(), Prior(seed=0, latent=0)
    )
    assert score.num_images == 25
    assert score.metrics["l1"] == pytest.approx(51 / 127.5)
    low, high = score.intervals["l1"]
    assert low <= score.metrics["l1"] <= high


def test_pair_evaluator_uses_and_records_mode():
    def scored(mode):
        return PairEvaluator(held_out=Held(), options=EvaluationOptions(num_images=5, sampling=mode))(
            player(), Prior(seed=0, latent=0)
        )

    scores = {mode: scored(mode) for mode in ("eval", "train-stats")}
    assert {mode: score.protocol["mode"] for mode, score in scores.items()} == {m: m for m in scores}
    assert "dropout on" in scores["train-stats"].protocol["sampling"]
    assert scores["eval"].metrics["l1"] == pytest.approx(51 / 127.5)
    assert scores["train-stats"].metrics["l1"] != pytest.approx(51 / 127.5, rel=1e-3)
    assert scores["train-stats"].metrics == scored("train-stats").metrics


def test_pair_evaluator_images_not_finite_is_refused():
    evaluator = PairEvaluator(held_out=Held(), options=EvaluationOptions(num_images=5, resamples=0))
    with pytest.raises(DivergedError, match="diverged"):
        evaluator.compare(evaluator.translated(lambda first, condition: condition * torch.nan))
