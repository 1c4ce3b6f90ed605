"""All metrics of the registry on several ranks, each with a part of the images."""

import torch
from torch import nn

from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.metric import Needs
from paragan.core.option_types import Choice
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.evaluator import Evaluator
from paragan.features.base import classifier as classifier
from paragan.features.base.extractor import FeatureExtractor

CLASSES = tuple("abc")
NUM_IMAGES = 630  # blocks of 250, 250 and 130: ranks have uneven parts, and some have none


class Pixels(nn.Module):
    """Twelve features and three logits of an image of 8x8."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.mix = nn.Parameter(torch.randn(64, 12, generator=generator) / 8)

    def forward(self, x_BCHW):
        features = (x_BCHW.flatten(1) @ self.mix).tanh()
        return features, 3 * features[:, :3]


def drawn(count: int, seed: int) -> InMemorySource:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    noise = torch.randint(150, (count, 1, 8, 8), generator=generator)
    images = (noise + 6 * labels[:, None, None, None]).to(torch.uint8)
    return InMemorySource(images, labels, CLASSES)


def metrics_of_features() -> list[str]:
    kinds = {name: registry.load_module("metrics", name).Metric for name in registry.names("metrics")}
    return [name for name, kind in kinds.items() if not kind.needs & {Needs.PAIRS, Needs.TOKENS}]


def score(world) -> dict[str, dict[str, float]]:
    """The values of generated images, and those of real ones, by all metrics."""
    extractor = FeatureExtractor(name="pixels", network=Pixels(), shape=(1, 8, 8), num_classes=3, sha256="")
    chosen = [Choice(name, registry.options("metrics", name)()) for name in metrics_of_features()]
    train = drawn(700, 1)
    evaluator = Evaluator(
        extractor=extractor,
        train=train,
        held_out=drawn(150, 2),
        num_images=NUM_IMAGES,
        chosen=chosen,
        resamples=0,
        world=world,
    )
    generated = drawn(NUM_IMAGES, 3)

    def generate(first: int, count: int):
        rows = generated.fetch(range(first, first + count))
        return rows["image"] / 127.5 - 1, rows["label"]

    found = evaluator.score(generate)
    return {"generated": found.metrics, "real": found.real}


def differences(world) -> dict[str, float]:
    """The largest difference of each metric to one rank's."""
    steps = classifier.STEPS
    classifier.STEPS = 8
    try:
        alone = score(ALONE)
        shared = score(world)
    finally:
        classifier.STEPS = steps
    assert alone.keys() == shared.keys()
    found: dict[str, float] = {}
    for kind, values in alone.items():
        for name, value in values.items():
            difference = abs(value - shared[kind][name]) / max(1.0, abs(value))
            found[name] = max(found.get(name, 0.0), difference)
    return found
