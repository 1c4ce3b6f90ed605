"""On an accelerator: full steps of the recipes for 1024 px at full width, within 15 % of the plan's tensors."""

import pytest
import torch

from benchmarks import large_images

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


@pytest.mark.parametrize("name", ["biggan, full width, batch 1", "stylegan2, full width, batch 1"])
def test_a_full_step_at_1024_px_needs_the_memory_of_its_plan(name):
    row = large_images.row_of(name)
    assert abs(row["error_percent"]) <= 15
