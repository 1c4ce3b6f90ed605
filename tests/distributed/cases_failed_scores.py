"""Cases of test_failed_scores.py, on every rank."""

from types import SimpleNamespace

import torch

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.evaluation.generated_features import compute_features, row_blocks


def features(world, failing, part="extractor"):
    """What a rank returns or raises where a part fails on these ranks; the number of generator calls."""
    calls = []

    def generate(first, count):
        calls.append(first)
        if (part == "generator" and world.rank in failing) or (part == "first images" and calls == [0]):
            raise ValueError("features are not finite")
        return torch.zeros(count, 1, 8, 8), None

    def compute(x, labels):
        if part == "extractor" and world.rank in failing:
            raise ValueError("features are not finite")
        return SampleFeatures(features_BF=torch.zeros(len(x), 3))

    try:
        found = compute_features(generate, SimpleNamespace(compute=compute), row_blocks(12, 2), world)
    except ConfigError as error:
        return str(error), len(calls)
    return len(found), len(calls)
