"""Only the adapters of the U-Net train, and the merged one is written back."""

import importlib.util

import pytest
import torch

import paragan as pg

pytestmark = pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="diffusers is not installed")


@pytest.mark.slow
def test_diffusers_lora_writes_the_unet_that_makes_its_samples(example, tmp_path):
    lora = example("diffusers_lora")
    folder = lora.small_unet(tmp_path / "unet", (8, 8))
    settings = {"train.kimg": 0.064, "train.batch": 16, "every.save_kimg": 0.032}
    run = lora.trainer(folder, tmp_path / "run", settings).run()
    run.generator.network.save_pretrained(tmp_path / "merged")
    z = torch.randn(4, 64)
    merged, before = (pg.load_diffusers(path).eval()(z) for path in (tmp_path / "merged", folder))
    assert torch.equal(merged, run.generator(z))
    assert (merged - before).abs().max() > 1e-5
