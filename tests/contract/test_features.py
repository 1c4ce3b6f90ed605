"""What every feature extractor guarantees: the same features of the same image, and nothing else changes."""

import re

import numpy as np
import pytest
import torch

from paragan.core import registry
from paragan.datasets import digits
from paragan.datasets.base.in_memory import InMemorySource
from paragan.features.base.inception_weights import PUBLISHED, stored_path
from paragan.loading.normalise import normalise
from tests.prepared_extractors import prepared

NAMES = [name for name in registry.names("features") if name != "auto"]  # which stands for another one
DIGITS = digits.source(digits.Options(8), "held_out")
LABELS = torch.arange(40) % 10
NOISE = torch.Generator().manual_seed(0)
SOURCES = [  # of the sizes that networks are trained on
    InMemorySource(torch.randint(0, 256, (40, *shape), dtype=torch.uint8, generator=NOISE), LABELS, tuple("abcdefghij"))
    for shape in ((1, 28, 28), (3, 32, 32))
]


@pytest.fixture(scope="module", params=NAMES)
def ready(request, quick_judge):
    """An extractor with a source of images that it accepts."""
    name = request.param
    if name in PUBLISHED and not any(stored_path(file).is_file() for file in PUBLISHED[name].files):
        pytest.skip("the public weights are not stored; tests/unit/features/test_inception.py has random ones")
    weights = {"weights": str(request.getfixturevalue("transformer_file")[1])} if name == "exported" else {}
    for source in (DIGITS, *SOURCES) if name == "judge" else SOURCES:
        extractor = prepared(name, source, **weights)
        if extractor.accepts(source.shape):
            return extractor, source
    raise AssertionError(f"{name} accepts images of no size")


@pytest.fixture
def x_BCHW(ready):
    return normalise(ready[1].fetch(np.arange(30))["image"])


def test_extractor_is_recorded_with_its_weights(ready):
    assert ready[0].name in NAMES
    assert re.fullmatch("[0-9a-f]{64}", ready[0].sha256)


def test_extractor_returns_features_and_logits(ready, x_BCHW):
    extractor, _ = ready
    found = extractor.compute(x_BCHW)
    assert found.features_BF.shape[0] == 30 and found.features_BF.ndim == 2
    assert found.features_BF.dtype == torch.float32 and found.features_BF.isfinite().all()
    assert (found.logits_BK is None) == (extractor.num_classes is None)
    assert found.logits_BK is None or found.logits_BK.shape == (30, extractor.num_classes)
    assert not found.features_BF.requires_grad


def test_extractor_result_is_independent_of_the_batch(ready, x_BCHW):
    extractor, _ = ready
    alone = torch.cat([extractor.compute(row[None]).features_BF for row in x_BCHW])
    assert torch.allclose(extractor.compute(x_BCHW).features_BF, alone, rtol=1e-4, atol=1e-4)


def test_extractor_features_differ_between_images(ready, x_BCHW):
    assert (ready[0].compute(x_BCHW).features_BF.std(0) > 0).any()


def test_extractor_changes_no_state(ready, x_BCHW):
    extractor, _ = ready
    before = {name: tensor.clone() for name, tensor in extractor.network.state_dict().items()}
    random = torch.get_rng_state()
    first, second = (extractor.compute(x_BCHW).features_BF for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(tensor, before[name]) for name, tensor in extractor.network.state_dict().items())
    assert not any(parameter.requires_grad for parameter in extractor.network.parameters())


def test_extractor_rows_have_the_labels_of_the_source(ready):
    extractor, source = ready
    found = extractor.compute_rows(source, 20)
    assert len(found) == 20 and found.requested_labels_B.shape == (20,)


def test_extractor_refuses_images_of_another_size(ready):
    channels, height, width = ready[0].input_shape
    assert ready[0].takes_any_size or not ready[0].accepts((channels, height + 1, width))
    assert not ready[0].accepts((channels + 1, height, width))
