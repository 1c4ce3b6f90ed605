"""The perceptual distance is LPIPS with the given network, and its diversity that of all pairs of images."""

import hashlib
import json

import pytest
import torch
import torch.nn.functional as F

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures, SamplePairs
from paragan.core.option_types import Choice
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.pair_evaluator import PairEvaluator
from paragan.metrics import diversity, perceptual_distance
from tests.unit.evaluation.test_pairs import Held

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def pairs(size=16):
    generator = torch.Generator().manual_seed(1)
    made, target = torch.rand(2, 5, 3, size, size, generator=generator) * 2 - 1
    return SamplePairs(made, target)


def distance(path, samples, **options):
    chosen = perceptual_distance.Options(weights=str(path), **options)
    return perceptual_distance.Metric.from_reference(None, chosen).update(samples).compute()


def by_hand(network, samples, layers=(0, 1), normalise=True):
    """Equation 1 of Zhang et al. without weights, as the code of the authors has it."""
    with torch.no_grad():
        maps = [network(((x + 1) / 2 - MEAN) / STD) for x in (samples.made, samples.target)]
    total = 0.0
    for layer in layers:
        a, b = (found[layer].double() for found in maps)
        if normalise:
            a, b = (x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10) for x in (a, b))
        total += float((a - b).square().sum(1).mean((1, 2)).mean())
    return total


@pytest.mark.parametrize("size", [8, 16])
def test_distance_equals_lpips_by_hand(maps_file, size):
    network, path = maps_file
    assert distance(path, pairs(size)) == pytest.approx(by_hand(network, pairs(size)), rel=1e-6)
    assert distance(path, pairs(size), outputs=("1",)) == pytest.approx(by_hand(network, pairs(size), [1]), rel=1e-6)
    plain = by_hand(network, pairs(size), normalise=False)
    assert distance(path, pairs(size), normalise=False) == pytest.approx(plain, rel=1e-6)


def test_distance_by_features_of_a_fixed_size(transformer_file):
    network, path = transformer_file
    found = distance(path, pairs(), outputs=("cls",))
    with torch.no_grad():
        a, b = (
            network((F.interpolate(x, (28, 28), mode="bicubic", antialias=True).clamp(-1, 1) + 1 - 2 * MEAN) / 2 / STD)
            for x in (pairs().made, pairs().target)
        )
    expected = 2 * (1 - F.cosine_similarity(a["cls"].double(), b["cls"].double()))
    assert found == pytest.approx(float(expected.mean()), rel=1e-5)


def test_pairs_are_scored_and_the_stamp_has_the_sha256(maps_file):
    options = perceptual_distance.Options(weights=str(maps_file[1]))
    chosen = (Choice("l1", None), Choice("perceptual_distance", options))
    evaluator = PairEvaluator(held_out=Held(), options=EvaluationOptions(num_images=5, metrics=chosen, resamples=0))
    score = evaluator.compare(evaluator.translated(lambda first, condition: condition))
    assert list(score.metrics) == ["l1", "perceptual_distance"] and score.metrics["perceptual_distance"] > 0
    stamp = score.protocol["perceptual_distance"]
    assert stamp["sha256"] == hashlib.sha256(maps_file[1].read_bytes()).hexdigest()
    assert stamp["outputs"] == ["0", "1"]
    assert json.loads(json.dumps(score.protocol)) == score.protocol


def test_missing_file_and_unknown_output_are_refused_before_a_run(maps_file):
    with pytest.raises(ConfigError, match=r"perceptual_distance needs a network; pass evaluation\.metrics="):
        PairEvaluator(
            held_out=Held(),
            options=EvaluationOptions(metrics=(Choice("perceptual_distance", perceptual_distance.Options()),)),
        )
    with pytest.raises(ConfigError, match=r"outputs: 'relu' is not an output of .*; choose from 0, 1"):
        distance(maps_file[1], pairs(), outputs=("relu",))


def spread(features_NF):
    """The mean squared distance of all pairs of different rows of length 1."""
    unit = F.normalize(features_NF, dim=1)
    return float(torch.cdist(unit, unit).square().sum() / (len(unit) * (len(unit) - 1)))


def test_diversity_is_the_mean_distance_of_all_pairs():
    generator = torch.Generator().manual_seed(2)
    real, generated = torch.randn(2, 50, 7, generator=generator, dtype=torch.float64)
    generated = 0.5 * generated[:40] + 1
    empty = diversity.Metric.from_reference(SampleFeatures(features_BF=real))
    value = empty.update(SampleFeatures(features_BF=generated)).compute()
    assert value == pytest.approx(spread(generated) / spread(real), rel=1e-10) and 0.05 < value < 0.9
    assert empty.update(SampleFeatures(features_BF=generated[:1].expand(9, 7))).compute() == pytest.approx(0, abs=1e-12)


def test_diversity_of_equal_real_images_is_refused():
    with pytest.raises(ConfigError, match="real images whose features differ"):
        diversity.Metric.from_reference(SampleFeatures(features_BF=torch.ones(5, 3)))
