"""On an accelerator: an extractor computes the features of the CPU, in batches, and metrics read them on the host."""

from dataclasses import replace

import pytest
import torch

from tests.prepared_extractors import blank, prepared

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


@pytest.mark.parametrize(("name", "shape"), [("mnist", (1, 28, 28)), ("cifar10", (3, 32, 32))])
def test_features_on_the_device_are_those_of_the_cpu(name, shape):
    x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    expected = prepared(name, blank(*shape)).compute(x)
    on_device = replace(prepared(name, blank(*shape)), device=torch.device("cuda"), batch_size=16)
    for images in (x, x.cuda()):
        found = on_device.compute(images)
        assert found.features_BF.device.type == "cpu"
        torch.testing.assert_close(found.features_BF, expected.features_BF, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.logits_BK, expected.logits_BK, rtol=1e-4, atol=1e-3)
