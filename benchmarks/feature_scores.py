"""Scores of 2048 features beside the features themselves: CPU seconds at one thread, at n, 2n and 4n images.

    python -m benchmarks.feature_scores [n]

`fd`: moments of n images in batches of 256, then one distance, which does not depend on n. `kid`, `precision` and
`recall`: real and generated images are n each. The network is Inception with random weights: only its time counts.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.record import write
from paragan.core.metric import Metric, SampleFeatures
from paragan.features._inception_network import TENSORFLOW, InceptionNetwork
from paragan.metrics import fd, kid, precision, recall

FEATURES, BATCH, IMAGES = 2048, 256, 8
QUADRATIC = {"kid": kid.Metric, "precision": precision.Metric, "recall": recall.Metric}


def drawn(count: int, seed: int) -> SampleFeatures:
    """Features as of a network: not negative, around a mean, with 32 directions of large variance."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(32, FEATURES, generator=torch.Generator().manual_seed(9)) / 6
    own = torch.randn(count, FEATURES, generator=generator) / 4
    return SampleFeatures(features_BF=(own + torch.randn(count, 32, generator=generator) @ mix + 0.4).relu())


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returns."""
    began = time.process_time()
    returned = work()
    return round(time.process_time() - began, 3), returned


def moments_and_distance(count: int) -> dict[str, float]:
    """The distance of `count` images to the moments of 4096."""
    metric = fd.Metric.from_reference(drawn(4096, 0))
    batch = drawn(BATCH, 1)

    def updated() -> Metric:
        included: Metric = metric
        for _ in range(count // BATCH):
            included = included.update(batch)
        return included

    moments_s, included = seconds(updated)
    distance_s, _ = seconds(included.compute)
    return {"moments_s": moments_s, "distance_s": distance_s}


def all_pairs(kind: type[Metric], count: int) -> float:
    """CPU seconds of a whole score of `count` real and as many generated images."""
    real, generated = drawn(count, 0), drawn(count, 1)
    return seconds(lambda: kind.from_reference(real).update(generated).compute())[0]


def network_s() -> float:
    """CPU seconds of the features of an image of 299 x 299."""
    network = InceptionNetwork(TENSORFLOW).eval()
    images = torch.rand(IMAGES, 3, 299, 299)
    with torch.no_grad():
        network(images)
        return seconds(lambda: network(images))[0] / IMAGES


def main(count: int = 1000) -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {"features": FEATURES, "network_s_per_image": round(network_s(), 4)}
    results["fd"] = {images: moments_and_distance(images) for images in (count, 2 * count, 4 * count)}
    for name, kind in QUADRATIC.items():
        results[name] = {images: all_pairs(kind, images) for images in (count, 2 * count, 4 * count)}
    results["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(results)
    write("feature-scores", results)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
