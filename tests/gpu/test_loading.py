"""The pipeline's copy to a device: on a stream of its own, and the same batches."""

import pytest
import torch

from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline
from tests.unit.loading.test_pipeline import Encoded

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")]
DEVICE = torch.device("cuda", 0)


def loader():
    return Loader(Encoded(0), 16, 3, DEVICE, flip=True)


def test_batches_on_the_device_are_those_of_the_loader():
    plain = loader()
    ahead = Pipeline(loader(), 4, 2, 2)
    work = torch.randn(2048, 2048, device=DEVICE)
    copied = 0
    for step in range(40):
        expected = next(plain)
        work = torch.tanh(work @ work)  # the copy must not overtake what is queued
        found = next(ahead)
        assert found.image.device == DEVICE and torch.equal(found.image, expected.image)
        assert torch.equal(found.label, expected.label)
        copied += (ahead._device_copy._copied or (None,))[0] == step + 1
        if step == 20:
            plain.position = ahead.position = 3
    assert copied > 0
    ahead.close()


def test_copy_runs_on_a_stream_of_its_own():
    ahead = Pipeline(loader(), 4, 0, 1)
    next(ahead)
    assert ahead._device_copy._stream != torch.accelerator.current_stream(DEVICE)
    assert all(t.is_pinned() for t in ahead._stages.take(ahead.position, 30).values())
    ahead.close()
