"""The benchmark of the zoo on accelerators runs, small and on the CPU: both loops of every case take their steps."""

from dataclasses import replace

import pytest
import torch

from benchmarks import gpu_zoo
from paragan.game.network import Calling
from paragan.schemes import shared_fakes

SMALL = {
    "sngan": {"width": 2},
    "biggan": {"width": 8, "shared": 4},
    "stylegan2": {"width": 4, "latent": 4, "style": 4, "mapping": 1},
    "r3gan": {"width": 4, "groups": 2, "latent": 4},
}


@pytest.mark.parametrize("name", gpu_zoo.CASES)
def test_a_row_at_toy_size(name, monkeypatch):
    case = gpu_zoo.CASES[name]
    # no bf16: without hardware for it a convolution takes seconds
    shared = (Calling(None, channels_last=True), shared_fakes.Scheme(), "eager")
    levers = {"float32": gpu_zoo.LEVERS["float32"], gpu_zoo.TRACED: shared}
    monkeypatch.setattr(gpu_zoo, "LEVERS", levers)
    small = replace(case, side=16, classes=min(case.classes, 3), options=SMALL[case.model])
    found = gpu_zoo.row(small, 0.0, 4, torch.device("cpu"))
    assert list(found["images_per_s"]) == ["plain loop, float32", *levers]
    assert all(rate > 0 for rate in found["images_per_s"].values())
    assert found["flop_per_image"] > 1e4 and found["share_of_peak"] == {}
    shares = found["time_of_operations"]
    assert shares["aten::convolution_backward"] > 0.02 and 0.5 < sum(shares.values()) <= 1
