"""Features of real images by a slow extractor are computed once, and read from the cache after that."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from paragan.core.metric import SampleFeatures
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.reference_features import real_features
from paragan.features.base.extractor import FeatureExtractor

REAL = InMemorySource(
    torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)),
    torch.arange(40) % 3,
    tuple("abc"),
    fingerprint="forty",
)


class Counting(nn.Module):
    """Two features of an image; it counts its calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        flat = x.flatten(1)
        return torch.stack([flat.mean(1), flat.std(1)], 1), flat[:, :3]


@pytest.fixture
def extractor(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    return FeatureExtractor(
        name="counting", network=Counting(), shape=(1, 8, 8), num_classes=3, sha256="0" * 64, is_slow=True
    )


def equal(a: SampleFeatures, b: SampleFeatures) -> bool:
    return torch.equal(a.features_BF, b.features_BF) and torch.equal(a.logits_BK, b.logits_BK)


def test_second_call_reads_the_cache(extractor):
    first = real_features(extractor, REAL, 20, print)
    calls = extractor.network.calls
    second = real_features(extractor, REAL, 20, print)
    assert extractor.network.calls == calls
    assert equal(first, second)
    assert torch.equal(first.requested_labels_B, second.requested_labels_B)


@pytest.mark.parametrize("change", [{"sha256": "1" * 64}, {"crop": 0, "resize": "bilinear"}])
def test_another_extractor_computes_anew(extractor, change):
    real_features(extractor, REAL, 20, print)
    calls = extractor.network.calls
    real_features(replace(extractor, **change), REAL, 20, print)
    assert extractor.network.calls > calls


def test_damaged_cache_is_computed_anew(extractor, tmp_path):
    first = real_features(extractor, REAL, 20, print)
    (file,) = (tmp_path / "cache" / "features").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert equal(real_features(extractor, REAL, 20, print), first)


def test_fast_extractor_is_not_cached(extractor, tmp_path):
    real_features(replace(extractor, is_slow=False), REAL, 20, print)
    assert not (tmp_path / "cache").exists()
